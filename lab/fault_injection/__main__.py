# SPDX-License-Identifier: Apache-2.0
"""Run the rounds: ``python -m fault_injection ROOT [options]``, as ``lab fault-injection`` does."""

import argparse
import json
import pathlib
import secrets
import sys
import time

import cloud
from driver.fault_injection import add_arguments
from scenarios import leftovers, orphans

from fault_injection import operations, plan, report, rounds, services


def main(argv=None) -> int:
    args = _parser().parse_args(argv)
    root = pathlib.Path(args.root)
    seed = secrets.randbelow(10**6) if args.seed is None else args.seed
    verbs, names = args.operation or list(plan.TYPICAL_SEC), args.service or list(plan.SERVICES)
    plans = plan.draw(seed, args.rounds, verbs, names)
    print(f'{len(plans)} rounds, seed {seed}', flush=True)
    target = _connect(root)
    runner = rounds.Rounds(target, services.Supervisor(root).kill)
    runner.repeat(target.remove_leftovers)
    results = []
    print(report.line(report.HEADER), flush=True)
    try:
        for result in runner.run(plans):
            results.append(result)
            print(report.line(report.row(result)), flush=True)
    finally:
        left = _wait_until_gone(target) + orphans.find(root).splitlines()
        path = root / 'log' / 'fault-injection.json'
        report.save(path, seed, results, left)
    for text in report.summary(results, args.limit_sec):
        print(text)
    print('nothing is left behind' if not left else 'left behind:\n' + '\n'.join(left))
    print(f'all results: {path}')
    return 1 if left or report.over(results, args.limit_sec) else 0


def _wait_until_gone(target: operations.Cloud, sleep=time.sleep) -> list[str]:
    """Return what rounds left; the last deletions may still be under way."""
    waited = 0
    while (left := target.list_leftovers()) and waited < orphans.TIMEOUT_SEC:
        sleep(orphans.POLL_SEC)
        waited += orphans.POLL_SEC
    return left


def _connect(root: pathlib.Path) -> operations.Cloud:
    credentials = json.loads((root / 'etc' / 'credentials.json').read_text())
    instance = json.loads((root / 'report.json').read_text())['instance']['id']
    return operations.Cloud(
        leftovers.connect(credentials['tenant']),
        leftovers.connect(credentials['admin']),
        cloud.connect(credentials['admin']).compute,
        instance,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog='fault_injection', description=__doc__)
    parser.add_argument('root', help='the root directory of the lab')
    add_arguments(parser)
    return parser


if __name__ == '__main__':
    sys.exit(main())
