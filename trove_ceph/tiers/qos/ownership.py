# SPDX-License-Identifier: Apache-2.0
"""Telling limits that we set from those that somebody else set.

An entry in the image's metadata says which limits are ours. It is written before they are and goes
after them, so there is no instant at which a limit of ours is taken for somebody else's. While they
change, both the old and the new ones are in it: a process that is killed may have set some.

librbd copies the metadata of an image to its clones, this entry with the limits that it speaks of.
The limits of a clone are ours then, too.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping

from trove_ceph.storage import image_types

#: The key in the image's metadata.
KEY = 'trove_ceph.tiers.qos'
_NONE = image_types.Qos()
_FIELDS = tuple(field.name for field in dataclasses.fields(image_types.Qos))


@dataclasses.dataclass(frozen=True)
class LimitOwner:
    """Which limits are ours.

    :param limits: those that were set last, or are just being set
    :param before: those of ours that they replaced
    """

    limits: image_types.Qos
    before: image_types.Qos = _NONE

    def text(self) -> str:
        """Return it as it is kept."""
        return json.dumps({'limits': _plain(self.limits), 'before': _plain(self.before)})

    def ours(self, found: image_types.Qos) -> image_types.Qos:
        """Return those limits of an image that we set."""
        return _chosen(found, self._is_ours)

    def foreign(self, found: image_types.Qos) -> image_types.Qos:
        """Return those limits of an image that somebody set over ours."""
        return _chosen(found, lambda name, value: not self._is_ours(name, value))

    def _is_ours(self, name: str, value: int) -> bool:
        return value in (getattr(self.limits, name), getattr(self.before, name))


def read(metadata: Mapping[str, str]) -> LimitOwner | None:
    """Return the mark of an image; None where it has none that can be read."""
    try:
        entry = json.loads(metadata[KEY])
        return LimitOwner(image_types.Qos(**entry['limits']), image_types.Qos(**entry['before']))
    except (KeyError, TypeError, ValueError):
        return None


def _plain(limits: image_types.Qos) -> dict[str, int]:
    return {name: value for name in _FIELDS if (value := getattr(limits, name))}


def _chosen(found: image_types.Qos, belongs: Callable[[str, int], bool]) -> image_types.Qos:
    values = {name: value for name, value in _plain(found).items() if belongs(name, value)}
    return image_types.Qos(**values)
