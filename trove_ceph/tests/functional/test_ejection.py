# SPDX-License-Identifier: Apache-2.0
"""A source is ejected: one of two real servers that follow it becomes the source of the other.

Ceph, Cinder, Nova and Trove are in memory. The taskmanager's client validates what the agents of
the real servers answer.
"""

import datetime
import types

from trove_ceph import exceptions, steps, waiting
from trove_ceph.guestagent import replication_user
from trove_ceph.mysql.gtid import GtidSet
from trove_ceph.strategies.replication import ejection, fitness, source_dependencies
from trove_ceph.tests.functional import replication_servers
from trove_ceph.tests.unit.strategies import source_services, source_world
from trove_ceph.trove_adapter import replication_agents

SOURCE = source_world.SOURCE
# In this order, so that the name does not lead to the right choice.
BEHIND, AHEAD = '01234567-89ab-cdef-0123-456789abcdef', 'fedcba98-7654-3210-fedc-ba9876543210'
LOST = 3
FILL = """
CREATE DATABASE shop
CREATE TABLE shop.orders (number INT PRIMARY KEY AUTO_INCREMENT, note TEXT)
SET PERSIST max_connections = 77
""".strip()


class Volumes(source_services.Volumes):
    """The data volumes; no replica may accept writes before that of the source is cut off."""

    def __init__(self, world, replicas):
        super().__init__(world)
        self._replicas = replicas

    def fence(self, volume_id, confirm=None):
        for replica in self._replicas:
            if not replica.status()['is_read_only']:
                raise AssertionError(f'a replica accepts writes beside {volume_id}')
        super().fence(volume_id, confirm)


