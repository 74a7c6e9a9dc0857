# SPDX-License-Identifier: Apache-2.0
"""Nova, Neutron, Cinder, Ceph, warm guests and Trove in memory, for replacements of a server.

They behave where it matters as the real ones: Nova deletes a volume with its server if it is told
to, a server whose host is down is deleted while its process runs on, a process opens an image as a
new client, and a client that is not on the blocklist can write.
"""

import dataclasses
import itertools

from trove_ceph import exceptions
from trove_ceph.db.guest_record import GuestState
from trove_ceph.strategies.guests.bind import BindRequest
from trove_ceph.strategies.guests.dependencies import ServerFacts
from trove_ceph.strategies.replacement.dependencies import (
    InstanceFacts,
    Ports,
    ServerNeeds,
)
from trove_ceph.tests.unit.db import guest_helpers

VOLUME, INSTANCE, OLD = 'volume', 'instance', 'server-old'
_IN_USE = 'the volume or a port is in use'


@dataclasses.dataclass
class Server:
    """A server in Nova, and its process.

    :ivar deletes_volume: whether Nova deletes the attached volume with the server
    :ivar deletion_looks: how often Nova still shows it after the request to delete it
    :ivar boot_looks: how often Nova still shows it as being booted
    """

    server_id: str
    host: str
    status: str = 'ACTIVE'
    fault: str = ''
    deletes_volume: bool = True
    replacement_id: str | None = None
    flavor: str = 'small'
    deletion_looks: int | None = None
    boot_looks: int = 0
    task: str = ''


@dataclasses.dataclass
class Port:
    """A port in Neutron.

    :ivar device: the server that has it
    :ivar kind: ``instance``, ``management``, ``created`` for a replacement, or ``guest``
    """

    kind: str
    device: str | None
    is_up: bool = True


class Ceph:
    """The clients of the image of the volume."""

    def __init__(self):
        self._numbers = itertools.count()
        # The server of each client that lives; clients on the blocklist cannot write.
        self.clients, self.blocklist = {}, set()

    def open(self, server_id):
        self.clients[next(self._numbers)] = server_id

    def close(self, server_id):
        self.clients = {one: found for one, found in self.clients.items() if found != server_id}

    def fence(self, only=None):
        """Fence the clients; None: all that live."""
        self.blocklist |= set(self.clients) if only is None else only

    def writers(self):
        """Return the servers whose processes can write."""
        return {found for one, found in self.clients.items() if one not in self.blocklist}


class Servers:
    """Nova."""

    def __init__(self, world):
        self._world = world

    def find_needs(self, record):
        if self._world.needs_error:
            raise exceptions.ReplacementRefusedError(self._world.needs_error)
        return ServerNeeds('zone', self.find_image(record))

    def check_flavor(self, record):
        if record.flavor_id in self._world.gone_flavors:
            raise exceptions.ReplacementRefusedError('the flavor is gone')

    def find_image(self, record):
        if self._world.image is None:
            raise exceptions.ReplacementRefusedError('there is no guest image')
        return self._world.image

    def is_in_group(self, record):
        return self._world.is_in_group

    def find(self, server_id):
        world = self._world
        server = world.servers.get(server_id)
        if server is None:
            return None
        if server.deletion_looks is not None:
            server.deletion_looks -= 1
            if server.deletion_looks < 0:
                world.finish_deletion(server)
                return None
        if server.status == 'BUILD':
            server.boot_looks -= 1
            if server.boot_looks < 0:
                server.status = 'ACTIVE'
                world.ceph.open(server_id)
        return _facts(server)

    def keep_volume(self, server_id, volume_id):
        assert volume_id == VOLUME
        server = self._world.servers.get(server_id)
        if server is not None:
            server.deletes_volume = False

    def request_deletion(self, server_id, since):
        world = self._world
        world.reported_since = since
        if world.host_looks > 0:
            world.host_looks -= 1
            raise exceptions.InProgressError('its host has not reported yet')
        server = world.servers.get(server_id)
        if server is not None and server.deletion_looks is None:
            server.deletion_looks = world.deletion_looks
            if world.restarts_once:
                # The host starts the server again before it hears of the deletion.
                world.restarts_once = False
                world.ceph.open(server_id)

    def find_booted(self, record):
        return [
            dataclasses.replace(_facts(one), flavor_id=one.flavor)
            for one in self._world.servers.values()
            if one.replacement_id == record.replacement_id
        ]

    def find_other_hosts(self, record):
        assert record.old_host == 'host-1'
        return self._world.other_hosts

    def is_host_down(self, host):
        return host in self._world.down_hosts

    def boot(self, record, host):
        world = self._world
        world.at('is about to boot')
        if record.image_id != world.image:
            raise exceptions.ServiceUnavailableError('Nova refuses it: the image is gone')
        if record.flavor_id in world.gone_flavors:
            raise exceptions.ServiceUnavailableError('Nova refuses it: the flavor is gone')
        if world.boot_refusals > 0:
            world.boot_refusals -= 1
            raise exceptions.ServiceUnavailableError('Nova refuses it: quota exceeded')
        ports = (*record.port_ids, record.new_management_port_id)
        if world.attached or not world.ports.keys() >= set(ports):
            raise exceptions.ServiceUnavailableError(f'Nova refuses it: {_IN_USE}, or is gone')
        server_id = world.new_id('server-booted')
        world.requested_hosts.append(host)
        host = host or world.chosen_host
        server = Server(server_id, host, 'BUILD', replacement_id=record.replacement_id)
        server.flavor = record.flavor_id
        server.boot_looks = world.boot_looks
        world.servers[server_id] = server
        if any(world.ports[one].device for one in ports):
            server.status, server.fault = 'ERROR', _IN_USE
        elif world.boot_errors > 0 or {host, server.flavor} & world.full_hosts:
            world.boot_errors -= 1
            server.status, server.fault = 'ERROR', 'No valid host was found.'
        if server.fault != _IN_USE:
            world.attached.add(server_id)
            for port_id in ports:
                world.ports[port_id].device = server_id
        return server_id


