# SPDX-License-Identifier: Apache-2.0
"""Graphs of state machines for readers who see states, and no events."""

from collections.abc import Collection, Iterable

from trove_ceph.db.state_machine import ABSENT


def brief(transitions: Iterable[tuple[str, str, str]], without: Collection[str] = ()) -> str:
    """Return the ways from one state to another, in the DOT language of Graphviz.

    What has no row, yet or any more, is not drawn.

    :param without: further states that are not drawn
    """
    hidden = {ABSENT, *without}
    ways = {
        (start, end): None
        for start, _event, end in transitions
        if start != end and not hidden & {start, end}
    }
    lines = ['digraph states {', '  rankdir=LR;']
    lines += ['  node [shape=box, style=rounded, fontname="sans-serif", fontsize=10];']
    return '\n'.join([*lines, *(f'  "{start}" -> "{end}";' for start, end in ways), '}'])
