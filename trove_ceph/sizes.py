# SPDX-License-Identifier: Apache-2.0
"""Sizes and speeds in files that people write: text with a unit, so that none is guessed."""

from oslo_utils import strutils

#: The schema of a size. A number without a unit is refused, because it might mean any of them.
SIZE = {
    'type': 'string',
    'pattern': '^[0-9]{1,15}(\\.[0-9]{1,6})? ?[KMGTP]i?B\\Z',
    'description': 'a size with its unit, such as 256GiB (times 1024**3) or 3.84TB (times 1000**4)',
}
#: The schema of the speed of a network.
SPEED = {
    'type': 'string',
    'pattern': '^[0-9]{1,15}(\\.[0-9]{1,6})? ?[MGT]bit\\Z',
    'description': 'a speed with its unit, such as 25Gbit (per second)',
}
_BITS = 8


def bytes_of(size: str) -> int:
    """Return a size in bytes; ``GB`` is 1000**3 and ``GiB`` is 1024**3.

    :param size: a text that fits :data:`SIZE`
    """
    return strutils.string_to_bytes(size.replace(' ', ''), 'mixed', return_int=True)


def is_decimal(size: str) -> bool:
    """Return whether the unit of a size is a power of 1000."""
    return 'i' not in size


def mbit_per_sec_of(speed: str) -> int:
    """Return a speed in Mbit (1000**2 bits) per second, rounded down.

    :param speed: a text that fits :data:`SPEED`
    """
    return int(strutils.string_to_bytes(speed.replace(' ', ''), 'SI') * _BITS) // 1000**2
