# SPDX-License-Identifier: Apache-2.0
"""The arguments of ``trove-ceph-bench`` and its help."""

import argparse
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trove_ceph_bench import (
    first_commit,
    guest_pool,
    mysql_operations,
    replica_operations,
    storage_operations,
    trove_operations,
)

_EXIT_CODES = """\
exit status:
  0    every run was measured and every threshold met
  1    a run failed; finished runs are stored, and the same command resumes
  2    the command line, the plan or the results folder is invalid; nothing was done
  3    a threshold was missed
  130  interrupted by Ctrl-C; finished runs are stored, and the same command resumes
"""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse a command line; ``command`` names the command.

    :raises SystemExit: help was requested, or the arguments are invalid
    """
    return make_parser().parse_args(arguments)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line, with a parser for each command."""
    parser = argparse.ArgumentParser(
        prog='trove-ceph-bench',
        description=textwrap.fill(
            'Measure MySQL servers under sysbench, and operations such as backup, against '
            'alternatives; report with plots and confidence intervals.',
            80,
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=textwrap.dedent("""\
            examples:
              trove-ceph-bench plans
              trove-ceph-bench run quick
              trove-ceph-bench run tuning.yaml -d results/tuning --dry-run
              trove-ceph-bench report results/tuning --baseline results/last-release
              trove-ceph-bench compare results/after results/before

            """)
        + _EXIT_CODES,
    )
    parser.add_argument('-v', '--verbose', action='store_true', help='log each action')
    commands = parser.add_subparsers(dest='command', required=True, metavar='COMMAND')
    _add_run(commands)
    _add_operations(commands)
    _add_report(commands)
    _add_compare(commands)
    _add_check(commands)
    _add_trove(commands)
    _add_first_commit(commands)
    _add_guests(commands)
    _add_replicas(commands)
    _add_storage(commands)
    _add_mysql(commands)
    _add_command(commands, 'plans', 'list the plans that the package ships')
    _add_command(commands, 'workloads', 'list the workloads that plans can name')
    return parser


def _add_command(
    commands: Any, name: str, help_text: str, more: str = ''
) -> argparse.ArgumentParser:
    return commands.add_parser(
        name,
        help=help_text,
        description=f'{help_text[0].upper()}{help_text[1:]}.',
        epilog=textwrap.dedent(more) + _EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _add_run(commands: Any) -> None:
    parser = _add_command(
        commands,
        'run',
        'run a plan of loads or operations; skip runs that are already measured',
        """\
        A plan in a file:

          name: flush
          description: What a flush for each commit costs on this disk
          variants:                    # measured in turn: A B C A B C ...
            - name: durable
              role: subject            # subject, baseline or control
              target:
                server:                # or  instance: NAME  or  dsn: mysql://user@host
                  mysqld: {rootfs: auto}
                  on: {local: /var/tmp}
            - name: lazy
              role: baseline
              target:
                server:
                  mysqld: {rootfs: auto}
                  on: {local: /var/tmp}
                  options: {innodb_flush_log_at_trx_commit: 2}
          workloads: [write, mixed-70-30]
          datasets: [cached, "1:4"]    # buffer pool of the first variant : data
          threads: [4, 16]
          repeats: 5
          warmup_sec: 30
          measure_sec: 60

        examples:
          trove-ceph-bench run flush.yaml --dry-run
          trove-ceph-bench run flush.yaml -d results/flush
          trove-ceph-bench run flush.yaml --set repeats=2 --set 'threads=[8]'
          trove-ceph-bench run intel --scale 0.001
          BENCH_INSTANCE=shop trove-ceph-bench run quick

        Ctrl-C stops the current run, stores the seconds measured so far, writes the report and
        cleans up the servers. The same command then measures the missing runs.

        """,
    )
    _add_plan_arguments(parser)


def _add_operations(commands: Any) -> None:
    parser = _add_command(
        commands,
        'operations',
        'run a plan of operations: time commands against alternatives',
        """\
        A plan in a file:

          name: dumps
          operations:
            sizes_mib: [64, 256]
            contenders:
              - name: dump
                role: baseline
                operation: backup      # contenders of one operation share its name
                target: {instance: first-database}
                run: mysqldump -h $BENCH_HOST -u $BENCH_USER $BENCH_DATABASE > /var/tmp/dump.sql
                cost: {space_bytes: stat -c %s /var/tmp/dump.sql}
                cleanup: rm -f /var/tmp/dump.sql

        Each line "phase NAME" that the command prints ends a phase of the result.

        example:
          trove-ceph-bench operations dumps.yaml -d results/dumps

        """,
    )
    _add_plan_arguments(parser)


def _add_plan_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument('plan', help='a YAML file, or the name of a plan that "plans" lists')
    parser.add_argument(
        '-d',
        '--directory',
        type=Path,
        metavar='DIR',
        help='folder of the results (default: bench-results/NAME)',
    )
    parser.add_argument(
        '--set',
        action='append',
        default=[],
        metavar='KEY=VALUE',
        help='replace a value of the plan, such as repeats=2 (repeatable)',
    )
    parser.add_argument(
        '--scale',
        metavar='SHARE',
        help='reduce fixed sizes of data and buffer pools to this share, such as 0.001, for a '
        'small machine; short for --set scale=SHARE',
    )
    parser.add_argument(
        '--only-variant',
        action='append',
        default=[],
        metavar='NAME',
        help='measure this variant only (repeatable)',
    )
    parser.add_argument(
        '--dry-run', action='store_true', help='show the runs of the plan and the estimated time'
    )


def _add_report(commands: Any) -> None:
    parser = _add_command(
        commands,
        'report',
        'write the report of a results folder',
        """\
        example:
          trove-ceph-bench report results/tuning --baseline results/last-release

        """,
    )
    parser.add_argument('results', type=Path, help='a results folder')
    parser.add_argument(
        '--baseline', type=Path, metavar='DIR', help='another results folder to compare with'
    )
    parser.add_argument(
        '--check', type=Path, metavar='FILE', help='thresholds, as for the command check'
    )


def _add_compare(commands: Any) -> None:
    parser = _add_command(
        commands,
        'compare',
        'compare two results folders; print ratios with their intervals',
        """\
        example:
          trove-ceph-bench compare results/after results/before --format json

        """,
    )
    parser.add_argument('results', type=Path, help='a results folder')
    parser.add_argument('baseline', type=Path, help='the results folder to compare it with')
    parser.add_argument('--format', choices=('table', 'json'), default='table')


def _add_check(commands: Any) -> None:
    parser = _add_command(
        commands,
        'check',
        'check a results folder against thresholds',
        """\
        example:
          trove-ceph-bench check results/tuning thresholds.yaml

        """,
    )
    parser.add_argument('results', type=Path, help='a results folder')
    parser.add_argument('thresholds', type=Path, help='a YAML file with thresholds')


def _add_trove(commands: Any) -> None:
    parser = _add_command(
        commands,
        'trove',
        "run one of Trove's long operations and wait until it ends; plans of operations use it",
        """\
        It uses the identity in OS_* or clouds.yaml, and prints "phase NAME" after each phase.

        example:
          trove-ceph-bench trove backup first-database before-upgrade

        """,
    )
    trove_operations.add_arguments(parser)


def _add_first_commit(commands: Any) -> None:
    parser = _add_command(
        commands,
        'first-commit',
        "run an operation on an instance until a client's first commit; plans of operations use it",
        """\
        The client is that of BENCH_USER, BENCH_PASSWORD and BENCH_DATABASE. It prints "begin" just
        before the operation is requested, so its own start does not count, and "phase NAME" after
        each phase. BENCH_KILL_SERVER is a command that kills the virtual machine of an instance.

        example commands of a plan:
          run: trove-ceph-bench first-commit create bench-new --like first-database
          run: trove-ceph-bench first-commit fail-over bench-victim

        """,
    )
    first_commit.add_arguments(parser)


def _add_guests(commands: Any) -> None:
    parser = _add_command(
        commands,
        'guests',
        'wait for warm guests, or check whether an instance got one; plans of operations use it',
        """\
        BENCH_GUESTS is a command that prints the warm guests in JSON, by default
        "trove-ceph-manage guests list -f json".

        example commands of a plan:
          prepare: trove-ceph-bench guests await
          check: trove-ceph-bench guests check bench-new warm

        """,
    )
    guest_pool.add_arguments(parser)


def _add_replicas(commands: Any) -> None:
    parser = _add_command(
        commands,
        'replicas',
        'run an operation on replicas until clients notice its end; plans of operations use it',
        """\
        The client is that of BENCH_USER, BENCH_PASSWORD and BENCH_DATABASE. It prints "begin" just
        before the operation, so its own start does not count, and "phase NAME" after each phase.
        "read" reads the tables that the plan filled in the source.

        example commands of a plan:
          run: trove-ceph-bench replicas create first-database bench-replica --count 2
          run: trove-ceph-bench replicas reprovision bench-replica

        """,
    )
    replica_operations.add_arguments(parser)


def _add_storage(commands: Any) -> None:
    parser = _add_command(
        commands,
        'storage',
        'run a storage operation or prepare images for one; plans of operations use it',
        """\
        It connects to Ceph directly, by default as client.admin, and changes only images whose
        names begin with "bench-".

        example:
          trove-ceph-bench storage make volumes-nvme/bench-a --size-mib 1024 --data-mib 1024
          trove-ceph-bench storage copy volumes-nvme/bench-a@s vault/bench-b
          trove-ceph-bench storage remove volumes-nvme/bench-a vault/bench-b

        """,
    )
    storage_operations.add_arguments(parser)


def _add_mysql(commands: Any) -> None:
    parser = _add_command(
        commands,
        'mysql',
        "copy a server by MySQL's own tools, or check that no lock is left on it",
        """\
        It reads the server that BENCH_HOST, BENCH_PORT, BENCH_USER, BENCH_PASSWORD and
        BENCH_DATABASE name, as in the commands of a plan of operations, and restores to a mysqld in
        a directory of this host. That needs root, and a MySQL root file system in the cache.

        example commands of a plan:
          prepare: trove-ceph-bench mysql initialise /var/tmp/restored
          run: trove-ceph-bench mysql load /var/tmp/dump.sql /var/tmp/restored

        """,
    )
    mysql_operations.add_arguments(parser)
