# SPDX-License-Identifier: Apache-2.0
"""Telling a taskmanager that there is something to do, so that it looks at once.

What is to be done is written down before. A message that is lost costs time and nothing else: each
taskmanager looks by itself every minute.
"""

from typing import Any

from oslo_log import log as logging
from trove.taskmanager import api

LOG = logging.getLogger(__name__)


def backup_work(context: Any) -> None:
    """Have what is wanted of backups be begun with."""
    _nudge(context, 'copy_and_verify_backups')


def policies(context: Any) -> None:
    """Have the backups be taken that policies have due."""
    _nudge(context, 'run_backup_policies')


def _nudge(context: Any, task: str) -> None:
    """Ask for one of the periodic tasks of :class:`.manager.Manager`."""
    try:
        asked = api.API(context)
        # Without a limit it would wait for a bus that is down.
        asked.client.prepare(version=asked.API_BASE_VERSION, retry=1).cast(context, task)
    except Exception as error:
        LOG.warning('No taskmanager was asked to %s at once; one does in time: %s', task, error)
