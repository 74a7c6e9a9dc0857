# SPDX-License-Identifier: Apache-2.0
"""Run a plan of trove-ceph-bench on the lab that is up."""

import datetime
import json
import os

from driver import environment, instruments, up
from driver.settings import LAB_DIR

QUICK = 'quick'


def add_arguments(parser) -> None:
    """Describe this command's options."""
    parser.add_argument(
        'plan',
        nargs='?',
        default=QUICK,
        help=f'a plan of trove-ceph-bench or a file (default: {QUICK}, about five minutes)',
    )
    parser.add_argument(
        '--as',
        dest='identity',
        default='admin',
        choices=('tenant', 'admin'),
        help='an administrator sees the processor time of guests too, a tenant makes instances '
        'beside the first (default: admin)',
    )
    parser.add_argument('--results', help='folder of the results; one of an earlier run is resumed')
    parser.add_argument(
        '--set',
        action='append',
        default=[],
        metavar='KEY=VALUE',
        help='replace a value of the plan, such as operations.repeats=5 or '
        "'operations.sizes_mib=[64, 256]'; may be repeated",
    )
    parser.add_argument(
        '--only-variant',
        action='append',
        default=[],
        metavar='NAME',
        help='measure this variant or contender only; may be repeated',
    )
    parser.add_argument(
        '--dry-run', action='store_true', help='show what would be measured, and how long it takes'
    )


def run(settings, args) -> int:
    """Install the instruments, run the plan and leave a report."""
    programs = instruments.install(settings)
    # The instrument runs elsewhere: files are named from the root.
    plan = os.path.abspath(args.plan) if os.path.exists(args.plan) else args.plan
    results = os.path.abspath(args.results or _new_folder(settings, plan))
    variables = environment.credentials(settings, args.identity) | {
        'PATH': f'{programs}:{os.environ["PATH"]}',
        'BENCH_CEPH_CONF': str(settings.root / 'etc' / 'ceph' / 'ceph.conf'),
        'BENCH_BACKUPS': f'{LAB_DIR}/bin/lab backups',
        'TROVE_CEPH_CACHE': str(settings.cache),
        **_first_database(settings),
    }
    command = [
        str(programs / 'trove-ceph-bench'),
        'run',
        plan,
        '-d',
        results,
        *(f'--set={each}' for each in args.set),
        *(f'--only-variant={each}' for each in args.only_variant),
        *(['--dry-run'] if args.dry_run else []),
    ]
    return up.call(command, os.environ | variables)


def _first_database(settings) -> dict[str, str]:
    """Return which instance plans are about unless told otherwise, and where its data lies."""
    try:
        report = json.loads((settings.root / 'report.json').read_text())
        instance, place = report['instance']['id'], report['placement']
        image = f'{place["pool"]}/{place["image"]}'
    except (FileNotFoundError, KeyError):
        # Plans that make servers of their own do without it.
        return {}
    return {'BENCH_INSTANCE': instance, 'BENCH_INSTANCE_IMAGE': image}


def _new_folder(settings, plan):
    now = datetime.datetime.now(datetime.UTC)
    name = plan.rpartition('/')[2].removesuffix('.yaml')
    return settings.root / 'bench' / f'{name}-{now:%Y%m%d-%H%M%S}'
