# SPDX-License-Identifier: Apache-2.0
"""Choose the task manager for backups, and its quiesce level, until the next ``make lab``."""

import dataclasses
import time

from driver import instruments, up
from driver.errors import LabError
from driver.settings import CHOICES, STOCK

PLAYBOOK = 'backups.yml'


def add_arguments(parser) -> None:
    """Add this command's options."""
    parser.add_argument(
        'choice',
        choices=(STOCK, *CHOICES['quiesce']),
        help=f"{STOCK}: Trove's own task manager; else this project's, with this quiesce level",
    )


def run(settings, args) -> int:
    """Restart the task manager with the chosen configuration, unless it has it already."""
    started = time.monotonic()
    instruments.require_up(settings)
    if args.choice == STOCK:
        chosen = {'backups': STOCK}
    elif (settings.root / 'state' / 'marks' / 'schema-trove-ceph').exists():
        chosen = {'backups': 'trove_ceph', 'quiesce': args.choice}
    else:
        raise LabError(
            "the lab was created without this project's backups: "
            'set backups = "trove_ceph", and run make lab'
        )
    changed = dataclasses.replace(settings, values=settings.values | chosen)
    with up.exclusive():
        return up.run_playbook(changed, started, PLAYBOOK)
