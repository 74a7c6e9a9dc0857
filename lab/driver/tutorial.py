# SPDX-License-Identifier: Apache-2.0
"""Follow the tenant's tutorial on a running lab."""

import contextlib
import os
import pathlib
import time

from main_job.client import Client
from main_job.errors import JobError
from tutorial import comparison, page
from tutorial.leftovers import Leftovers, LeftoversError
from tutorial.shell import CommandError, Shell

from driver import environment, instruments
from driver.errors import LabError
from driver.settings import LAB_DIR

PAGE = LAB_DIR.parent / 'doc' / 'source' / 'user' / 'tutorial.rst'
#: The page's commands that wait do so for an event; this only ends what hangs.
LIMIT_SEC = 1500
# Wide tables are broken so that the lines fit into the page.
WIDTH = '94'


def add_arguments(parser) -> None:
    """Add this command's options."""
    parser.add_argument(
        '--record',
        action='store_true',
        help='write the output of each command into the page, in place of comparing it',
    )
    parser.add_argument(
        '--page', type=pathlib.Path, default=PAGE, help=f'another page (default: {PAGE.name})'
    )


def run(settings, args) -> int:
    """Run the commands of the page in order, as the lab's tenant; return the exit code.

    A command that fails ends the run; output that differs from the page fails it. What the commands
    have created is deleted in any case.
    """
    instruments.require_up(settings)
    text = page.read(args.page)
    steps = page.steps(text)
    variables = environment.credentials(settings, 'tenant')
    leftovers = _leftovers(Client(settings.root / 'venv', variables), steps)
    outputs: list[list[str]] = []
    try:
        leftovers.require_none()
        with _removing(leftovers):
            problems = _follow(steps, _environ(settings, variables), outputs)
    except (CommandError, JobError, LeftoversError) as error:
        raise LabError(f'the tutorial failed: {error}') from None
    finally:
        if args.record:
            args.page.write_text(page.record(text, outputs))
    if args.record:
        print(f'recorded the output of {len(outputs)} commands in {args.page}')
        return 0
    print('\n'.join(problems) or f'the page shows what its {len(steps)} commands do')
    return 1 if problems else 0


def _follow(steps, environ, outputs) -> list[str]:
    """Run the commands, and append the output of each; return what differs from the page."""
    problems = []
    with Shell(environ) as shell:
        for step in steps:
            started = time.monotonic()
            outputs.append(shell.run(step.command, LIMIT_SEC))
            print(
                f'{time.monotonic() - started:7.1f} s  {step.command.splitlines()[0]}', flush=True
            )
            found = comparison.differences(step.shown, outputs[-1])
            problems += [f'line {step.line}, $ {step.command}\n    {one}' for one in found]
    return problems


@contextlib.contextmanager
def _removing(leftovers):
    """Delete what the page has created, and fail if it did not do so by itself."""
    try:
        yield
        leftovers.wait_until_gone()
    except BaseException:
        leftovers.remove()
        raise


def _leftovers(client, steps) -> Leftovers:
    backups = page.created(steps, 'backup') + page.created(steps, 'backup policy')
    return Leftovers(client, tuple(page.created(steps, 'instance')), tuple(backups))


def _environ(settings, variables) -> dict[str, str]:
    """Return the environment of ``make lab-env``, with plain output of a known width."""
    kept = {name: os.environ[name] for name in ('HOME', 'PATH', 'TERM') if name in os.environ}
    clients = settings.root / 'venv' / 'bin'
    return (
        kept
        | variables
        | {
            'PATH': f'{clients}:{kept.get("PATH", os.defpath)}',
            'CLIFF_MAX_TERM_WIDTH': WIDTH,
            'LANG': 'C.UTF-8',
            'PYTHONWARNINGS': 'ignore',
            'TZ': 'UTC',
        }
    )
