# SPDX-License-Identifier: Apache-2.0
"""A source and its replicas, which a taskmanager and a tenant change while clients write and read.

The servers are real, and so is what their agents do with them.
"""

import contextlib
import datetime
import shutil
import uuid

from trove_ceph import waiting
from trove_ceph.db.replica_record import ReplicaRecord, ReplicaState
from trove_ceph.guestagent import replication_user
from trove_ceph.strategies.replication import drift, fitness, observation, semi_sync
from trove_ceph.tests.functional import (
    ledger_clients,
    network_link,
    replication_servers,
    replication_world,
)

NOW = datetime.datetime(2026, 1, 1)
#: What may lead to a fresh clone: only that a replica cannot follow any more.
_LIMITS = drift.Limits(True, 0, 0, 0, 100)
#: A commit waits so long for a replica that is cut off.
WAIT_MS = 2_000
#: A commit waits until a replica has received it.
LONG_MS = 600_000
_POLL_SEC = 0.1


class _LinkedApp(replication_servers.App):
    """An application that its replicas reach over a network that can be cut."""

    def __init__(self, server):
        super().__init__(server)
        self.link = network_link.Link(super().get_port())

    def get_port(self):
        return self.link.port


class GroupTestCase(replication_servers.ReplicationTestCase):
    """Base class of tests of a source with replicas that clients use.

    :ivar random: decides everything that is random
    :ivar apps: the source and its replicas by the ids of their instances
    :ivar source_id: of the instance that is the source
    :ivar has_semi_sync: the policy of the source
    """

    app_class = _LinkedApp
    # Small binary logs, so that there is always one to purge.
    options = {
        'performance_schema': 'ON',
        'relay_log_recovery': 'ON',
        'max_binlog_size': 64 * 1024,
    }

    def set_up_group(self, random):
        """Fill the source, and start its clients."""
        self.random = random
        self.has_semi_sync = False
        self._number, self._readers = 1, {}
        self.source_id = self._new_id()
        self.apps = {self.source_id: self.source}
        self.world = replication_world.World(self.apps, self.strategy)
        self.world.semi_sync_timeout_ms = WAIT_MS
        self.world.add(self.source_id)
        for statement in ledger_clients.FILL:
            self.source.query(statement)
        self.writer = ledger_clients.Writer(self._targets, random.randrange(2**32))
        self.addCleanup(self._end_clients)
        self.writer.start()
        self._read(self.source_id)

    def _end_clients(self):
        for client in (self.writer, *self._readers.values()):
            client.end()
        for app in self.apps.values():
            app.link.close()

    def _new_id(self):
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))

    def _targets(self):
        """Return the servers that a client tries."""
        apps = dict(self.apps)
        first = apps.pop(self.source_id)
        return [first, *apps.values()]

    @property
    def source_app(self):
        return self.apps[self.source_id]

    @property
    def replicas(self):
        """The ids of the replicas, in order."""
        return sorted(self.apps.keys() - {self.source_id})

    def name(self, instance_id):
        """Return a short name of an instance, for messages."""
        return self.apps[instance_id].server.volume.name

    # The operations.

    def create(self):
        """Create a replica; return its id."""
        self._number += 1
        replica_id = self._new_id()
        app = self.make_app(f'r{self._number}', self._number)
        self.clone_to(app, replica_id, self.source_app)
        self.world.add(replica_id, self.source_id)
        self.apps[replica_id] = app
        self._read(replica_id)
        return replica_id

    def _read(self, instance_id):
        self._readers[instance_id] = ledger_clients.Reader(self.apps[instance_id])
        self._readers[instance_id].start()

    def reprovision(self, replica_id):
        """Give a replica a fresh clone of its source, whether its server runs or not."""
        app = self.apps[replica_id]
        self._end_reader(replica_id)
        app.server.stop()
        shutil.rmtree(app.server.data)
        app.configuration_manager = replication_servers.Configuration()
        self.clone_to(app, replica_id, self.source_app)
        request_id = self._new_id()
        self.strategy.set_request(app, request_id)
        self.assertTrue(self.strategy.is_done(app, request_id))
        self.world.renewed.pop(replica_id, None)
        self.world.paused.discard(replica_id)
        self._read(replica_id)

    def _end_reader(self, instance_id):
        reader = self._readers.pop(instance_id)
        reader.end()
        reader.check()

    def promote(self, replica_id, strike=None):
        """Promote a replica, as the taskmanager does; see :meth:`_find_source`."""
        self.world.request('PROMOTING', *self.world.tasks)
        changes, _ = self.world.changes(strike)
        try:
            changes.promote(replica_id)
        finally:
            self._find_source()

    def eject(self):
        """Eject the source, which leaves the group."""
        old_id = self.source_id
        self.world.request('EJECTING', *self.world.tasks)
        changes, _ = self.world.changes()
        changes.eject(old_id)
        self.assertEqual('EJECTION_ERROR', self.world.tasks[old_id])
        self._remove_ejected(old_id)

    def take_over(self):
        """Have a replica take over from the source, as a failover does.

        :raises SourceNotChangedError: none may
        """
        old_id = self.source_id
        changes, _ = self.world.changes()
        demands = fitness.Demands(
            self.world.source_seen_at, lambda: None, lambda: None, lambda _chosen: None
        )
        changes.take_over(old_id, None, demands)
        self._remove_ejected(old_id)

    def _remove_ejected(self, old_id):
        self.assertIsNone(self.apps[old_id].server.pid)
        del self.world.tasks[old_id], self.world.sources[old_id]
        self._find_source()
        self.remove(old_id)

    def _find_source(self):
        """Find which instance is the source, in Trove; that was it before, if it still is."""
        (self.source_id,) = [one for one, source in self.world.sources.items() if source is None]

    def detach(self, replica_id):
        """Detach a replica, which leaves the group; return its application."""
        app = self.apps[replica_id]
        self.world.request('DETACHING', replica_id)
        # Both accept writes then.
        self.world.may_have_two_writers = True
        changes, _ = self.world.changes()
        changes.detach(replica_id)
        self.world.may_have_two_writers = False
        self.assertIsNone(self.world.sources[replica_id])
        return app

    def delete(self, replica_id):
        """Delete a replica."""
        self.world.request('DELETING', replica_id)
        changes, operations = self.world.changes()
        with operations.deleting(replica_id):
            changes.forget(replica_id)
            self.remove(replica_id)

    def remove(self, instance_id):
        """Remove a server that is deleted."""
        app = self.apps.pop(instance_id)
        self.world.remove(instance_id)
        app.server.kill()
        app.link.close()
        self._end_reader(instance_id)
        shutil.rmtree(app.server.volume)

    def start_again(self, instance_id, is_moved):
        """Start a server that was killed.

        :param is_moved: on a new machine; otherwise docker does it
        """
        app = self.apps[instance_id]
        if is_moved:
            is_source = instance_id == self.source_id
            sides = {'as_source': is_source, 'as_replica': not is_source, 'timeout_ms': WAIT_MS}
            self.move(app, not is_source, **(sides if self.has_semi_sync else {}))
        else:
            app.start()
            self.strategy.resume(app)

    def stop_receiving(self, replica_id):
        """Have a replica receive no more, as a refused ejection leaves it."""
        self.world.paused.add(replica_id)
        self.strategy.stop_receiving(self.apps[replica_id])

    def receive_again(self):
        """Have the replicas receive again that were stopped, as the watch does."""
        changes, _ = self.world.changes()
        changes.follow_again(self.source_id)

    # What the watch does after each operation.

    def resume(self):
        """Have operations go on that have not ended."""
        self.world.recover()
        self._find_source()

    def settle(self):
        """Have all replicas follow the source, as the watch and a tenant have them."""
        self.resume()
        self.world.check_nothing_left()
        for replica_id in self.replicas:
            self._repair(replica_id)
        self._apply_semi_sync()
        self.world.request('NONE', *self.world.tasks)

    def _repair(self, replica_id):
        """Give a replica a fresh clone if it needs one, and wait until it follows."""
        deadline = waiting.Deadline(ledger_clients.TIMEOUT_SEC)
        while True:
            if replica_id in self.world.renewed or self._needs_clone(replica_id):
                self.reprovision(replica_id)
            look = self._look(replica_id)
            if look.status is not None and look.status.is_replicating:
                return
            self.strategy.resume(self.apps[replica_id])
            if not deadline.pause(_POLL_SEC):
                raise AssertionError(f'{self.name(replica_id)} does not follow: {look}')

    def _look(self, replica_id):
        record = ReplicaRecord(
            instance_id=replica_id,
            project_id='project',
            source_id=self.source_id,
            state=ReplicaState.FOLLOWING,
            created_at=NOW,
            updated_at=NOW,
        )
        status = None
        if self.apps[replica_id].server.pid is not None:
            status = self.world.agents().status(replica_id)
        return observation.ReplicaLook(record, status)

    def _needs_clone(self, replica_id):
        """Return whether the watch requests a fresh clone, or a tenant, who gives a surplus up."""
        look = self._look(replica_id)
        source = self.world.agents().status(self.source_id)
        if observation.has_surplus(look.record, look.status, source):
            return True
        return drift.find_drift(look, source, _LIMITS, drift.Before(), NOW) is not None

    def _apply_semi_sync(self):
        agents = self.world.agents()
        found = observation.GroupLook(
            self.source_id,
            agents.status(self.source_id),
            [self._look(replica_id) for replica_id in self.replicas],
        )
        semi_sync.apply(agents, found, self.has_semi_sync, WAIT_MS)
        self.source_app.wait_for_status(
            semi_sync_source=self.has_semi_sync and bool(self.replicas),
            semi_sync_clients=len(self.replicas) if self.has_semi_sync else 0,
        )

    def wait_for_each_commit(self):
        """Have each commit of the source wait for a replica, however long."""
        deadline = waiting.Deadline(ledger_clients.TIMEOUT_SEC)
        # A commit that waits already does so for the former time.
        with self.writer.paused():
            self.world.agents().set_semi_sync(self.source_id, True, False, LONG_MS)
            while self._semi_sync_status('status', 'wait_sessions') != ['ON', '0']:
                self.assertTrue(deadline.pause(_POLL_SEC), 'the source waits for no replica')

    def _semi_sync_status(self, *names):
        found = dict(self.source_app.query("SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync_source_%'"))
        return [found[f'Rpl_semi_sync_source_{name}'] for name in names]

    # What must hold after each operation.

    def check(self):
        """Check that all servers have the same data, and that one of them accepts writes."""
        self.assertEqual([self.source_id], self.world.writers())
        with self.writer.paused(), self._source_read_only():
            servers = [self.source_app, *(self.apps[one] for one in self.replicas)]
            for replica in servers[1:]:
                self.assert_same_transactions(self.source_app, replica)
            self._check_identities(servers)
            content = _content_of(self.source_app)
            for replica in servers[1:]:
                self.assertEqual(content, _content_of(replica))
                self.assertEqual('OFF', replica.value('@@event_scheduler'))
            self._check_ledger()
        self.assertEqual('ON', self.source_app.value('@@event_scheduler'))
        for client in (self.writer, *self._readers.values()):
            client.check()
        self.writer.wait_for(3)

    @contextlib.contextmanager
    def _source_read_only(self):
        agents = self.world.agents()
        agents.make_read_only(self.source_id, True)
        yield
        self.assertEqual([], self.world.writers())
        agents.make_read_only(self.source_id, False)

    def _check_identities(self, servers):
        for name in ('@@server_uuid', '@@server_id'):
            found = [app.value(name) for app in servers]
            self.assertEqual(len(servers), len(set(found)), f'{name}: {found}')
        expected = sorted(replication_user.name_of(one) for one in self.replicas)
        users = "SELECT User FROM mysql.user WHERE User LIKE 'slave\\_%' ORDER BY User"
        for app in servers:
            self.assertEqual(expected, [user for (user,) in app.query(users)])

    def _check_ledger(self):
        """Check that the source has each commit that was acknowledged, and none that was not made.

        With :meth:`forget_missing`, no commit is one that was lost.
        """
        present = ledger_clients.read_numbers(self.source_app)
        self.assertEqual(set(), self.writer.acknowledged() - present)
        self.assertLessEqual(max(present, default=0), self.writer.requested)

    def look_at_source(self):
        """Look at the source as the watch does; return the commits that it has for sure."""
        acknowledged = self.writer.acknowledged()
        self.world.last_known = self.world.agents().status(self.source_id).gtid_executed
        self.world.source_seen_at = NOW
        return acknowledged

    def forget_missing(self):
        """Have the writer forget what the new source of an ejection lacks; return the numbers.

        The writer may have continued on it.
        """
        acknowledged = self.writer.acknowledged()
        missing = acknowledged - ledger_clients.read_numbers(self.source_app)
        self.writer.forget(missing)
        return missing


def _content_of(app):
    """Return definitions and checksums of all tables."""
    names = [name for (name,) in app.query('SHOW TABLES IN shop')]
    definitions = [
        # The counter of a table also counts what was rolled back.
        app.query(f'SHOW CREATE TABLE shop.{name}')[0][1].partition(') ENGINE')[0]
        for name in names
    ]
    tables = ', '.join(f'shop.{name}' for name in names)
    return definitions, app.query(f'CHECKSUM TABLE {tables}')
