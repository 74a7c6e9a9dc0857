# SPDX-License-Identifier: Apache-2.0
"""Ownership of limits: which limits of an image we set, and which others set.

An entry in the image's metadata lists our limits. It is written before the limits are set and
removed after them, so one of our limits is never mistaken for a foreign one. During a change the
entry has both the old and the new limits, because a killed process may have set some of them.

librbd copies the metadata of an image to its clones, both this entry and the limits. So the limits
of a clone are ours, too.
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
    """The limits that we set.

    :param limits: the limits that were set last, or are being set
    :param before: our limits before them
    """

    limits: image_types.Qos
    before: image_types.Qos = _NONE

    def text(self) -> str:
        """Return the text for the metadata of the image."""
        return json.dumps({'limits': _plain(self.limits), 'before': _plain(self.before)})

    def ours(self, found: image_types.Qos) -> image_types.Qos:
        """Return the limits of an image that we set."""
        return _chosen(found, self._is_ours)

    def foreign(self, found: image_types.Qos) -> image_types.Qos:
        """Return the limits of an image that others set."""
        return _chosen(found, lambda name, value: not self._is_ours(name, value))

    def _is_ours(self, name: str, value: int) -> bool:
        return value in (getattr(self.limits, name), getattr(self.before, name))


def read(metadata: Mapping[str, str]) -> LimitOwner | None:
    """Return the entry of an image; None: it has none, or an unreadable one."""
    try:
        entry = json.loads(metadata[KEY])
        return LimitOwner(image_types.Qos(**entry['limits']), image_types.Qos(**entry['before']))
    except (KeyError, TypeError, ValueError):
        return None


def _plain(limits: image_types.Qos) -> dict[str, int]:
    return {name: value for name in _FIELDS if (value := getattr(limits, name))}


def _chosen(found: image_types.Qos, condition: Callable[[str, int], bool]) -> image_types.Qos:
    values = {name: value for name, value in _plain(found).items() if condition(name, value)}
    return image_types.Qos(**values)
