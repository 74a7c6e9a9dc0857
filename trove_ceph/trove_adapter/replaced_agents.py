# SPDX-License-Identifier: Apache-2.0
"""The guest agents of an instance whose server is replaced."""

from collections.abc import Callable
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.db.replacement_record import ReplacementRecord
from trove_ceph.strategies.replacement.dependencies import StartProgress
from trove_ceph.trove_adapter import (
    agent_queues,
    guest_rpcapi,
    start_replication,
    start_settings,
)

LOG = logging.getLogger(__name__)


class ReplacedAgents:
    """The agents of replaced servers; see :class:`.replacement.dependencies.Agents`.

    :param conf: Trove's, whose bus the agents use
    :param guest: returns the agent of an instance
    :param find_flavor: returns the facts of a flavor by its id
    :param find_replication: see :meth:`.ReplicationOfStarts.find`
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        guest: Callable[[str], guest_rpcapi.GuestAPI],
        find_flavor: Callable[[str], Any],
        find_replication: Callable[[str], start_replication.StartReplication],
    ):
        self._conf = conf
        self._guest = guest
        self._find_flavor = find_flavor
        self._find_replication = find_replication

    def renew_queues(self, instance_id: str) -> None:
        """Give the new agent of an instance empty queues, which keep the requests until it listens.

        Best effort.
        """
        if not agent_queues.delete(self._conf, instance_id):
            # The creation would wait until the bus answers.
            return
        try:
            self._guest(instance_id).create_queue()
        except exceptions.GuestUnavailableError as error:
            LOG.warning('Requests before its agent listens are lost: %s', error)

    def stop_server(self, instance_id: str) -> None:
        """Stop MySQL on the old server.

        :raises GuestUnavailableError: the agent did not stop it
        """
        self._guest(instance_id).stop_server()

    def restart_server(self, instance_id: str) -> None:
        """Start MySQL on the old server again.

        :raises GuestUnavailableError: the agent did not start it
        """
        self._guest(instance_id).restart_server()

    def start_moved_server(self, record: ReplacementRecord) -> StartProgress:
        """Have the agent of the new server start MySQL, or tell how far it is.

        :raises GuestUnavailableError: the agent does not answer yet
        """
        # An instance is shown its new server only when that has an id.
        assert record.new_server_id is not None
        settings = start_settings.load(str(record), record.instance_id, self._find_flavor)
        replication = self._find_replication(record.instance_id)
        return self._guest(record.instance_id).start_moved_server(
            *(record.replacement_id, settings.version, settings.contents, settings.overrides),
            server_id=record.new_server_id,
            is_replica=replication.is_replica,
            semi_sync=replication.semi_sync,
        )
