# SPDX-License-Identifier: Apache-2.0
"""Carrying on with what ended with its process, and undoing what could not be undone before."""

import functools

from oslo_log import log as logging

from trove_ceph.db import model
from trove_ceph.db.model import State
from trove_ceph.db.roles import Role
from trove_ceph.strategies.backup import claimed, deleting, fulfilling, taking
from trove_ceph.strategies.backup.tools import Tools

LOG = logging.getLogger(__name__)


def carry_on(tools: Tools, threads: fulfilling.Threads) -> None:
    """Carry on with backups whose worker has died; of several processes one does.

    How it ends is in the records, and shown to tenants.
    """
    for record in tools.records.list_interrupted(tools.worker):
        if not threads.start(functools.partial(_carry_on_with, tools, record)):
            return
    for record in tools.records.list_with_remains(tools.worker):
        if not threads.start(functools.partial(_clear, tools, record)):
            return


def _carry_on_with(tools: Tools, record: model.Backup) -> None:
    role = Role.TAKE if record.state is State.TAKING else Role.DELETE
    claim = tools.heartbeat.acquire(
        lambda: tools.records.claims.claim(role, record.backup_id, tools.worker)
    )
    if claim is None:
        return
    LOG.warning(
        'Backup %s: %s was interrupted on %s, and is carried on with',
        *(record.backup_id, record.state, record.claimed_by or 'an earlier attempt'),
    )
    try:
        if role is Role.TAKE:
            taking.take(tools, record.backup_id, claim=claim)
        else:
            deleting.delete(tools, record.backup_id, claim)
    except Exception as error:
        LOG.warning('Backup %s: %s failed: %s', record.backup_id, record.state, error)


def _clear(tools: Tools, record: model.Backup) -> None:
    """Remove what is left of a backup that could not be taken while something else failed, too."""
    claim = tools.heartbeat.acquire(
        lambda: tools.records.claims.claim(Role.CLEAN_UP, record.backup_id, tools.worker)
    )
    if claim is None:
        return
    try:
        with tools.heartbeat.hold(claim):
            taking.clear(claimed.guarded(tools, claim), claim)
        LOG.info('Backup %s: nothing is left of it now', record.backup_id)
    except Exception as error:
        LOG.warning('Backup %s: something is left of it for now: %s', record.backup_id, error)
    tools.records.claims.release(claim)
