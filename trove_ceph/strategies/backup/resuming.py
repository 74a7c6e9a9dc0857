# SPDX-License-Identifier: Apache-2.0
"""Carrying on with what ended with its process, and undoing what could not be undone before."""

import datetime
import functools

from oslo_log import log as logging

from trove_ceph.db import model
from trove_ceph.db.model import State
from trove_ceph.strategies.backup import deleting, fulfilling, taking
from trove_ceph.strategies.backup.tools import Tools

LOG = logging.getLogger(__name__)


def carry_on(tools: Tools, since: datetime.timedelta, threads: fulfilling.Threads) -> None:
    """Carry on with what nobody has worked on for so long; of several processes one does.

    How it ends is in the records, and shown to tenants.
    """
    for record in tools.records.interrupted(since):
        if not threads.start(functools.partial(_carry_on_with, tools, record, since)):
            return
    threads.start(functools.partial(_clear, tools))


def _carry_on_with(tools: Tools, record: model.Backup, since: datetime.timedelta) -> None:
    is_taken = record.state is State.TAKING
    worker = taking.worker(tools) if is_taken else tools.worker
    if not tools.records.claim(record.backup_id, worker, since, record.state):
        return
    LOG.warning(
        'Backup %s: %s was interrupted on %s, and is carried on with',
        *(record.backup_id, record.state, record.worker),
    )
    carry = taking.take if is_taken else deleting.delete
    try:
        carry(tools, record.backup_id)
    except Exception as error:
        LOG.warning('Backup %s: %s failed: %s', record.backup_id, record.state, error)


def _clear(tools: Tools) -> None:
    """Remove what is left of backups that could not be taken while something else failed, too."""
    for record in tools.records.with_remains():
        try:
            taking.clear(tools, record.backup_id)
            LOG.info('Backup %s: nothing is left of it now', record.backup_id)
        except Exception as error:
            LOG.warning('Backup %s: something is left of it for now: %s', record.backup_id, error)
