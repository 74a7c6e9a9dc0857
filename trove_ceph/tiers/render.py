# SPDX-License-Identifier: Apache-2.0
"""A plan as text: what is added, changed and in the way."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from trove_ceph.tiers import resources
from trove_ceph.tiers.changes import Change, Kind, Plan, Risk, difference

#: How long a change waits.
UNTIL = f'waits until the copies are there; to have it at once, add {Risk.PAUSES_IO.flag}'
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


def _described(made: Any) -> Iterator[str]:
    """Yield what is worth knowing of an object that will be made."""
    if isinstance(made, resources.User):
        for service, caps in sorted(made.caps.items()):
            yield from (f'{service} {grant.strip()}' for grant in caps.split(','))
        return
    for field in dataclasses.fields(made):
        value = getattr(made, field.name)
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
        return f'{len(plan.problems)} problems; nothing can be changed before they are solved.'
    if not plan.changes:
        return 'Everything matches the tiers file.'
    made = sum(change.creates for change in plan.changes)
    removed = sum(change.removes for change in plan.changes)
    changed = len(plan.changes) - made - removed
    risks = {risk for change in plan.changes for risk in change.risks}
    flags = ' '.join(risk.flag for risk in Risk if risk in risks - {Risk.PAUSES_IO})
    needs = f' To apply it, add {flags}.' if flags else ''
    if Risk.PAUSES_IO in risks:
        needs += f' What pauses I/O {UNTIL}.'
    removals = f', {removed} to remove' if removed else ''
    return f'{made} to create, {changed} to change{removals}.{needs}'
