# SPDX-License-Identifier: Apache-2.0
"""Carrying on with what ended with its process."""

import datetime

from oslo_log import log as logging

from trove_ceph.db.model import State
from trove_ceph.strategies.backup import deleting, taking
from trove_ceph.strategies.backup.tools import Tools

LOG = logging.getLogger(__name__)


def carry_on(tools: Tools, since: datetime.timedelta) -> None:
    """Carry on with what nobody has worked on for so long; of several processes one does.

    How it ends is in the records, and shown to tenants.
    """
    for record in tools.records.interrupted(since):
        if not tools.records.claim(record.backup_id, tools.worker, since):
            continue
        LOG.warning(
            'Backup %s: %s was interrupted on %s, and is carried on with',
            *(record.backup_id, record.state, record.worker),
        )
        carry = taking.take if record.state is State.TAKING else deleting.delete
        try:
            carry(tools, record.backup_id)
        except Exception as error:
            LOG.warning('Backup %s: %s failed: %s', record.backup_id, record.state, error)
