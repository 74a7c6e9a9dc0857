# SPDX-License-Identifier: Apache-2.0
"""Trove's own Cinder client, for ``[DEFAULT] remote_cinder_client``, with one difference.

Trove's API lets a tenant restore a backup only if Cinder finds its snapshot. With this client a
copy in the vault suffices.
"""

import types
from typing import Any

import cinderclient.exceptions

from trove_ceph.db import backups
from trove_ceph.trove_adapter import limited_clients


def cinder_client(context: Any, region_name: str | None = None) -> '_Cinder':
    """Return the client with the rights of ``[service_credentials]``, as Trove does by default."""
    return _Cinder(limited_clients.cinder_client(context, region_name))


class _Cinder:
    def __init__(self, stock: Any):
        self._stock = stock
        self.volume_snapshots = _Snapshots(stock.volume_snapshots)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stock, name)


class _Snapshots:
    def __init__(self, stock: Any):
        self._stock = stock

    def get(self, snapshot_id: str) -> Any:
        """Return a snapshot, or a substitute if it is gone and its copy is in the vault."""
        try:
            return self._stock.get(snapshot_id)
        except cinderclient.exceptions.NotFound:
            if any(one.copied_at for one in backups.BackupStore().with_snapshot(snapshot_id)):
                return types.SimpleNamespace(id=snapshot_id)
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stock, name)
