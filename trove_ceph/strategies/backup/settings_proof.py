# SPDX-License-Identifier: Apache-2.0
"""Proves that a snapshot was taken under settings that were checked afterwards.

A backup with quiesce ``none`` is a snapshot of a running server. It is a backup only if the server
was durable at that instant: an acknowledged commit was on the volume, whatever came later. When the
settings are checked first, the snapshot has to wait for the guest agent's answer, and a change
between the check and the snapshot goes unnoticed. When the snapshot comes first, the answer must
prove something about an instant that is past.

Let the snapshot be requested at B and be there at E, both on the taskmanager's clock, the check be
requested at S and its answer be here at R. The snapshot was taken between B and E. The answer
proves what the settings were then if all of this holds:

1. S is after E: the agent reads nothing before the snapshot is there. The request is sent when the
   storage service has answered, and an answer belongs to its request by the id of the message.
2. Nothing was changed between an earlier reading of the agent's and this one. Values cannot tell
   that, since ``sync_binlog`` can be 0 for a second. So both readings have the same evidence
   (:data:`trove_ceph.guestagent.backup_settings.EVIDENCE`): the microsecond of the last SET of each
   setting (``performance_schema.variables_info``), the number of ALTER INSTANCE and RESET
   statements, and the start of the server, from which those numbers count. A change leaves its
   mark also when it is changed back, and no statement removes the mark: FLUSH STATUS and TRUNCATE
   of the status tables leave it, and SET timestamp does not move it (tried with MySQL 9.7).
3. That earlier reading had ended at B. The agent tells by its own clock how long before its answer
   that was, ``unchanged_sec``. The answer was given before R, so the reading had ended before
   R - ``unchanged_sec``, and ``unchanged_sec`` >= R - B suffices. The two clocks are compared by
   the time that passes on them alone, never by what they show, so neither NTP nor a time zone nor a
   date that was set matters: the agent's is CLOCK_MONOTONIC_RAW, which nobody sets or slews, and
   which stands still while the machine is paused, so it errs on the safe side; ours is
   CLOCK_MONOTONIC, which NTP slews by less than a tenth (:data:`_SLEW`).

Then the settings at the instant of the snapshot are those of the answer, which is judged as any
other. This is more than a check before the snapshot proves.

What has no such mark is seen after the snapshot only: tables that cannot be recovered, links,
mounts, and the room on the volume. One that was there at the snapshot and is gone at the check goes
unnoticed, as one that came between check and snapshot did in the other order; a verification of the
backup opens what the snapshot has.

A position which the backup must have reached (``gtid_before``) is one that the agent read before B,
by the same clocks; the position in the answer may be ahead of the snapshot.
"""

from collections.abc import Mapping
from typing import Any

#: How much faster than the agent's clock ours may run.
_SLEW = 0.1
#: Of both clocks, and of the agent's arithmetic.
_RESOLUTION_SEC = 0.1


def find_gap(answer: Mapping[str, Any], elapsed_sec: float) -> str | None:
    """Tell why an answer says nothing about the instant of a snapshot; None: it proves it.

    :param answer: of the guest agent, to a request that was sent after the snapshot was there
    :param elapsed_sec: from just before the snapshot was requested until the answer was here
    """
    if not answer.get('settings_id'):
        return 'the server or its guest agent cannot tell when settings were changed'
    needed_sec = _needed_sec(elapsed_sec)
    unchanged_sec = float(answer.get('unchanged_sec') or 0.0)
    if unchanged_sec < needed_sec:
        return (
            f'the settings are known to be the same for {unchanged_sec:.1f} s, and the snapshot '
            f'was taken up to {needed_sec:.1f} s ago'
        )
    return None


def find_position(answer: Mapping[str, Any], elapsed_sec: float) -> str | None:
    """Return the latest position that the server is known to have reached before the snapshot.

    :param elapsed_sec: as that of :func:`find_gap`
    :returns: a GTID set; None where no position is known to be that old
    """
    needed_sec = _needed_sec(elapsed_sec)
    known = [one for one in answer.get('positions') or () if one['age_sec'] >= needed_sec]
    latest = min(known, key=lambda one: one['age_sec'], default=None)
    return latest['gtid_executed'] if latest else None


def _needed_sec(elapsed_sec: float) -> float:
    return elapsed_sec * (1 + _SLEW) + _RESOLUTION_SEC
