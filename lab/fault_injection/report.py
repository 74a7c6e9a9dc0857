# SPDX-License-Identifier: Apache-2.0
"""The durations of the rounds, as a table and as JSON."""

import dataclasses
import json
import pathlib
import statistics

from fault_injection.rounds import Result

HEADER = ('round', 'operation', 'killed', 'after s', 'settled s', 'result')


def row(result: Result) -> tuple[str, ...]:
    """Return the cells of a round."""
    plan = result.plan
    settled = 'never' if result.settled_sec is None else f'{result.settled_sec:.1f}'
    note = ' (over before the kill)' if result.was_settled else ''
    return (
        str(plan.number),
        plan.operation,
        plan.service,
        f'{plan.delay_sec:.1f}',
        settled,
        ('' if result.good else 'FAILED: ') + result.text + note,
    )


def line(cells: tuple[str, ...]) -> str:
    """Return cells as a line of the table."""
    widths = (5, 14, 18, 7, 9)
    padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=False)]
    return '  '.join([*padded, cells[-1]])


def summary(results: list[Result], limit_sec: float) -> list[str]:
    """Return the time until each operation settled, and the rounds over the limit."""
    lines = []
    for operation in dict.fromkeys(result.plan.operation for result in results):
        hit = [one for one in results if one.plan.operation == operation and not one.was_settled]
        times = [one.settled_sec for one in hit if one.settled_sec is not None]
        if times:
            lines.append(
                f'{operation}: {len(hit)} kills, settled after {statistics.median(times):.1f} s '
                f'(median), {max(times):.1f} s (most); {sum(one.good for one in hit)} succeeded'
            )
    late = [str(one.plan.number) for one in over(results, limit_sec)]
    if late:
        lines.append(f'not settled within {limit_sec:.0f} s: rounds {", ".join(late)}')
    return lines


def over(results: list[Result], limit_sec: float) -> list[Result]:
    """Return the rounds that took longer than the limit."""
    return [one for one in results if one.settled_sec is None or one.settled_sec > limit_sec]


def save(path: pathlib.Path, seed: int, results: list[Result], left: list[str]) -> None:
    """Write everything as JSON."""
    rounds = [dataclasses.asdict(one) for one in results]
    path.write_text(json.dumps({'seed': seed, 'rounds': rounds, 'left': left}, indent=1) + '\n')
