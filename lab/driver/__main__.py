# SPDX-License-Identifier: Apache-2.0
"""Command line of the lab driver."""

import argparse
import sys

from driver import (
    backups,
    bench,
    doctor,
    environment,
    fault_injection,
    hci,
    kill_server,
    monitoring,
    scenario,
    second_compute,
    settings,
    status,
    stock_version,
    stop,
    tutorial,
    up,
)
from driver.errors import LabError

_EPILOG = """\
Settings are in lab/lab.toml. Override them in lab/local.toml, or for one run in
the environment: TROVE_CEPH_LAB_ROOT=/srv/lab make lab

Every command can be repeated and interrupted: the next run continues.
"""


def main(argv=None) -> int:
    args = _parser().parse_args(argv)
    try:
        return args.run(settings.load(), args)
    except LabError as e:
        print(f'lab: {e}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print('\nlab: interrupted; run it again to continue', file=sys.stderr)
        return 130


def _parser():
    parser = argparse.ArgumentParser(
        prog='lab',
        description='A whole OpenStack and Ceph cloud on this '
        'machine, with a MySQL database in it.',
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest='command', required=True)

    def add(name, run, text):
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(run=run)
        return command

    add('check', up.check, 'check whether this machine can run the lab')
    command = add('up', up.up, 'install missing packages, start the cloud, create the database')
    command.add_argument(
        '--cloud-only', action='store_true', help='stop before the database is created'
    )
    command = add(
        'status', status.show, 'show every process, Ceph, the endpoints and the databases'
    )
    command.add_argument('--format', choices=('table', 'json'), default='table')
    command = add('env', environment.show, 'print shell exports: eval "$(make -s lab-env)"')
    command.add_argument(
        '--as',
        dest='identity',
        default='tenant',
        choices=('tenant', 'admin'),
        help='whose credentials (default: tenant)',
    )
    scenario.add_arguments(add('scenario', scenario.run, 'run the scenarios on a running lab'))
    bench.add_arguments(add('bench', bench.run, 'run a benchmark on a running lab'))
    fault_injection.add_arguments(
        add(
            'fault-injection',
            fault_injection.run,
            'kill services of a running lab at random instants of backups and restores',
        )
    )
    kill_server.add_arguments(
        add('kill-server', kill_server.run, 'kill the virtual machine of an instance, by SIGKILL')
    )
    tutorial.add_arguments(
        add(
            'tutorial',
            tutorial.run,
            "run the commands of the tenant's tutorial on a running lab, and compare their output",
        )
    )
    backups.add_arguments(
        add('backups', backups.run, 'choose how backups are taken, until the next "lab up"')
    )
    add(
        'stock-version',
        stock_version.run,
        'offer MySQL with the guest image and the agent of stock Trove, for benchmarks',
    )
    hci.add_arguments(
        add('hci', hci.run, 'divide the CPUs between running OSDs and guests, or lift the division')
    )
    monitoring.add_arguments(
        add('monitoring', monitoring.run, 'have Prometheus scrape the lab, and check what it sees')
    )
    doctor.add_arguments(
        add('doctor', doctor.run, 'examine a running lab with trove-ceph-manage doctor')
    )
    second_compute.add_arguments(
        add(settings.SECOND_HOST, second_compute.run, 'fail and recover the second compute host')
    )
    add('down', stop.down, 'stop everything, keep all data')
    command = add(
        'clean',
        stop.clean,
        'stop everything and remove loop devices, bridges, mounts and data',
    )
    command.add_argument('--cache', action='store_true', help='also remove the built images')
    command.add_argument(
        '--results', action='store_true', help='also remove the results of benchmarks'
    )
    return parser


if __name__ == '__main__':
    sys.exit(main())
