# SPDX-License-Identifier: Apache-2.0
"""Leftovers of interrupted runs in the cloud."""

import contextlib
import time

import cloud
from troveclient.apiclient import exceptions as trove_errors
from troveclient.v1 import client as trove_client

# The prefix of all names that trove-tempest-plugin's base class uses.
PREFIX = 'trove-tempest-'
TIMEOUT_SEC = 300
POLL_SEC = 3


def connect(credentials: dict):
    """Return Trove's client for a user's ``OS_*`` variables."""
    session = cloud.connect(credentials).session
    return trove_client.Client(session=session, region_name=credentials['OS_REGION_NAME'])


def remove(trove, sleep=time.sleep) -> list[str]:
    """Delete backups and instances of earlier runs, and wait until they are gone.

    :returns: their names
    """
    removed = []
    # Trove cannot delete a volume with snapshots, nor a source with replicas.
    for kind in (_backups, _replicas, _instances):
        found = kind(trove)
        for one, delete in found:
            # A deletion that an earlier run requested may end meanwhile.
            with contextlib.suppress(trove_errors.NotFound):
                delete(one.id)
            removed.append(one.name)
        waited = 0
        while found and kind(trove) and waited < TIMEOUT_SEC:
            sleep(POLL_SEC)
            waited += POLL_SEC
    return removed


def _backups(trove):
    listed = trove.backups.list(all_projects=True)
    return [(one, trove.backups.delete) for one in listed if one.name.startswith(PREFIX)]


def _replicas(trove):
    return [pair for pair in _instances(trove) if getattr(pair[0], 'replica_of', None)]


def _instances(trove):
    listed = trove.mgmt_instances.list()
    return [(one, trove.instances.force_delete) for one in listed if one.name.startswith(PREFIX)]
