# SPDX-License-Identifier: Apache-2.0
"""The row of a warm guest as a plain dataclass."""

import dataclasses
import datetime
import enum


class GuestState(enum.StrEnum):
    """The state of a warm guest.

    The server of a booting guest starts; its agent has not said yet that it can be bound. A ready
    one waits for an instance. A loading one gets a volume and starts MySQL on it, and a hot one
    waits for an instance with MySQL running. A claimed one is being bound to its instance, and a
    bound one is the server of its instance. The server, the port and the volume of a retired one
    are deleted.
    """

    BOOTING = 'booting'
    READY = 'ready'
    LOADING = 'loading'
    HOT = 'hot'
    CLAIMED = 'claimed'
    BOUND = 'bound'
    RETIRED = 'retired'


#: The states of a guest that waits for an instance, or will.
WAITING = (GuestState.BOOTING, GuestState.READY, GuestState.LOADING, GuestState.HOT)


@dataclasses.dataclass(frozen=True)
class PoolKey:
    """What a guest must have to become the server of an instance.

    :param flavor_id: of its server
    :param image_id: of its server
    :param config_digest: of its configuration, see :mod:`trove_ceph.trove_adapter.guest_servers`
    :param availability_zone: in which its server was requested; None: in none
    :param pool: the pool to which a request counts that no guest fits
    """

    flavor_id: str
    image_id: str
    config_digest: str
    availability_zone: str | None
    pool: str


@dataclasses.dataclass(frozen=True)
class GuestRecord:
    """A warm guest. Times are by the clock of the database, in UTC, without a time zone.

    :param guest_id: also the identity of its agent on the message bus
    :param pool: the pool in the configuration that it was booted for
    :param created_at: when its boot began
    :param updated_at: when it entered its state
    :param encrypted_key: the keys of its agent while it waits, encrypted
    :param server_id: None until Nova has accepted the server
    :param port_id: its management port; None until Neutron has created it
    :param host: of its server; None until it is known
    :param availability_zone: the zone that was requested; None: none was
    :param instance_id: of the instance that claimed it
    :param reason: why it was retired
    :param seen_at: when its agent last answered
    :param hot_digest: of the volume and the settings with which its MySQL runs, see
        :class:`.hot_spec.HotSpec`; None: it has never been loaded
    :param volume_id: of its volume, which is attached or about to be; None: it has none, or it is
        its instance's
    """

    guest_id: str
    pool: str
    state: GuestState
    flavor_id: str
    image_id: str
    config_digest: str
    created_at: datetime.datetime
    updated_at: datetime.datetime
    encrypted_key: str = dataclasses.field(repr=False)
    server_id: str | None = None
    port_id: str | None = None
    host: str | None = None
    availability_zone: str | None = None
    instance_id: str | None = None
    reason: str | None = None
    seen_at: datetime.datetime | None = None
    hot_digest: str | None = None
    volume_id: str | None = None

    def __str__(self) -> str:
        return f'guest {self.guest_id} of pool {self.pool}'
