# SPDX-License-Identifier: Apache-2.0
"""Which level a backup has, given what the guest agent found: a pure function."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from trove_ceph import exceptions
from trove_ceph.enums import QuiesceLevel, UnsafeAction


@dataclasses.dataclass(frozen=True)
class Decision:
    """How a server is held.

    :param raised_from: the level that was asked for, where it was unsafe
    :param because: what was unsafe about it
    """

    level: QuiesceLevel
    raised_from: QuiesceLevel | None = None
    because: str | None = None


def decide(
    subject: str, wanted: QuiesceLevel, reasons: Sequence[Mapping[str, Any]], action: UnsafeAction
) -> Decision:
    """Return how a server is held.

    :param subject: what the message begins with
    :param reasons: of :mod:`trove_ceph.guestagent.backup_settings`, why a snapshot would be no
        backup, each with whether that of a frozen volume would be one
    :raises UnsafeSettingsError: no level that may be chosen makes the snapshot a backup
    """
    if hopeless := [one for one in reasons if not one['freeze_suffices']]:
        raise exceptions.UnsafeSettingsError(
            f'{subject}: a snapshot would be no backup, however it is taken: {_text(hopeless)}'
        )
    if wanted is QuiesceLevel.FREEZE or not reasons:
        return Decision(wanted)
    if action is UnsafeAction.REFUSE:
        raise exceptions.UnsafeSettingsError(
            f'{subject}: a snapshot would be no backup with quiesce {wanted}: {_text(reasons)}'
        )
    return Decision(QuiesceLevel.FREEZE, wanted, _text(reasons))


def _text(reasons: Sequence[Mapping[str, Any]]) -> str:
    return '; '.join(f'{one["object"]} (remedy: {one["remedy"]})' for one in reasons)
