# SPDX-License-Identifier: Apache-2.0
"""The table at the end of a run, and the files beside it."""

import dataclasses
import json
import pathlib


def save(log: pathlib.Path, outcome) -> None:
    """Write ``scenario.json``, and ``scenario.log`` with the attachments of the tests."""
    rows = [dataclasses.asdict(row) for row in outcome.rows]
    details = {row['name']: row.pop('details') for row in rows}
    result = {'good': outcome.successful(), 'tests': rows, 'not_run': outcome.missing()}
    (log / 'scenario.json').write_text(json.dumps(result, indent=1) + '\n')
    text = ''.join(f'==== {name}\n{detail}\n\n' for name, detail in details.items() if detail)
    (log / 'scenario.log').write_text(text)


def render(outcome, log: pathlib.Path) -> str:
    """Return the table: result, seconds and test, with the figures below each test."""
    lines = ['', f'{"result":<16} {"prepare":>8} {"seconds":>8}  test']
    for row in outcome.rows:
        prepare = f'{row.prepared_sec:8.1f}' if row.prepared_sec >= 1 else ' ' * 8
        lines.append(f'{row.result:<16} {prepare} {row.seconds:8.1f}  {row.name}')
        if row.reason:
            lines.append(f'{"":36}{row.reason[:200]}')
        lines += [f'{"":36}{line}' for line in _figure_lines(row.figures)]
    lines += [f'{"not run":<34}  {name}' for name in outcome.missing()]
    counts = {}
    for row in outcome.rows:
        counts[row.result] = counts.get(row.result, 0) + 1
    lines += ['', ', '.join(f'{number} {result}' for result, number in counts.items())]
    lines.append(f'{log}/scenario.json, attachments: scenario.log, Tempest: tempest.log')
    return '\n'.join(lines)


def _figure_lines(figures):
    for name, value in figures.items():
        if isinstance(value, dict):
            yield f'{name}: ' + ', '.join(f'{key} {_text(one)}' for key, one in value.items())
        else:
            yield f'{name}: {_text(value)}'


def _text(value):
    if isinstance(value, dict):
        return ' '.join(f'{key}={_text(one)}' for key, one in value.items())
    if isinstance(value, list):
        return ' '.join(_text(one) for one in value)
    return f'{value:.4g}' if isinstance(value, float) else str(value)
