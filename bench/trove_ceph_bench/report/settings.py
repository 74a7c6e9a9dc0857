# SPDX-License-Identifier: Apache-2.0
"""Full disclosure: all recorded facts about the variants, side by side."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trove_ceph_bench import result_groups

#: The section of the server's variables.
VARIABLES = 'MySQL variables'


def build(
    found: Sequence[result_groups.Cell], variants: Sequence[result_groups.Variant]
) -> list[dict[str, Any]]:
    """Return sections of rows; a row holds one setting with its value for each variant.

    Each variant is represented by its first run with a disclosure. A section is a key of the first
    level with one of the second; the server's many variables have their own section.
    """
    columns = {variant.name: _first_disclosure(found, variant.name) for variant in variants}
    names: dict[str, None] = {}
    flat: dict[str, dict[tuple[str, str], str | None]] = {}
    for name, disclosure in columns.items():
        flat[name] = {(section, key): text for section, key, text in _flatten(disclosure)}
        names.update(dict.fromkeys(section for section, _ in flat[name]))
    sections = [_section(section, flat) for section in names]
    # Readers look for the server's variables first.
    return sorted(sections, key=lambda section: section['name'] != VARIABLES)


def _section(
    section: str, flat: Mapping[str, Mapping[tuple[str, str], str | None]]
) -> dict[str, Any]:
    keys = dict.fromkeys(key for rows in flat.values() for name, key in rows if name == section)
    rows = []
    for key in keys:
        values = {variant: texts.get((section, key)) for variant, texts in flat.items()}
        if any(value is not None for value in values.values()):
            rows.append({'key': key, 'values': values, 'differs': len(set(values.values())) > 1})
    return {
        'name': section,
        # A stable sort keeps the order of the disclosure among those that differ.
        'rows': sorted(rows, key=lambda row: not row['differs']),
        'differing': sum(row['differs'] for row in rows),
    }


def _first_disclosure(found: Sequence[result_groups.Cell], variant: str) -> Mapping[str, Any]:
    disclosures = (
        run.disclosure
        for cell in found
        if cell.variant == variant
        for _, run in sorted(cell.runs.items())
    )
    return next((disclosure for disclosure in disclosures if disclosure), {})


def _flatten(disclosure: Mapping[str, Any]) -> Iterator[tuple[str, str, str | None]]:
    """Yield section, setting and text of each value."""
    contents = {key: value for key, value in disclosure.items() if key != 'targets'}
    if 'targets' in disclosure:
        # The instances of one variant are configured alike, so show the first.
        contents['target'] = next(iter(disclosure['targets'].values()), {})
    for name, content in contents.items():
        for path, text in _leaves(content):
            first, _, rest = path.partition('.')
            second, _, variable = rest.partition('.')
            if second == 'variables' and variable:
                yield VARIABLES, variable, text
            elif rest:
                yield f'{name}: {first}', rest, text
            else:
                yield name, path, text


def _leaves(content: Any, at: str = '') -> Iterator[tuple[str, str | None]]:
    """Yield dotted paths and texts; a list of plain values is one text."""
    if isinstance(content, Mapping) and content:
        for key, value in content.items():
            yield from _leaves(value, f'{at}.{key}' if at else str(key))
    elif isinstance(content, list) and any(isinstance(each, Mapping | list) for each in content):
        for number, value in enumerate(content):
            yield from _leaves(value, f'{at}[{number}]')
    else:
        yield at, _text(content)


def _text(content: Any) -> str | None:
    if content is None:
        return None
    if isinstance(content, list):
        return ', '.join(map(str, content))
    if isinstance(content, bool):
        return 'yes' if content else 'no'
    return str(content)
