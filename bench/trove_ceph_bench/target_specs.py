# SPDX-License-Identifier: Apache-2.0
"""Multiply and scale the specifications of targets in a plan."""

from collections.abc import Mapping
from typing import Any

from oslo_utils import units

#: Options of a server that scale with its data, with the least values in bytes. A smaller redo log
#: than 64 MiB makes a busy server wait for checkpoints; a buffer pool must hold the pages in use.
_SCALED_OPTIONS = {
    'innodb_buffer_pool_size': 16 * units.Mi,
    'innodb_redo_log_capacity': 64 * units.Mi,
}
#: Kinds of targets that a plan makes itself, so that several can be equal.
MADE = ('server', 'create')


def copies(target: Mapping[str, Any], count: int) -> list[dict[str, Any]]:
    """Return a number of targets that differ only in their number, from 1 on."""
    return [{**target, 'number': number} for number in range(1, count + 1)]


def scaled(target: Mapping[str, Any], scale: float) -> Mapping[str, Any]:
    """Return a target with the memory and the redo log that the plan sets reduced to a share."""
    options = target.get('server', {}).get('options', {})
    reduced = {
        name: max(min(options[name], least), int(options[name] * scale))
        for name, least in _SCALED_OPTIONS.items()
        if isinstance(options.get(name), int)
    }
    if scale == 1 or not reduced:
        return target
    return {**target, 'server': {**target['server'], 'options': {**options, **reduced}}}


def volume_gib(target: Mapping[str, Any]) -> float | None:
    """Return the size in GiB of the volume that a target makes; None if it makes none."""
    if 'create' in target:
        return target['create']['volume_gib']
    return target.get('server', {}).get('on', {}).get('rbd', {}).get('size_gib')
