# SPDX-License-Identifier: Apache-2.0
"""Find the caveats of a report.

Each caveat names a condition, why it matters and where it applies. Caveats of level ``warning``
weaken the conclusions; those of level ``note`` only limit them.
"""

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from trove_ceph_bench import buffer_pool, model, result_groups

#: Duration of a phase and number of repeats in the reference architectures.
FULL_PHASE_SEC = 300
FULL_REPEATS = 5

_FIGURE = re.compile(r'\d+(\.\d+)?')


@dataclasses.dataclass(frozen=True)
class Caveat:
    """One caveat and the cells that it applies to; no cells if it applies to the whole report."""

    level: str
    text: str
    members: Sequence[result_groups.Cell] = ()


def find(
    found: Sequence[result_groups.Cell],
    variants: Sequence[result_groups.Variant],
    baseline: str | None,
    label: result_groups.Label,
) -> list[dict[str, Any]]:
    """Return the caveats of a store as JSON data, warnings first.

    ``where`` names the cells, and is empty if a caveat applies to all of them.
    """
    loads = [cell for cell in found if cell.is_load]
    operations = [cell for cell in found if not cell.is_load]
    caveats = [
        *_of_both(found, baseline),
        *_of_loads(loads, variants),
        *_of_operations(operations),
        *_of_attempts(found),
        *_of_runs(found),
        *_notes(loads, found),
    ]
    caveats.sort(key=lambda caveat: caveat.level != 'warning')
    return [
        {
            'level': caveat.level,
            'text': caveat.text,
            'where': []
            if len(caveat.members) == len(found)
            else [f'{label(cell.config)} · {cell.variant}' for cell in caveat.members],
        }
        for caveat in caveats
    ]


def _of_both(found: Sequence[result_groups.Cell], baseline: str | None) -> Iterator[Caveat]:
    if not found:
        yield Caveat('warning', 'No measurements: this folder holds no results yet.')
        return
    yield from _warning(
        'Interrupted or failed: the run is not complete; its measured seconds count only if there '
        'is no complete repeat.',
        [cell for cell in found if _any(cell, lambda run: run['complete'] is not True)],
    )
    yield from _warning(
        'One repeat: there is no interval, so the significance is unknown.',
        [cell for cell in found if len(cell.counted) == 1],
    )
    yield from _warning(
        'Repeats are missing: the variants of this comparison have different repeats, so they are '
        'not paired.',
        list(_unbalanced(found)),
    )
    yield from _warning(
        'Not measured in turn: the runs of a repeat are of different runs of the command, so they '
        'are not paired, and a change of the host in between counts as one of the variant.',
        list(_apart(found)),
    )
    yield from _warning(
        'The target was changed between runs: the report shows only the later one.',
        list(_hidden(found)),
    )
    if baseline is None:
        yield Caveat('note', 'One variant only: there is no comparison.')


def _of_loads(
    loads: Sequence[result_groups.Cell], variants: Sequence[result_groups.Variant]
) -> Iterator[Caveat]:
    if loads and not any(variant.role == 'control' for variant in variants):
        yield Caveat(
            'warning',
            'No control: without a local disk in the same run, a limit of the host cannot be '
            'distinguished from a limit of the storage.',
        )
    yield from _warning(
        'No warm-up: the figures include the first seconds with cold caches.',
        [cell for cell in loads if _any(cell, lambda run: not run.get('warmup_sec'))],
    )
    yield from _warning(
        'Data in memory: the data fit the buffer pool of a server, so reads did not reach the '
        'storage, and figures of reads are those of the server.',
        [cell for cell in loads if _is_in_memory(cell) and not _is_cached(cell)],
    )
    yield from _warning(
        'Client saturated: the load generator used nearly all CPU time available to it, so the '
        'server may be faster than shown.',
        [cell for cell in loads if _any(cell, lambda run: run.get('client_saturated') is True)],
    )
    yield from _warning(
        'Statements failed during the measured phase.',
        [cell for cell in loads if any(cell.values('errors').values())],
    )
    yield from _warning(
        'An event failed.',
        [cell for cell in loads if _any(cell, _has_failed_event)],
    )


def _of_operations(operations: Sequence[result_groups.Cell]) -> Iterator[Caveat]:
    yield from _warning(
        'The operation failed in some repeats; they do not count.',
        [cell for cell in operations if _any(cell, lambda run: run.get('exit_code') != 0)],
    )


def _of_attempts(found: Sequence[result_groups.Cell]) -> Iterator[Caveat]:
    members = [cell for cell in found if cell.failed_attempts]
    attempts = sum(len(cell.failed_attempts) for cell in members)
    yield from _warning(
        f'Repeated after failures: {attempts} attempt{"s" if attempts != 1 else ""} failed and '
        f'do not count; the figures are those of later attempts.',
        members,
    )


