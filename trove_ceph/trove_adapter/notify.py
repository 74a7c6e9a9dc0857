# SPDX-License-Identifier: Apache-2.0
"""Notify a taskmanager of recorded requests, so that it starts them at once.

The requests are recorded before. A lost message costs time only, since each taskmanager looks for
recorded requests every minute.
"""

from typing import Any

from oslo_log import log as logging
from trove.taskmanager import api

LOG = logging.getLogger(__name__)


def backup_work(context: Any) -> None:
    """Notify a taskmanager of requested copies and verifications."""
    _notify(context, 'copy_and_verify_backups')


def policies(context: Any) -> None:
    """Notify a taskmanager of backups that are due by policy."""
    _notify(context, 'run_backup_policies')


def failovers(context: Any) -> None:
    """Notify a taskmanager of requested failovers."""
    _notify(context, 'replace_servers')


def replicas(context: Any) -> None:
    """Notify a taskmanager of replicas that are to be re-provisioned."""
    _notify(context, 'reprovision_replicas')


def _notify(context: Any, task: str) -> None:
    """Have a taskmanager run one of the periodic tasks of :class:`.manager.Manager` now."""
    try:
        taskmanager = api.API(context)
        # Without this limit it would wait until the message bus is up.
        taskmanager.client.prepare(version=taskmanager.API_BASE_VERSION, retry=1).cast(
            context, task
        )
    except Exception as error:
        LOG.warning('No taskmanager could be notified; %s runs within a minute: %s', task, error)
