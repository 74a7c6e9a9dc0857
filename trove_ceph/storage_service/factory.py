# SPDX-License-Identifier: Apache-2.0
"""Create the service for a real Ceph cluster."""

from oslo_config import cfg

from trove_ceph.golden import build
from trove_ceph.storage.ceph import backend, connection, keyring, lock_store
from trove_ceph.storage_service import server
from trove_ceph.verification import inspection, isolation, report


def make(
    options: cfg.ConfigOpts.GroupAttr,
    verification: cfg.ConfigOpts.GroupAttr,
    name: str | None = None,
) -> server.Service:
    """Return a copy of the service, without the bus and not yet connected to Ceph.

    :param verification: the options of inspections
    :raises InvalidTiersError: the tiers file is invalid, or gives the user no pools
    """
    inspector = _inspector(options, verification)
    lock_timeout_sec = server.lock_store_timeout_sec(options.lock_duration_sec)
    return server.Service(
        storage(options),
        lock_store.CephLockStore(lambda: _connection(options, lock_timeout_sec)),
        server.find_pools(options),
        options,
        name,
        inspector,
        _builder(options, verification, inspector) if inspector else None,
    )


def storage(options: cfg.ConfigOpts.GroupAttr) -> backend.CephBackend:
    """Return the cluster's back end with a new client."""
    return backend.CephBackend(_connection(options, options.operation_timeout_sec))


def _inspector(
    options: cfg.ConfigOpts.GroupAttr, verification: cfg.ConfigOpts.GroupAttr
) -> inspection.Inspector | None:
    if not verification.mysqld_roots:
        return None
    settings = report.settings_of(verification)
    return inspection.Inspector(
        storage(options),
        isolation.Sandboxes(options.ceph_conf, options.ceph_user, settings, keyring.find_key),
        settings,
    )


def _builder(
    options: cfg.ConfigOpts.GroupAttr,
    verification: cfg.ConfigOpts.GroupAttr,
    inspector: inspection.Inspector,
) -> build.Builder:
    settings = report.settings_of(verification)
    return build.Builder(storage(options), inspector, lambda: build.HostContent(settings))


def _connection(options: cfg.ConfigOpts.GroupAttr, timeout_sec: int) -> connection.Connection:
    cluster = (options.ceph_conf, options.ceph_user, options.connect_timeout_sec)
    return connection.Connection(*cluster, timeout_sec)
