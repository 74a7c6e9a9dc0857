# SPDX-License-Identifier: Apache-2.0
"""Run the scenarios: ``python -m scenarios ROOT [--smoke] [--ours | --theirs] [--regex=REGEX]``."""

import argparse
import contextlib
import fcntl
import json
import os
import pathlib
import signal
import subprocess
import sys

from scenarios import leftovers, orphans, report, selection, stream


def main(argv=None) -> int:
    args = _parser().parse_args(argv)
    # A time limit ends a run like Ctrl-C: the results so far are reported.
    signal.signal(signal.SIGTERM, _interrupt)
    root = pathlib.Path(args.root)
    with open(root / 'run' / 'scenario.lock', 'a') as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            print('scenario: another run is in progress', file=sys.stderr)
            return 1
        return _scenarios(root, args)


def _scenarios(root, args):
    chosen = selection.load(selection.FILE)
    pattern = selection.pattern(chosen, whose=args.whose, smoke=args.smoke, regex=args.regex)
    workspace = root / 'instruments' / 'tempest'
    tempest = [str(root / 'instruments' / 'bin' / 'tempest'), 'run', '--regex', pattern]
    tempest += ['--config-file', str(workspace / 'etc' / 'tempest.conf')]
    environ = dict(os.environ, PYTHON=sys.executable)
    names = stream.listed([*tempest, '--list-tests'], workspace, environ)
    if not names:
        print(f'scenario: no test matches {args.regex or pattern}', file=sys.stderr)
        return 1
    credentials = json.loads((root / 'etc' / 'credentials.json').read_text())['admin']
    for name in leftovers.remove(leftovers.connect(credentials)):
        print(f'removed {name} of an earlier run')
    print(f'{len(names)} tests')
    outcome = stream.Outcome(names, chosen.reason_to_fail)
    log = root / 'log'
    try:
        command = [*tempest, '--serial', '--subunit']
        _run(command, workspace, environ, outcome, log / 'scenario.subunit')
    except KeyboardInterrupt:
        print('\nscenario: interrupted; the next run removes its leftovers', file=sys.stderr)
        outcome.interrupted = True
    report.save(log, outcome)
    print(report.render(outcome, log))
    found = '' if outcome.interrupted else orphans.find(root)
    if found:
        print(f'scenario: the run left orphans:\n{found}', file=sys.stderr)
    return 0 if outcome.successful() and not found else 1


def _run(command, workspace, environ, outcome, copy):
    """Run Tempest and its workers in a session of their own, which ends with this run."""
    with open(copy, 'wb') as raw:
        process = subprocess.Popen(
            command,
            cwd=workspace,
            env=environ,
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            stream.follow(process.stdout, raw, outcome)
        finally:
            # After SIGTERM a worker would first wait for its database.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.stdout.close()
            process.wait()


def _interrupt(*_signal):
    raise KeyboardInterrupt


def _parser():
    parser = argparse.ArgumentParser(prog='scenarios', description=__doc__)
    parser.add_argument('root')
    parser.add_argument('--smoke', action='store_true')
    for name in ('ours', 'theirs'):
        parser.add_argument(f'--{name}', dest='whose', action='store_const', const=name)
    parser.add_argument('--regex')
    return parser


if __name__ == '__main__':
    sys.exit(main())