def _of_runs(found: Sequence[result_groups.Cell]) -> Iterator[Caveat]:
    """Yield the warnings and failure reasons of the runs themselves.

    Texts that differ only in their figures give one caveat with the first of them.
    """
    similar: dict[str, list[str]] = {}
    cells: dict[str, list[result_groups.Cell]] = {}
    for cell in found:
        for run in cell.runs.values():
            messages = [*(run.run.get('warnings') or ()), run.run.get('reason')]
            # An interrupted run has its own caveat.
            for text in (each for each in messages if each not in (None, model.INTERRUPTED)):
                kind = _FIGURE.sub('#', text)
                similar.setdefault(kind, []).append(text)
                members = cells.setdefault(kind, [])
                if cell not in members:
                    members.append(cell)
    for kind, texts in similar.items():
        others = len(texts) - 1 if len(set(texts)) > 1 else 0
        more = f' (and {others} more with other figures)' if others else ''
        yield from _warning(f'{texts[0]}{more}', cells[kind])


def _notes(
    loads: Sequence[result_groups.Cell], found: Sequence[result_groups.Cell]
) -> Iterator[Caveat]:
    phases = sorted({(cell.config['warmup_sec'], cell.config['measure_sec']) for cell in loads})
    short = [phase for phase in phases if min(phase) < FULL_PHASE_SEC]
    if short:
        listed = ', '.join(f'{warmup} s + {measure} s' for warmup, measure in short)
        yield Caveat(
            'note',
            f'Short phases: {listed} of warm-up and measurement; the reference architectures use '
            f'{FULL_PHASE_SEC} s + {FULL_PHASE_SEC} s.',
        )
    scales = sorted({cell.config['dataset'].get('scale', 1) for cell in loads} - {1})
    if scales:
        yield Caveat(
            'note',
            f'Reduced data: {", ".join(f"{scale:g}" for scale in scales)} of the rows of the '
            f'published load, and as much memory where the plan sets it; published absolute '
            f'figures are of the full size.',
        )
    cached = [cell for cell in loads if _is_in_memory(cell) and _is_cached(cell)]
    if cached:
        yield Caveat(
            'note',
            'Cached data: the plan takes data that fit the buffer pool; the storage served commits '
            'and flushed pages only.',
            cached,
        )
    noted = dict.fromkeys(text for cell in loads for text in _cluster_notes(cell))
    for text in noted:
        members = [cell for cell in loads if text in _cluster_notes(cell)]
        yield Caveat('note', f'The cluster is changed for tests: {text}.', members)
    counts = [len(cell.counted) for cell in found]
    if counts and 1 < min(counts) < FULL_REPEATS:
        yield Caveat(
            'note', f'{min(counts)} repeats; {FULL_REPEATS} or more give narrower intervals.'
        )
    if any(cell.estimate('gap_max_ms') is None for cell in found):
        yield Caveat('note', 'Some runs had no committer: their stalls are unknown.')


def _cluster_notes(cell: result_groups.Cell) -> list[str]:
    """Return the operator's notes on the clusters of a cell."""
    found: dict[str, None] = {}
    for target in _targets(cell):
        found |= dict.fromkeys((target.get('ceph') or {}).get('notes') or ())
    return list(found)


def _targets(cell: result_groups.Cell) -> Iterator[Mapping[str, Any]]:
    """Yield what the servers of all runs of a cell disclosed."""
    for run in cell.runs.values():
        targets = run.disclosure.get('targets') or {'': run.disclosure.get('target') or {}}
        yield from targets.values()


def _is_in_memory(cell: result_groups.Cell) -> bool:
    facts = cell.config['dataset']
    data = model.Dataset(facts['name'], facts['tables'], facts['rows'])
    pools = (buffer_pool.disclosed_bytes(each) for each in _targets(cell))
    return any(buffer_pool.fits(data, each) for each in pools)


def _is_cached(cell: result_groups.Cell) -> bool:
    return cell.config['dataset']['name'] == 'cached'


def _any(cell: result_groups.Cell, condition: Callable[[Mapping[str, Any]], bool]) -> bool:
    return any(condition(run.run) for run in cell.runs.values())


def _has_failed_event(run: Mapping[str, Any]) -> bool:
    return any(event.get('exit_code') != 0 for event in run.get('events') or ())


def _warning(text: str, members: Sequence[result_groups.Cell]) -> Iterator[Caveat]:
    if members:
        yield Caveat('warning', text, members)


def _unbalanced(found: Sequence[result_groups.Cell]) -> Iterator[result_groups.Cell]:
    for group in result_groups.group(found):
        repeats = [frozenset(cell.counted) for cell in group.cells.values()]
        if len(set(repeats)) > 1:
            yield from group.cells.values()


def _apart(found: Sequence[result_groups.Cell]) -> Iterator[result_groups.Cell]:
    for group in result_groups.group(found):
        pairs = itertools.combinations(group.cells.values(), 2)
        if not all(result_groups.are_in_turn(one, other) for one, other in pairs):
            yield from group.cells.values()


def _hidden(found: Sequence[result_groups.Cell]) -> Iterator[result_groups.Cell]:
    shown = [cell for group in result_groups.group(found) for cell in group.cells.values()]
    return (cell for cell in found if not any(cell is other for other in shown))
