# SPDX-License-Identifier: Apache-2.0
"""The clients and settings that keeping the pools of warm guests needs."""

import dataclasses
import datetime
import enum
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from trove_ceph.db import claims, guests, heartbeat
from trove_ceph.db.guest_record import GuestRecord, PoolKey
from trove_ceph.guestagent.waiting_messages import Load, LoadState
from trove_ceph.strategies.backup import backup_types
from trove_ceph.strategies.guests.hot_spec import HotSpec, HotVolume
from trove_ceph.strategies.guests.pool_spec import PoolSpec
from trove_ceph.strategies.restore import golden_volume

#: Before the id of a guest in the names of its server and its port.
_NAME_PREFIX = 'trove-guest-'


def guest_name(guest_id: str) -> str:
    """Return the name of a guest's server and port until an instance has them."""
    return f'{_NAME_PREFIX}{guest_id}'


class ResourceKind(enum.StrEnum):
    """What a guest has in OpenStack."""

    SERVER = 'server'
    PORT = 'port'


@dataclasses.dataclass(frozen=True)
class GuestResource:
    """A server or a port with the name of a guest.

    :param created_at: with its time zone
    """

    kind: ResourceKind
    resource_id: str
    name: str
    created_at: datetime.datetime

    @property
    def guest_id(self) -> str:
        return self.name.removeprefix(_NAME_PREFIX)


@dataclasses.dataclass(frozen=True)
class PingAnswer:
    """The answer of a waiting guest's agent; the agent is not trusted.

    :param can_bind: whether the guest can become the server of an instance
    :param reason: why it cannot
    :param version: of trove_ceph in the guest
    :param load: whether MySQL runs on it
    """

    can_bind: bool
    reason: str = ''
    version: str = ''
    load: LoadState = LoadState.NONE


class WaitingGuests(Protocol):
    """The agents of guests that wait for an instance."""

    def ping(self, guest: GuestRecord) -> PingAnswer:
        """Ask an agent whether its guest can be bound; called from several threads at once.

        :raises GuestUnavailableError: it did not answer within some seconds, or its answer is not
            authentic
        """

    def load(self, guest: GuestRecord, load: Load) -> None:
        """Have a guest start MySQL on a volume, in the background; idempotent.

        :raises GuestUnavailableError: it refused, or did not answer
        """


@dataclasses.dataclass(frozen=True)
class ServerFacts:
    """A server in Nova.

    :param status: such as ACTIVE or ERROR
    :param fault: why it is in ERROR
    :param task: what Nova is doing with it, such as powering-off; empty: nothing
    :param flavor_id: with which a replacement has booted it; None: it is not known
    """

    server_id: str
    name: str
    status: str
    host: str | None = None
    fault: str = ''
    task: str = ''
    flavor_id: str | None = None


@dataclasses.dataclass(frozen=True)
class StartSettings:
    """With what Trove has new instances of a pool start MySQL, without a configuration group.

    :param version: of the datastore version, the tag of MySQL's image
    :param contents: of my.cnf
    """

    version: str
    contents: str = dataclasses.field(repr=False)


class HotVolumes(Protocol):
    """The volumes of hot guests; see :class:`.hot_volume.HotVolumes`."""

    def guarded(self, beating: heartbeat.Heartbeat, claim: claims.Claim) -> 'HotVolumes': ...
    def find_source(self, spec: HotSpec) -> golden_volume.GoldenSource | None: ...
    def create(
        self, guest: GuestRecord, spec: HotSpec, source: golden_volume.GoldenSource
    ) -> str: ...
    def ensure_attached(self, server_id: str, volume_id: str) -> None: ...
    def remove(self, guest: GuestRecord) -> bool: ...


