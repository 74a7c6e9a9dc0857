# SPDX-License-Identifier: Apache-2.0
"""Entry points ``oslo.config.opts``: what the sample configurations are generated from."""

import copy

from oslo_config import cfg

from trove_ceph.conf import guest, qos, storage, taskmanager, verification


def list_opts() -> list[tuple[cfg.OptGroup, list[cfg.Opt]]]:
    """Return what the guest agent reads."""
    return [(guest.GROUP, copy.deepcopy(guest.OPTS))]


def list_storage_opts() -> list[tuple[cfg.OptGroup, list[cfg.Opt]]]:
    """Return what the storage service reads."""
    return [
        (storage.GROUP, copy.deepcopy(storage.OPTS)),
        (qos.GROUP, copy.deepcopy(qos.list_opts())),
        (verification.GROUP, copy.deepcopy(verification.OPTS)),
    ]


def list_taskmanager_opts() -> list[tuple[cfg.OptGroup, list[cfg.Opt]]]:
    """Return what trove-taskmanager reads besides Trove's own."""
    return [
        (taskmanager.GROUP, copy.deepcopy(taskmanager.OPTS)),
        (storage.GROUP, copy.deepcopy(storage.TRANSPORT_OPTS)),
    ]
