# SPDX-License-Identifier: Apache-2.0
"""The service on a real cluster."""

from oslo_config import cfg

from trove_ceph.storage.ceph import backend, connection, keyring, lock_store
from trove_ceph.storage_service import server
from trove_ceph.verification import inspection, isolation, report


def make(
    options: cfg.ConfigOpts.GroupAttr,
    verification: cfg.ConfigOpts.GroupAttr,
    name: str | None = None,
) -> server.Service:
    """Return a copy of the service by its options, without the bus; Ceph is not asked yet.

    :param verification: the options of inspections
    :raises InvalidTiersError: the tiers file is wrong, or gives the user nothing
    """
    ledger_timeout_sec = server.ledger_timeout_sec(options.lock_duration_sec)
    return server.Service(
        storage(options),
        lock_store.CephLockStore(lambda: _connection(options, ledger_timeout_sec)),
        server.find_pools(options),
        options,
        name,
        _inspector(options, verification),
    )


def storage(options: cfg.ConfigOpts.GroupAttr) -> backend.CephBackend:
    """Return the cluster through a client of its own."""
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


def _connection(options: cfg.ConfigOpts.GroupAttr, timeout_sec: int) -> connection.Connection:
    place = (options.ceph_conf, options.ceph_user, options.connect_timeout_sec)
    return connection.Connection(*place, timeout_sec)
