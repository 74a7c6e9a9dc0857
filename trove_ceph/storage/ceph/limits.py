# SPDX-License-Identifier: Apache-2.0
"""The limits of an image, which are librbd options in the image's metadata.

With them goes the schedule tick, the interval at which librbd refills a limit's tokens. By default
it is 50 ms, and at the limit almost one in a hundred requests waits that long; QEMU's own throttle
has no tick.
"""

import re
from collections.abc import Mapping

from trove_ceph.storage import image_types

# The prefix of librbd options in the metadata of an image.
_PREFIX = 'conf_'
_FIELDS = {
    'rbd_qos_iops_limit': 'iops',
    'rbd_qos_iops_burst': 'iops_burst',
    'rbd_qos_bps_limit': 'bytes_per_sec',
    'rbd_qos_bps_burst': 'bytes_per_sec_burst',
}
_TICK, _TICK_MS = 'rbd_qos_schedule_tick_min', '10'
# As Ceph parses the numbers of its configuration: 4K is 4096.
_NUMBER = re.compile(r'(\d+)(?:([KMGTPE])i?)?')


def changes(qos: image_types.Qos) -> list[tuple[str, str | None]]:
    """Return the options that set limits, in the order to apply them; None removes an option.

    The tick is set before the first limit and removed after the last, so that no limit ever lacks
    it.
    """
    found = {option: getattr(qos, field) for option, field in _FIELDS.items()}
    limits = [(option, str(value) if value else None) for option, value in found.items()]
    return [(_TICK, _TICK_MS), *limits] if any(found.values()) else [*limits, (_TICK, None)]


def read(entries: Mapping[str, str]) -> image_types.Qos:
    """Return the limits in an image's metadata as librbd reads them.

    Like librbd it ignores a value that is not a number, and a burst below its limit.
    """
    found = {field: _number(entries.get(_PREFIX + key, '')) for key, field in _FIELDS.items()}
    for limit, burst in (('iops', 'iops_burst'), ('bytes_per_sec', 'bytes_per_sec_burst')):
        if found[burst] < found[limit]:
            found[burst] = 0
    return image_types.Qos(**found)


def is_whole(entries: Mapping[str, str]) -> bool:
    """Return whether the tick is set exactly if there are limits."""
    return entries.get(_PREFIX + _TICK) == dict(changes(read(entries)))[_TICK]


def without_options(entries: Mapping[str, str]) -> dict[str, str]:
    """Return an image's metadata without librbd options."""
    return {key: value for key, value in entries.items() if not key.startswith(_PREFIX)}


def _number(text: str) -> int:
    match = _NUMBER.fullmatch(text)
    return int(match[1]) << 10 * ' KMGTPE'.index(match[2] or ' ') if match else 0
