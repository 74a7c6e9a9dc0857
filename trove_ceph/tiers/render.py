# SPDX-License-Identifier: Apache-2.0
"""A plan as text: additions, changes, notes and problems."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from trove_ceph.tiers import resources
from trove_ceph.tiers.changes import Change, Kind, Plan, Risk, difference

#: Why a change that would pause I/O is not made yet.
UNTIL = f'waits until the copies exist; to apply it now, add {Risk.PAUSES_IO.flag}'
_GREEN, _YELLOW, _RED, _BOLD = '32', '33', '31', '1'


def plan_text(plan: Plan, colour: bool) -> str:
    """Return a plan as a diff, system by system."""

    def paint(code: str, text: str) -> str:
        return f'\x1b[{code}m{text}\x1b[0m' if colour else text

    lines = []
    for system in dict.fromkeys(kind.system for kind in Kind):
        changes = [change for change in plan.changes if change.kind.system == system]
        if changes:
            lines.append(paint(_BOLD, system))
        for change in changes:
            lines += _change_lines(change, paint)
    lines += [f'note: {note}' for note in plan.notes]
    lines += [paint(_RED, f'problem: {problem}') for problem in plan.problems]
    lines.append(_summary(plan))
    return '\n'.join(lines)


def _change_lines(change: Change, paint: Any) -> Iterator[str]:
    what = f'{change.kind.value} {change.name}'
    if change.creates:
        yield paint(_GREEN, f'  + {what}')
        for line in _described(change.after):
            yield paint(_GREEN, f'      {line}')
        return
    if change.removes:
        yield paint(_RED, f'  - {what}')
        return
    risks = ', '.join(f'{risk.value} ({risk.flag})' for risk in change.risks)
    colour = _RED if change.risks else _YELLOW
    yield paint(colour, f'  ~ {what}: {change.attribute}{f"  ! {risks}" if risks else ""}')
    for line in difference(change).split('; '):
        yield paint(colour, f'      {line}')


def _described(created: Any) -> Iterator[str]:
    """Yield the attributes of a new object that differ from their defaults."""
    if isinstance(created, resources.User):
        for service, caps in sorted(created.caps.items()):
            yield from (f'{service} {grant.strip()}' for grant in caps.split(','))
        return
    for field in dataclasses.fields(created):
        value = getattr(created, field.name)
        if field.name == 'name' or value in (None, '', 0.0):
            continue
        if field.default is not dataclasses.MISSING and value == field.default:
            continue
        if isinstance(value, dict):
            yield from (f'{key} = {each}' for key, each in value.items())
        else:
            yield f'{field.name.replace("_", " ")}: {value}'


def _summary(plan: Plan) -> str:
    if plan.problems:
        return f'{len(plan.problems)} problems; solve them before anything can be changed.'
    if not plan.changes:
        return 'Everything matches the tiers file.'
    created = sum(change.creates for change in plan.changes)
    removed = sum(change.removes for change in plan.changes)
    changed = len(plan.changes) - created - removed
    risks = {risk for change in plan.changes for risk in change.risks}
    flags = ' '.join(risk.flag for risk in Risk if risk in risks - {Risk.PAUSES_IO})
    needs = f' To apply it, add {flags}.' if flags else ''
    if Risk.PAUSES_IO in risks:
        needs += f' A change that pauses I/O {UNTIL}.'
    removals = f', {removed} to remove' if removed else ''
    return f'{created} to create, {changed} to change{removals}.{needs}'
