# SPDX-License-Identifier: Apache-2.0
"""Run a plan of trove-ceph-bench on a running lab."""

import datetime
import json
import os

from driver import environment, instruments, up
from driver.settings import LAB_DIR

QUICK = 'quick'


def add_arguments(parser) -> None:
    """Add this command's options."""
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
        help='an administrator can also measure the processor time of guests, a tenant can create '
        'more instances (default: admin)',
    )
    parser.add_argument('--results', help='folder for the results; an existing run is resumed')
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
        help='measure only this variant or contender; may be repeated',
    )
    parser.add_argument(
        '--dry-run', action='store_true', help='show the measurements and their duration'
    )


def run(settings, args) -> int:
    """Install the instruments, run the plan and leave a report."""
    programs = instruments.install(settings)
    # The benchmark runs in another directory: it needs absolute paths.
    plan = os.path.abspath(args.plan) if os.path.exists(args.plan) else args.plan
    results = os.path.abspath(args.results or _new_folder(settings, plan))
    variables = environment.credentials(settings, args.identity) | environment.of_manage(settings)
    variables |= {
        # The cloud's own environment has the commands of tenants and administrators.
        'PATH': f'{programs}:{settings.root}/venv/bin:{os.environ["PATH"]}',
        'BENCH_CEPH_CONF': str(settings.root / 'etc' / 'ceph' / 'ceph.conf'),
        'BENCH_BACKUPS': f'{LAB_DIR}/bin/lab backups',
        'BENCH_HCI': f'{LAB_DIR}/bin/lab hci',
        'BENCH_KILL_SERVER': f'{LAB_DIR}/bin/lab kill-server',
        'TROVE_CEPH_CACHE': str(settings.cache),
        **_first_database(settings, args.identity),
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


def _first_database(settings, identity: str) -> dict[str, str]:
    """Return the default instance for plans and the image of its data.

    A tenant knows the instance by its name as well, which is the same after ``make lab-clean``, so
    that a run can be resumed in another lab.
    """
    key = 'name' if identity == 'tenant' else 'id'
    try:
        report = json.loads((settings.root / 'report.json').read_text())
        instance, place = report['instance'][key], report['placement']
        image = f'{place["pool"]}/{place["image"]}'
    except (FileNotFoundError, KeyError):
        # Plans with their own servers do not need an instance.
        return {}
    return {'BENCH_INSTANCE': instance, 'BENCH_INSTANCE_IMAGE': image}


def _new_folder(settings, plan):
    now = datetime.datetime.now(datetime.UTC)
    name = plan.rpartition('/')[2].removesuffix('.yaml')
    return settings.results / f'{name}-{now:%Y%m%d-%H%M%S}'
