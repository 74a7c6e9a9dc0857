# SPDX-License-Identifier: Apache-2.0
"""An image's limits, which are options of librbd's that the image's metadata sets.

With them goes the tick in which librbd hands out what a limit allows. By default that is 50 ms, and
at the limit almost each hundredth request waits that long; QEMU's own throttle has no tick.
"""

import re
from collections.abc import Mapping

from trove_ceph.storage import image_types

# Where librbd keeps an image's own options in its metadata.
_PREFIX = 'conf_'
_FIELDS = {
    'rbd_qos_iops_limit': 'iops',
    'rbd_qos_iops_burst': 'iops_burst',
    'rbd_qos_bps_limit': 'bytes_per_sec',
    'rbd_qos_bps_burst': 'bytes_per_sec_burst',
}
_TICK, _TICK_MS = 'rbd_qos_schedule_tick_min', '10'
# As Ceph reads the numbers of its configuration: 4K is 4096.
_NUMBER = re.compile(r'(\d+)(?:([KMGTPE])i?)?')


def changes(qos: image_types.Qos) -> list[tuple[str, str | None]]:
    """Return the options that set limits, in their order; None removes one.

    The tick comes before the first limit and goes after the last, so that no limit is ever without.
    """
    found = {option: getattr(qos, field) for option, field in _FIELDS.items()}
    limits = [(option, str(value) if value else None) for option, value in found.items()]
    return [(_TICK, _TICK_MS), *limits] if any(found.values()) else [*limits, (_TICK, None)]


def read(entries: Mapping[str, str]) -> image_types.Qos:
    """Read the limits from an image's metadata as librbd does, whoever set them.

    What librbd refuses is no limit: something that is no number, and a burst below its limit.
    """
    found = {field: _number(entries.get(_PREFIX + key, '')) for key, field in _FIELDS.items()}
    for limit, burst in (('iops', 'iops_burst'), ('bytes_per_sec', 'bytes_per_sec_burst')):
        if found[burst] < found[limit]:
            found[burst] = 0
    return image_types.Qos(**found)


def is_whole(entries: Mapping[str, str]) -> bool:
    """Whether limits have their tick, and no tick is there without limits."""
    return entries.get(_PREFIX + _TICK) == dict(changes(read(entries)))[_TICK]


def without_options(entries: Mapping[str, str]) -> dict[str, str]:
    """Return what of an image's metadata is none of librbd's options."""
    return {key: value for key, value in entries.items() if not key.startswith(_PREFIX)}


def _number(text: str) -> int:
    match = _NUMBER.fullmatch(text)
    return int(match[1]) << 10 * ' KMGTPE'.index(match[2] or ' ') if match else 0
