# SPDX-License-Identifier: Apache-2.0
"""Entry points ``oslo.config.opts``, from which the sample configurations are generated."""

import copy

from oslo_config import cfg

from trove_ceph.conf import (
    failover,
    golden,
    guest,
    guests,
    metrics,
    qos,
    replacement,
    replication,
    storage,
    taskmanager,
    verification,
)


def list_opts() -> list[tuple[cfg.OptGroup, list[cfg.Opt]]]:
    """Return the options of the guest agent."""
    return [(guest.GROUP, copy.deepcopy(guest.OPTS))]


def list_storage_opts() -> list[tuple[cfg.OptGroup, list[cfg.Opt]]]:
    """Return the options of the storage service."""
    return [
        (storage.GROUP, copy.deepcopy(storage.OPTS)),
        (qos.GROUP, copy.deepcopy(qos.list_opts())),
        (verification.GROUP, copy.deepcopy(verification.OPTS)),
        (metrics.GROUP, copy.deepcopy(metrics.STORAGE_OPTS)),
    ]


def list_taskmanager_opts() -> list[tuple[cfg.OptGroup, list[cfg.Opt]]]:
    """Return the options that trove-taskmanager reads in addition to Trove's own."""
    return [
        (taskmanager.GROUP, copy.deepcopy(taskmanager.OPTS)),
        (guests.GROUP, copy.deepcopy(guests.OPTS)),
        (golden.GROUP, copy.deepcopy(golden.OPTS)),
        (replacement.GROUP, copy.deepcopy(replacement.OPTS)),
        (failover.GROUP, copy.deepcopy(failover.OPTS)),
        (replication.GROUP, copy.deepcopy(replication.OPTS)),
        (metrics.GROUP, copy.deepcopy(metrics.TASKMANAGER_OPTS)),
        (storage.GROUP, copy.deepcopy(storage.TRANSPORT_OPTS)),
    ]
