# SPDX-License-Identifier: Apache-2.0
"""Create what moves the databases of a host from the configuration of trove-taskmanager."""

from collections.abc import Callable, Sequence

from trove_ceph.db import replacements
from trove_ceph.strategies.failover import host_move
from trove_ceph.taskmanager import guest_factory
from trove_ceph.trove_adapter import configuration, failover_signs


def make(
    config_files: Sequence[str],
    host: str,
    reason: str,
    timeout_sec: float,
    note: Callable[[str], None],
) -> host_move.HostMove:
    """Return the move of the databases of one host.

    :raises InvalidConfigurationError: a configuration file cannot be used
    """
    conf = configuration.load('trove-ceph-manage', config_files)
    return host_move.HostMove(
        host=host,
        reason=reason,
        servers=failover_signs.Servers(guest_factory.connect_to_nova(conf)),
        databases=failover_signs.Databases(),
        store=replacements.ReplacementStore(),
        timeout_sec=timeout_sec,
        note=note,
    )
