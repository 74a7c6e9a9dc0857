# SPDX-License-Identifier: Apache-2.0
"""The command line of ``trove-ceph-bench``."""

import argparse
import logging
import os
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from trove_ceph import exceptions
from trove_ceph_bench import (
    arguments,
    buffer_pool,
    check,
    compare,
    dataset,
    first_commit,
    guest_pool,
    loads,
    mysql_operations,
    operations,
    plan,
    plan_file,
    progress,
    replica_operations,
    report,
    results,
    storage_operations,
    targets,
    trove_operations,
    workloads,
)

OK = 0
FAILED = 1
USAGE = 2
THRESHOLD_MISSED = 3
INTERRUPTED = 130


def main(argv: Sequence[str]) -> int:
    """Run a command; return the exit status."""
    parsed = arguments.parse(argv)
    logging.basicConfig(
        level=logging.DEBUG if parsed.verbose else logging.WARNING,
        format='%(asctime)s %(name)s %(message)s' if parsed.verbose else _line('%(message)s'),
    )
    # These log every font file and request.
    for verbose in ('matplotlib', 'PIL', 'urllib3', 'keystoneauth', 'openstack', 'stevedore'):
        logging.getLogger(verbose).setLevel(logging.WARNING)
    try:
        return _COMMANDS[parsed.command](parsed)
    except (exceptions.InvalidPlanError, exceptions.ResultsFormatError) as error:
        return _print_error(error, USAGE)
    except (exceptions.TroveCephError, OSError) as error:
        return _print_error(error, FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED


def _line(text: object) -> str:
    return f'trove-ceph-bench: {text}'


def _print_error(error: object, status: int) -> int:
    print(_line(' '.join(str(error).split())), file=sys.stderr)
    return status


def _run(parsed: argparse.Namespace) -> int:
    scale = [] if parsed.scale is None else [f'scale={parsed.scale}']
    loaded = plan_file.load(parsed.plan, os.environ, [*parsed.set, *scale])
    if parsed.command == 'operations' and isinstance(loaded, plan.LoadPlan):
        raise exceptions.InvalidPlanError(
            f'{parsed.plan}: this is a plan of loads; use "trove-ceph-bench run"'
        )
    _check_variants(loaded, parsed.only_variant)
    if parsed.dry_run:
        print(_dry_run_text(loaded, parsed.only_variant))
        return OK
    directory = parsed.directory or Path('bench-results') / loaded.name
    store = results.Store(directory).create(loaded.text, loaded.environment)
    display = progress.Progress(sys.stderr)
    dependencies = (store, display, targets.Settings(), parsed.only_variant)
    if isinstance(loaded, plan.LoadPlan):
        outcome = loads.LoadRunner(loaded, *dependencies).run()
    else:
        outcome = operations.OperationsRunner(loaded, *dependencies).run()
    display.print_line(f'{outcome.measured} runs measured, {outcome.present} measured before')
    for failure in outcome.failures:
        _print_error(failure, FAILED)
    if outcome.report:
        print(f'report: {outcome.report}')
    if outcome.interrupted or outcome.failures:
        print(_line(f'not complete; the same command resumes in {directory}'), file=sys.stderr)
    return INTERRUPTED if outcome.interrupted else FAILED if outcome.failures else OK


def _check_variants(loaded: plan.LoadPlan | plan.OperationsPlan, only: Sequence[str]) -> None:
    if isinstance(loaded, plan.LoadPlan):
        known = [variant.name for variant in loaded.variants]
    else:
        known = [contender.name for contender in loaded.contenders]
    for name in only:
        if name not in known:
            raise exceptions.InvalidPlanError(
                f'--only-variant {name}: plan {loaded.name} has the variants {", ".join(known)}'
            )


def _dry_run_text(loaded: plan.LoadPlan | plan.OperationsPlan, only: Sequence[str]) -> str:
    """Return the runs of a plan and the estimated time."""
    rows: dict[str, list[str]] = {}
    warnings: list[str] = []
    if isinstance(loaded, plan.OperationsPlan):
        for attempt in loaded.attempts(only):
            contenders = rows.setdefault(
                f'{attempt.contender.operation}, {attempt.size_mib} MiB', []
            )
            contenders.append(attempt.contender.name)
        count = sum(map(len, rows.values()))
        end = f'{count} operations; the time is estimated once the first are done'
    else:
        for cell in loaded.cells(only):
            instances = f', {cell.instances} instances' if cell.instances > 1 else ''
            variants = rows.setdefault(
                f'{cell.workload.name}, {cell.dataset}, {cell.threads} threads{instances}', []
            )
            variants.append(cell.variant.name)
        count = sum(map(len, rows.values()))
        seconds = count * loads.run_sec(loaded) + _fill_sec(loaded, only)
        unknown = '' if _is_fill_known(loaded) else ', plus the time to fill the tables'
        end = f'{count} runs, about {progress.duration_text(seconds)}{unknown}'
        warnings = [f'warning: {each}' for each in buffer_pool.warnings(loaded, only)]
    lines = [f'{loaded.name}: {loaded.description}', '']
    for conditions, names in rows.items():
        unique = list(dict.fromkeys(names))
        lines.append(f'  {conditions}: {" ".join(unique)}, {len(names) // len(unique)} times')
    return '\n'.join([*lines, '', end, *warnings])


def _is_fill_known(loaded: plan.LoadPlan) -> bool:
    return loaded.buffer_pool_mib is not None or not any(map(dataset.is_relative, loaded.datasets))


def _fill_sec(loaded: plan.LoadPlan, only: Sequence[str]) -> float:
    if not _is_fill_known(loaded):
        return 0.0
    size_bytes = (loaded.buffer_pool_mib or 0) * 1024 * 1024
    variants = len(only) or len(loaded.variants)
    return (
        sum(
            loads.fill_sec(
                dataset.for_name(name, size_bytes, loaded.tables, loaded.scale),
                max(loaded.instances),
            )
            for name in loaded.datasets
        )
        * variants
    )


def _report(parsed: argparse.Namespace) -> int:
    store = results.Store(parsed.results).open()
    baseline = results.Store(parsed.baseline).open() if parsed.baseline else None
    print(f'report: {report.write(store, baseline)}')
    return _check_thresholds(store, parsed.check) if parsed.check else OK


def _check(parsed: argparse.Namespace) -> int:
    return _check_thresholds(results.Store(parsed.results).open(), parsed.thresholds)


def _check_thresholds(store: results.Store, thresholds: Path) -> int:
    failures = check.check(store, check.load(thresholds))
    for failure in failures:
        _print_error(failure, THRESHOLD_MISSED)
    return THRESHOLD_MISSED if failures else OK


def _compare(parsed: argparse.Namespace) -> int:
    store, baseline = (results.Store(path) for path in (parsed.results, parsed.baseline))
    found = compare.compare(store, baseline)
    print(compare.as_json(found) if parsed.format == 'json' else compare.as_table(found), end='')
    return OK


def _trove(parsed: argparse.Namespace) -> int:
    trove_operations.main(parsed)
    return OK


def _first_commit(parsed: argparse.Namespace) -> int:
    first_commit.main(parsed)
    return OK


def _guests(parsed: argparse.Namespace) -> int:
    guest_pool.main(parsed)
    return OK


def _replicas(parsed: argparse.Namespace) -> int:
    replica_operations.main(parsed)
    return OK


def _storage(parsed: argparse.Namespace) -> int:
    storage_operations.main(parsed)
    return OK


def _mysql(parsed: argparse.Namespace) -> int:
    mysql_operations.main(parsed)
    return OK


def _plans(parsed: argparse.Namespace) -> int:
    for name, description in plan_file.shipped().items():
        print(textwrap.fill(f'{name:16} {description}', 100, subsequent_indent=' ' * 17))
    return OK


def _workloads(parsed: argparse.Namespace) -> int:
    for workload in workloads.WORKLOADS:
        print(f'{workload.name:12} {workload.description}')
    return OK


_COMMANDS = {
    'run': _run,
    'operations': _run,
    'report': _report,
    'compare': _compare,
    'check': _check,
    'trove': _trove,
    'first-commit': _first_commit,
    'guests': _guests,
    'replicas': _replicas,
    'storage': _storage,
    'mysql': _mysql,
    'plans': _plans,
    'workloads': _workloads,
}
