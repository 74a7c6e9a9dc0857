# SPDX-License-Identifier: Apache-2.0
"""What a reader must know before believing the figures.

Each caveat names the condition, why it matters and where it holds. Those of level ``warning``
weaken the conclusions; those of level ``note`` only bound them.
"""

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from trove_ceph_bench import result_groups

#: The practice of the reference architectures, in seconds and repeats.
FULL_PHASE_SEC = 300
FULL_REPEATS = 5

_FIGURE = re.compile(r'\d+(\.\d+)?')


@dataclasses.dataclass(frozen=True)
class Caveat:
    """One caveat, and the cells that it holds for; none when it is about the whole."""

    level: str
    text: str
    members: Sequence[result_groups.Cell] = ()


def find(
    found: Sequence[result_groups.Cell],
    variants: Sequence[result_groups.Variant],
    baseline: str | None,
    label: result_groups.Label,
) -> list[dict[str, Any]]:
    """Return the caveats of a store as plain data, warnings first.

    ``where`` names the cells, and is empty when a caveat holds for all of them.
    """
    loads = [cell for cell in found if cell.is_load]
    operations = [cell for cell in found if not cell.is_load]
    caveats = [
        *_of_both(found, baseline),
        *_of_loads(loads, variants),
        *_of_operations(operations),
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
        yield Caveat('warning', 'Nothing was measured: this folder holds no outcome yet.')
        return
    yield from _where(
        'Interrupted: not measured to its end; seconds that were measured count only where no '
        'complete repeat exists.',
        [cell for cell in found if _any(cell, lambda run: run['complete'] is not True)],
    )
    yield from _where(
        'One repeat: no interval, so nothing can be said about significance.',
        [cell for cell in found if len(cell.counted) == 1],
    )
    yield from _where(
        'Repeats are missing: the variants of this comparison have different numbers of them, so '
        'they are not paired.',
        list(_unbalanced(found)),
    )
    yield from _where(
        'The target was changed between runs: only the later of the two is shown.',
        list(_hidden(found)),
    )
    if baseline is None:
        yield Caveat('note', 'One variant only: nothing to compare with.')


def _of_loads(
    loads: Sequence[result_groups.Cell], variants: Sequence[result_groups.Variant]
) -> Iterator[Caveat]:
    if loads and not any(variant.role == 'control' for variant in variants):
        yield Caveat(
            'warning',
            'No control: without a local disk in the same run, a limit of the host cannot be told '
            'from one of the storage.',
        )
    yield from _where(
        'No warm-up: the first seconds, with cold caches, are part of the figures.',
        [cell for cell in loads if _any(cell, lambda run: not run.get('warmup_sec'))],
    )
    yield from _where(
        'Client saturated: the load generator used nearly all of the processor it could have, so '
        'the server may be faster than shown.',
        [cell for cell in loads if _any(cell, lambda run: run.get('client_saturated') is True)],
    )
    yield from _where(
        'Statements failed during the measured phase.',
        [cell for cell in loads if any(cell.values('errors').values())],
    )
    yield from _where(
        'An event failed.',
        [cell for cell in loads if _any(cell, _has_failed_event)],
    )


def _of_operations(operations: Sequence[result_groups.Cell]) -> Iterator[Caveat]:
    yield from _where(
        'The operation failed in some repeats, which do not count.',
        [cell for cell in operations if _any(cell, lambda run: run.get('exit_code') != 0)],
    )


def _of_runs(found: Sequence[result_groups.Cell]) -> Iterator[Caveat]:
    """Yield what the runs themselves warn of and why they failed.

    Texts that differ only in their figures are told once, by the first of them.
    """
    alike: dict[str, list[str]] = {}
    places: dict[str, list[result_groups.Cell]] = {}
    for cell in found:
        for run in cell.runs.values():
            said = [*(run.run.get('warnings') or ()), run.run.get('reason')]
            # That a run was interrupted has a caveat of its own.
            for text in (each for each in said if each not in (None, 'interrupted')):
                kind = _FIGURE.sub('#', text)
                alike.setdefault(kind, []).append(text)
                members = places.setdefault(kind, [])
                if cell not in members:
                    members.append(cell)
    for kind, texts in alike.items():
        others = len(texts) - 1 if len(set(texts)) > 1 else 0
        more = f' (and {others} more with other figures)' if others else ''
        yield from _where(f'{texts[0]}{more}', places[kind])


def _notes(
    loads: Sequence[result_groups.Cell], found: Sequence[result_groups.Cell]
) -> Iterator[Caveat]:
    phases = sorted({(cell.config['warmup_sec'], cell.config['measure_sec']) for cell in loads})
    short = [phase for phase in phases if min(phase) < FULL_PHASE_SEC]
    if short:
        listed = ', '.join(f'{warmup} s + {measure} s' for warmup, measure in short)
        yield Caveat(
            'note',
            f'Short phases: {listed} of warm-up and measurement; the reference architectures take '
            f'{FULL_PHASE_SEC} s + {FULL_PHASE_SEC} s.',
        )
    counts = [len(cell.counted) for cell in found]
    if counts and 1 < min(counts) < FULL_REPEATS:
        yield Caveat(
            'note', f'{min(counts)} repeats; {FULL_REPEATS} or more give narrower intervals.'
        )
    if any(cell.estimate('gap_max_ms') is None for cell in found):
        yield Caveat('note', 'Some runs had no committer beside them: their stalls are not known.')


def _any(cell: result_groups.Cell, condition: Callable[[Mapping[str, Any]], bool]) -> bool:
    return any(condition(run.run) for run in cell.runs.values())


def _has_failed_event(run: Mapping[str, Any]) -> bool:
    return any(event.get('exit_code') != 0 for event in run.get('events') or ())


def _where(text: str, members: Sequence[result_groups.Cell]) -> Iterator[Caveat]:
    if members:
        yield Caveat('warning', text, members)


def _unbalanced(found: Sequence[result_groups.Cell]) -> Iterator[result_groups.Cell]:
    for group in result_groups.group(found):
        repeats = [frozenset(cell.counted) for cell in group.cells.values()]
        if len(set(repeats)) > 1:
            yield from group.cells.values()


def _hidden(found: Sequence[result_groups.Cell]) -> Iterator[result_groups.Cell]:
    shown = [cell for group in result_groups.group(found) for cell in group.cells.values()]
    return (cell for cell in found if not any(cell is other for other in shown))
