# SPDX-License-Identifier: Apache-2.0
"""Prove that a snapshot was taken under settings that were checked after it.

A backup with quiesce ``none`` is a snapshot of a running server. It is a backup only if the server
was durable at that instant, that is, if every acknowledged commit was on the volume. If the
settings are checked first, the snapshot waits for the guest agent's answer, and a change between
the check and the snapshot goes unnoticed. If the snapshot comes first, the answer must prove the
settings of a past instant.

Let B be the time of the request for the snapshot, E the time when it exists, S the time of the
request for the check and R the time when its answer arrives, all on the taskmanager's clock. The
snapshot was taken between B and E. The answer proves the settings at that instant if three
conditions hold:

1. S is after E: the agent reads nothing before the snapshot exists. The request is sent after the
   storage service has answered, and the id of the message ties an answer to its request.
2. Nothing was changed between an earlier reading of the agent and this one. Equal values do not
   prove that, since ``sync_binlog`` can be 0 for a second. So both readings have the same evidence
   (:data:`trove_ceph.guestagent.backup_settings.EVIDENCE`): the microsecond of the last SET of each
   setting (``performance_schema.variables_info``), the number of ALTER INSTANCE and RESET
   statements, and the start of the server, from which those numbers count. A change leaves its
   mark even if it is changed back, and no statement removes the mark: FLUSH STATUS and TRUNCATE of
   the status tables leave it, and SET timestamp does not move it (tried with MySQL 9.7).
3. That earlier reading had ended at B. The agent reports ``unchanged_sec``, the time by its own
   clock from that reading to its answer. The answer was sent before R, so the reading had ended
   before R - ``unchanged_sec``, and ``unchanged_sec`` >= R - B suffices. Only durations of the two
   clocks are compared, never their readings, so neither NTP nor a time zone nor a changed date
   matters: the agent uses CLOCK_MONOTONIC_RAW, which is never set or slewed, and which stands still
   while the machine is paused, so it errs on the safe side; the taskmanager uses CLOCK_MONOTONIC,
   which NTP slews by less than a tenth (:data:`_SLEW`).

Then the settings at the instant of the snapshot are those of the answer, which is judged like any
other. This proves more than a check before the snapshot does.

Some conditions leave no such mark and are observed only after the snapshot: tables that cannot be
recovered, links, mounts, and the free space of the volume. One that held at the snapshot and is
gone at the check goes unnoticed, as one that arises between check and snapshot does in the other
order. A verification of the backup opens the snapshot itself.

The position that the backup must have reached (``gtid_before``) is one that the agent read before
B, by the same clocks; the position in the answer may be ahead of the snapshot.
"""

from collections.abc import Mapping
from typing import Any

#: How much faster the taskmanager's clock may run than the agent's.
_SLEW = 0.1
#: Covers the resolution of both clocks, and the agent's rounding.
_RESOLUTION_SEC = 0.1


def find_gap(answer: Mapping[str, Any], elapsed_sec: float) -> str | None:
    """Return why an answer does not prove the settings at the snapshot; None if it does.

    :param answer: of the guest agent, to a request that was sent after the snapshot existed
    :param elapsed_sec: from just before the request for the snapshot to the arrival of the answer
    """
    if not answer.get('settings_id'):
        return 'the server or its guest agent does not report when settings were changed'
    needed_sec = _needed_sec(elapsed_sec)
    unchanged_sec = float(answer.get('unchanged_sec') or 0.0)
    if unchanged_sec < needed_sec:
        return (
            f'the settings are proved to be unchanged for {unchanged_sec:.1f} s, but the snapshot '
            f'was taken up to {needed_sec:.1f} s ago'
        )
    return None


def find_position(answer: Mapping[str, Any], elapsed_sec: float) -> str | None:
    """Return the latest position that the server had certainly reached before the snapshot.

    :param elapsed_sec: as for :func:`find_gap`
    :returns: a GTID set; None if no known position is old enough
    """
    needed_sec = _needed_sec(elapsed_sec)
    known = [one for one in answer.get('positions') or () if one['age_sec'] >= needed_sec]
    latest = min(known, key=lambda one: one['age_sec'], default=None)
    return latest['gtid_executed'] if latest else None


def _needed_sec(elapsed_sec: float) -> float:
    return elapsed_sec * (1 + _SLEW) + _RESOLUTION_SEC