class Network:
    """Neutron."""

    def __init__(self, world):
        self._world = world

    def find_ports(self, record):
        def of(kind):
            return tuple(
                port_id
                for port_id, one in self._world.ports.items()
                if one.device == record.old_server_id and one.kind == kind
            )

        return Ports(of('instance'), of('management'))

    def cut_off(self, port_ids):
        for port_id in port_ids:
            if port_id in self._world.ports:
                self._world.ports[port_id].is_up = False

    def free(self, port_ids, server_ids):
        for port_id in set(port_ids) - set(self.find_gone(port_ids)):
            port = self._world.ports[port_id]
            if port.device not in (None, *server_ids):
                continue
            assert port.device not in self._world.servers, 'a port was taken from a server'
            port.device = None

    def find_gone(self, port_ids):
        return [one for one in port_ids if one not in self._world.ports]

    def create_management_port(self, record):
        found = self.find_created(record)
        if found:
            return found[0]
        if len(self._world.ports) >= self._world.most_ports:
            self.delete(record.old_management_port_ids)
        if len(self._world.ports) >= self._world.most_ports:
            raise exceptions.NoPortError('no more IP addresses in the network')
        port_id = self._world.new_id('port-created')
        self._world.ports[port_id] = Port('created', None)
        return port_id

    def find_created(self, record):
        return [one for one, port in self._world.ports.items() if port.kind == 'created']

    def delete(self, port_ids):
        for port_id in port_ids:
            port = self._world.ports.pop(port_id, None)
            assert port is None or port.kind != 'instance'


class Volumes:
    """Cinder and the storage service."""

    def __init__(self, world):
        self._world = world

    def check(self, volume_id):
        if not self._world.is_on_tier:
            raise exceptions.ReplacementRefusedError(f'volume {volume_id}: is on no tier')

    def fence(self, volume_id, confirm):
        """As the real one: cut off the clients that were there before the claim was confirmed."""
        assert volume_id == VOLUME
        world = self._world
        only = set(world.ceph.clients)
        world.at('listed the clients')
        confirm()
        world.at('is about to fence')
        if strangers := set(world.ceph.clients) - only - world.ceph.blocklist:
            raise exceptions.NotFencedError(f'volume {volume_id}: held by {strangers}')
        world.is_crashed |= bool(world.serving & world.ceph.writers())
        world.ceph.fence(only)
        if world.unproved > 0:
            world.unproved -= 1
            raise exceptions.NotFencedError(f'volume {volume_id}: still held')

    def detach(self, volume_id, server_id):
        assert volume_id == VOLUME and server_id not in self._world.servers
        self._world.attached.discard(server_id)
        if self._world.attached:
            raise exceptions.InProgressError(f'volume {volume_id}: is attached')