class EjectionTest(replication_servers.ReplicationTestCase):
    def setUp(self):
        super().setUp()
        for statement in FILL.splitlines():
            self.source.query(statement)
        self.apps = {SOURCE: self.source}
        for server_id, name in enumerate((BEHIND, AHEAD), 2):
            self.apps[name] = self.make_app(f'r{server_id}', server_id)
            self.clone_to(self.apps[name], name)
        self.behind, self.ahead = self.apps[BEHIND], self.apps[AHEAD]
        self.world = source_world.World((BEHIND, AHEAD))
        self.world.request('EJECTING')

    def write(self, app, note, count=1):
        for _ in range(count):
            app.query('INSERT INTO shop.orders (note) VALUES (%s)', note)

    def notes(self, app):
        return [note for (note,) in app.query('SELECT note FROM shop.orders ORDER BY number')]

    def wait_until_received(self, app, gtids):
        deadline = waiting.Deadline(replication_servers.TIMEOUT_SEC)
        while not GtidSet.parse(gtids) <= self.known(app):
            self.assertTrue(deadline.pause(0.1), app.status())

    def known(self, app):
        status = app.status()
        return GtidSet.parse(status['gtid_executed']) | GtidSet.parse(status['gtid_received'])

    def eject(self, take_over=None, **limits):
        world, noted, powered_off = self.world, [], []
        guests = {
            name: replication_servers.Guest(app, self.strategy) for name, app in self.apps.items()
        }
        rows = source_services.Rows(world)
        deps = source_dependencies.SourceDependencies(
            rows=rows,
            agents=replication_agents.ReplicationAgents(guests.__getitem__, None),
            replicas=source_services.Replicas(world),
            volumes=Volumes(world, (self.behind, self.ahead)),
            marks=source_services.Marks(world),
            disable_failover=lambda _member: None,
            choices=types.SimpleNamespace(
                find=lambda _ids: set(), note=noted.append, forget=noted.remove
            ),
            find_task=lambda _id: None,
            is_blocked=lambda _id: False,
            is_reprovisioning=lambda _id: False,
            stop_server=powered_off.append,
            is_server_off=powered_off.__contains__,
            has_host_down=lambda _id: False,
            find_ram_mib=lambda _id: 1024,
            **limits,
        )
        source, replicas = rows.find(SOURCE), rows.list_replicas(SOURCE)
        one = ejection.Ejection(deps, source, replicas, take_over=take_over)
        steps.run(str(one), one.steps())
        self.assertTrue(world.servers[SOURCE].is_fenced)
        self.assertEqual(([f'vm-{SOURCE}'], []), (powered_off, noted))

    def check_source(self, name, follower):
        """Check that a server is the source of the other, in Trove and in MySQL."""
        self.assertEqual({SOURCE: None, name: None, follower: name}, self.world.sources)
        new, other = self.apps[name], self.apps[follower]
        status = new.status()
        self.assertFalse(status['is_replica'] or status['is_read_only'])
        followed = other.wait_for_status(io_state='ON', sql_state='ON')
        self.assertEqual(status['server_uuid'], followed['source_uuid'])
        self.assertTrue(followed['is_read_only'])
        self.write(new, 'after the ejection')
        self.assert_same_transactions(new, other)
        self.assertEqual(self.notes(new), self.notes(other))
        users = new.query("SELECT User FROM mysql.user WHERE User LIKE 'slave%'")
        self.assertEqual(((replication_user.name_of(follower),),), users)

    def test_a_dead_source_of_replicas_of_which_one_has_more(self):
        """Nothing is lost that one of them has, and it is told what none of them has."""
        self.write(self.source, 'of both')
        self.catch_up(self.source, self.behind)
        self.strategy.stop_receiving(self.behind)
        self.write(self.source, 'of one', 2)
        self.catch_up(self.source, self.ahead)
        self.strategy.stop_receiving(self.ahead)
        received = GtidSet.parse(self.ahead.status()['gtid_executed'])
        self.write(self.source, 'of none', LOST)
        # What the watch has seen last.
        self.world.last_known = GtidSet.parse(self.source.status()['gtid_executed'])
        self.source.server.kill()

        self.eject()

        self.check_source(AHEAD, BEHIND)
        expected = ['of both', 'of one', 'of one', 'after the ejection']
        self.assertEqual(expected, self.notes(self.behind))
        missing = self.world.last_known - received
        self.assertEqual(LOST, missing.count)
        for name in (SOURCE, AHEAD):
            fault = self.world.faults[name][-1]
            self.assertIn(f'At least {LOST} transactions are missing: {missing}', fault)

    def test_a_replica_that_has_received_more_and_does_not_execute_it(self):
        """It is not passed over, since what it has received may be the last copy."""
        self.write(self.source, 'of both')
        self.catch_up(self.source, self.behind)
        self.catch_up(self.source, self.ahead)
        self.strategy.stop_receiving(self.behind)
        with self.ahead.open_connection(replication_servers.TIMEOUT_SEC) as connection:
            connection.query('LOCK TABLES shop.orders READ')
            self.write(self.source, 'of one', 2)
            received = self.source.status()['gtid_executed']
            self.wait_until_received(self.ahead, received)
            self.source.server.kill()
            error = self.assertRaises(exceptions.SourceNotChangedError, self.eject, catch_up_sec=2)
            self.assertIn(f'replica {AHEAD} still executes 2 transactions', str(error))

        self.eject()

        self.check_source(AHEAD, BEHIND)
        expected = ['of both', 'of one', 'of one', 'after the ejection']
        self.assertEqual(expected, self.notes(self.behind))

    def take_over(self):
        """Eject the source as a failover does that prefers a replica; return what it notes."""
        seen_at = self.world.source_seen_at = datetime.datetime(2026, 1, 1)
        notes = []
        demands = fitness.Demands(
            seen_at, lambda: None, lambda: notes.append('fenced'), notes.append
        )
        self.eject(demands)
        return notes

    def test_a_replica_that_takes_over_at_a_failover(self):
        """Of two that have what the last look found, the one that has received more since."""
        self.write(self.source, 'of both')
        self.world.last_known = GtidSet.parse(self.source.status()['gtid_executed'])
        self.catch_up(self.source, self.behind)
        with self.behind.open_connection(replication_servers.TIMEOUT_SEC) as connection:
            connection.query('STOP REPLICA IO_THREAD')
            self.write(self.source, 'of one', 2)
            self.catch_up(self.source, self.ahead)
            self.source.server.kill()
            # It receives until the source fails, and hears of nothing any more.
            connection.query('START REPLICA IO_THREAD')

        self.assertEqual(['fenced', AHEAD], self.take_over())

        self.check_source(AHEAD, BEHIND)
        fault = self.world.faults[AHEAD][-1]
        self.assertIn('No transaction is known to be missing', fault)

    def test_no_replica_takes_over_that_lacks_what_the_source_had(self):
        self.write(self.source, 'of both')
        for replica in (self.behind, self.ahead):
            self.catch_up(self.source, replica)
            self.strategy.stop_receiving(replica)
        self.write(self.source, 'of none', LOST)
        self.world.last_known = GtidSet.parse(self.source.status()['gtid_executed'])
        self.source.server.kill()
        for replica in (self.behind, self.ahead):
            replica.query('START REPLICA IO_THREAD')
        error = self.assertRaises(exceptions.SourceNotChangedError, self.take_over)
        self.assertIn(f'has not executed {LOST} transactions that are known', str(error))
        self.assertFalse(self.world.servers[SOURCE].is_fenced)
        for replica in (self.behind, self.ahead):
            self.assertTrue(replica.status()['is_read_only'])

    def test_a_source_that_lives_ends_its_work(self):
        """No commit is lost that a client knows of."""
        with replication_servers.Writer(self.source) as writer:
            writer.wait_for_rows(20)
            self.eject()
        (name,) = [one for one in (BEHIND, AHEAD) if self.world.sources[one] is None]
        (follower,) = {BEHIND, AHEAD} - {name}
        committed = self.notes(self.source)
        self.assertGreaterEqual(len(committed), 20)
        self.assertEqual(committed, self.notes(self.apps[name]))
        self.check_source(name, follower)
        self.assertIn('No transaction is known to be missing', self.world.faults[name][-1])