class GuestServers(Protocol):
    """The servers and ports of guests that wait.

    Each verb raises ServiceUnavailableError when a service of OpenStack refuses or does not answer.
    """

    def pool_key(self, spec: PoolSpec) -> PoolKey:
        """Return what a guest of a pool must have now.

        :raises InvalidConfigurationError: the datastore version or the flavor does not exist
        """

    def start_settings(self, spec: PoolSpec) -> StartSettings:
        """Return with what a new instance of a pool starts MySQL now.

        :raises InvalidConfigurationError: the datastore version or the flavor does not exist
        """

    def make_keys(self) -> str:
        """Return new random keys for the agent of a guest, encrypted."""

    def list_servers(self) -> Mapping[str, Sequence[ServerFacts]]:
        """Return the servers whose names are those of guests, by name."""

    def find_server(self, server_id: str) -> ServerFacts | None:
        """Return a server, even one that Nova will delete after a while; None: it is gone."""

    def find_other_hosts(self, guest: GuestRecord, host: str | None) -> Sequence[str]:
        """Return the hosts that work, but one, in the zone of a guest, in an order of its own.

        :param host: which is left out; None: none is
        """

    def list_disabled_hosts(self) -> Collection[str]:
        """Return the hosts that an operator has disabled, if another one of their zone works."""

    def create_server(self, spec: PoolSpec, guest: GuestRecord, host: str | None) -> str:
        """Boot the server of a guest with the port of its record; return the server's id.

        :param host: on which Nova must place it; None: Nova chooses
        """

    def delete_server(self, server_id: str) -> None:
        """Request the deletion of a server, which Nova then keeps no longer; idempotent.

        :raises InProgressError: Nova does not know yet whether its host works
        """

    def list_ports(self, guest_id: str) -> Sequence[str]:
        """Return the ids of the ports that have the name of a guest."""

    def create_port(self, guest_id: str) -> str:
        """Create the management port of a guest; return its id."""

    def delete_ports(self, port_ids: Collection[str]) -> None:
        """Delete ports; idempotent."""


class Instances(Protocol):
    """Trove's table of instances."""

    def find_instance(self, instance_id: str) -> backup_types.Instance | None:
        """Return an instance, even a deleted one."""

    def list_servers(self, instance_ids: Collection[str]) -> Mapping[str, str | None]:
        """Return the servers of instances, by the ids of those that are not deleted.

        None: there is no server, or an operation is under way that may change it.
        """


@dataclasses.dataclass(frozen=True)
class PoolSettings:
    """The operator's settings, which all pools share; see :mod:`trove_ceph.conf.guests`.

    :param hot_volume: None: ``hot`` is 0
    """

    least: int = 1
    most: int = 5
    demand_share: float = 1.0
    demand_window: datetime.timedelta = datetime.timedelta(minutes=10)
    refill_delay: datetime.timedelta = datetime.timedelta(0)
    boot_timeout: datetime.timedelta = datetime.timedelta(minutes=15)
    ping_interval_sec: float = 30
    unseen_limit: datetime.timedelta = datetime.timedelta(minutes=3)
    max_age: datetime.timedelta = datetime.timedelta(days=7)
    bind_timeout: datetime.timedelta = datetime.timedelta(minutes=2)
    hot: int = 0
    hot_volume: HotVolume | None = None
    load_timeout: datetime.timedelta = datetime.timedelta(minutes=10)


@dataclasses.dataclass(frozen=True)
class KeeperDependencies:
    """The dependencies of the keeper of the pools.

    :param pools: those of the configuration
    :param is_replacing: returns whether the server of an instance is being replaced
    :param forget_agent: deletes the queues of a guest's agent on the message bus, best effort
    :param worker: the name and the rules under which this process claims pools
    :param heartbeat: renews the claims of this process
    :param clock: seconds on a monotonic clock
    """

    store: guests.GuestStore
    servers: GuestServers
    agents: WaitingGuests
    trove: Instances
    hot: HotVolumes
    is_replacing: Callable[[str], bool]
    forget_agent: Callable[[str], object]
    worker: claims.Claimant
    heartbeat: heartbeat.Heartbeat
    pools: tuple[PoolSpec, ...] = ()
    settings: PoolSettings = dataclasses.field(default_factory=PoolSettings)
    clock: Callable[[], float] = time.monotonic