class Guests:
    """The warm guests."""

    def __init__(self, world):
        self._world = world

    def claim(self, record, not_on):
        world = self._world
        for guest in world.guests.values():
            is_own = guest.state is GuestState.CLAIMED and guest.instance_id == record.instance_id
            if is_own and guest.flavor_id == record.flavor_id:
                return guest
            if is_own:
                self.retire(guest.guest_id, 'another flavor is needed')
        for guest in world.guests.values():
            fits = guest.host != not_on and guest.image_id == record.image_id
            fits &= guest.flavor_id == record.flavor_id
            if guest.state is GuestState.READY and fits:
                return world.set_guest(
                    guest, state=GuestState.CLAIMED, instance_id=record.instance_id
                )
        return None

    def bind(self, guest, request, check):
        """As the real one: the guest that cannot be bound is deleted and fenced."""
        world = self._world
        assert isinstance(request, BindRequest)
        server = world.servers[guest.server_id]
        try:
            self._attach(guest, server, request, check)
        except exceptions.TroveCephError:
            check()
            self.retire(guest.guest_id, 'its binding failed')
            server.deletes_volume = False
            world.finish_deletion(server)
            Volumes(world).fence(VOLUME, check)
            raise

    def _attach(self, guest, server, request, check):
        world = self._world
        world.at_bind(0)
        check()
        world.at('is about to attach the volume')
        if world.attached or server.server_id not in world.servers:
            raise exceptions.ServiceUnavailableError('the volume is attached, or the server gone')
        world.attached.add(server.server_id)
        world.ceph.open(server.server_id)
        world.at_bind(1)
        for port_id in request.port_ids:
            check()
            world.at('is about to attach a port')
            port = world.ports.get(port_id)
            if port is None or port.device or server.server_id not in world.servers:
                raise exceptions.ServiceUnavailableError('the port is in use, or one of both gone')
            port.device = server.server_id
        world.at_bind(2)
        if world.bind_errors > 0:
            world.bind_errors -= 1
            raise exceptions.ServiceUnavailableError('the port was not plugged')
        check()
        world.at('is about to record the binding')
        if world.guests.get(guest.guest_id) != guest:
            raise exceptions.InvalidTransitionError(f'{guest}: is not claimed')
        world.set_guest(guest, state=GuestState.BOUND)
        world.at_bind(3)

    def find(self, guest_id):
        return self._world.guests.get(guest_id)

    def retire(self, guest_id, reason):
        guest = self._world.guests.get(guest_id)
        if guest is not None:
            self._world.set_guest(guest, state=GuestState.RETIRED, reason=reason)

    def retire_old(self, record):
        for guest in list(self._world.guests.values()):
            if guest.state is GuestState.BOUND and guest.server_id == record.old_server_id:
                self.retire(guest.guest_id, 'its server was replaced')


class Instances:
    """Trove's tables."""

    def __init__(self, world):
        self._world = world

    def find(self, instance_id):
        world = self._world
        row = world.trove.find(instance_id)
        return InstanceFacts(
            instance_id=instance_id,
            project_id='p',
            name='db1',
            volume_id=VOLUME,
            server_id=world.shown,
            flavor_id=world.flavor,
            version_id='version',
            task=world.TASKS[row.task_id],
            service_status=world.service_status,
            agent_seen_at=world.agent_seen_at,
            is_deleted=bool(row.deleted),
            is_being_backed_up=world.is_being_backed_up,
            source_id=world.source_id,
            source_status='HEALTHY' if world.source_serves else 'SHUTDOWN',
            source_seen_at=world.now,
            source_change=world.source_change,
        )

    def bind_request(self, record):
        return BindRequest(INSTANCE, 'db1', VOLUME, record.port_ids, {}, {}, ())

    def show_server(self, record):
        world = self._world
        if world.trove.task(INSTANCE) == world.DELETING:
            raise exceptions.ReplacementCanceledError('it is being deleted')
        world.shown, world.flavor = record.new_server_id, record.flavor_id
        world.service_status = 'BUILDING'

    def report_healthy(self, instance_id):
        self._world.service_status = 'HEALTHY'

    def report_failed(self, instance_id, error):
        self._world.service_status, self._world.fault = 'FAILED', error

    def record_fault(self, instance_id, error):
        self._world.fault = error


def ready_guest(guest_id, now, host, image='image', flavor='small'):
    """Return the record of a guest that waits, whose server has the same name."""
    facts = {'server_id': f'server-{guest_id}', 'host': host, 'image_id': image}
    facts['flavor_id'] = flavor
    return guest_helpers.record(guest_id, now, GuestState.READY, **facts)


def _facts(server):
    name, *found = server.server_id, server.status, server.host, server.fault, server.task
    return ServerFacts(name, name, *found)
