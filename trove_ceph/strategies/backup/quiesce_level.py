# SPDX-License-Identifier: Apache-2.0
"""Decide the quiesce level of a backup from what the guest agent found: a pure function."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from trove_ceph import exceptions
from trove_ceph.enums import QuiesceLevel, UnsafeAction

# The guest sends the reasons, and the record of the backup stores them.
_MAX_TEXT_CHARACTERS = 4000


@dataclasses.dataclass(frozen=True)
class Decision:
    """The quiesce level of a backup.

    :param raised_from: the requested level, if it was unsafe
    :param because: why the requested level was unsafe
    """

    level: QuiesceLevel
    raised_from: QuiesceLevel | None = None
    because: str | None = None


def decide(
    subject: str,
    requested: QuiesceLevel,
    reasons: Sequence[Mapping[str, Any]],
    action: UnsafeAction,
) -> Decision:
    """Return the level at which to quiesce a server.

    :param subject: what the error message begins with
    :param reasons: why a snapshot would not be a backup, from
        :mod:`trove_ceph.guestagent.backup_settings`; each says whether freezing the volume suffices
    :raises UnsafeSettingsError: no permitted level makes the snapshot a backup
    """
    if hopeless := [one for one in reasons if not one['freeze_suffices']]:
        raise exceptions.UnsafeSettingsError(
            f'{subject}: a snapshot would not be a backup at any quiesce level: '
            f'{describe(hopeless)}'
        )
    if requested is QuiesceLevel.FREEZE or not reasons:
        return Decision(requested)
    if action is UnsafeAction.REFUSE:
        raise exceptions.UnsafeSettingsError(
            f'{subject}: a snapshot with quiesce {requested} would not be a backup: '
            f'{describe(reasons)}'
        )
    return Decision(QuiesceLevel.FREEZE, requested, describe(reasons))


def describe(reasons: Sequence[Mapping[str, Any]]) -> str:
    """Return the reasons with their remedies as one text."""
    text = '; '.join(f'{one["object"]} (remedy: {one["remedy"]})' for one in reasons)
    return text[:_MAX_TEXT_CHARACTERS]
