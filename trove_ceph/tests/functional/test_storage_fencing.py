# SPDX-License-Identifier: Apache-2.0
"""Fencing a process that writes without pause, as a hypervisor would."""

import datetime
import logging
import subprocess

import fixtures
import rados

from trove_ceph import exceptions
from trove_ceph.storage import fencing
from trove_ceph.storage.ceph import backend, connection, metadata, placement
from trove_ceph.tests.contract import storage as contract
from trove_ceph.tests.functional import storage, storage_client


class FencingTest(contract.StorageContract, storage.CephStorageTestCase):
    def test_nothing_is_written_after_the_proof(self):
        image = self.make(size_mib=8)
        victim = self.start_writing(image)
        proof = fencing.fence(self.storage, image)
        # From here on the image does not change.
        at_proof = self.content_now(image)
        self.assertEqual(1, len(proof.addresses))
        error, acknowledged = victim.stdout.readline().split()
        self.assertEqual('ConnectionShutdown', error)
        self.assertEqual(0, victim.wait())
        self.assertEqual(at_proof, self.content_now(image))
        # All acknowledged writes are there.
        blocks = range(0, storage_client.BLOCKS * storage_client.BLOCK_BYTES, 4096)
        written = {int(at_proof[at : at + 32].strip(b'\0 ') or b'0') for at in blocks}
        self.assertIn(int(acknowledged), written)
        self.assertLessEqual(max(written), int(acknowledged) + 1)
        # Another client may write at once.
        self.write(image, 0, b'a new owner', storage=self.other)
        fencing.unfence(self.storage, image)

    def test_fences_a_stopped_process_before_it_continues(self):
        """It is indistinguishable from a host that lost its network."""
        image = self.make(size_mib=8)
        victim = self.start_writing(image)
        subprocess.run(['kill', '-STOP', str(victim.pid)], check=True)
        fencing.fence(self.storage, image)
        self.write(image, 0, b'a new owner', storage=self.other)
        expected = self.content_now(image)
        subprocess.run(['kill', '-CONT', str(victim.pid)], check=True)
        self.assertEqual('ConnectionShutdown', victim.stdout.readline().split()[0])
        self.assertEqual(expected, self.content_now(image))
        fencing.unfence(self.storage, image)

    def test_does_not_wait_for_a_stopped_lock_owner(self):
        """librbd would request the lock from it, and break the lock once the watch has expired."""
        image = self.make(size_mib=8)
        victim = self.start_writing(image)
        subprocess.run(['kill', '-STOP', str(victim.pid)], check=True)
        held = self.storage.find_clients(image)
        self.storage.set_image_metadata(image, {'trove_ceph.test': 'noted', 'missing': None})
        self.assertEqual({'trove_ceph.test': 'noted'}, self.storage.read_header(image).metadata)
        self.assertEqual(held.lock_owner, self.storage.find_clients(image).lock_owner)
        self.assertEqual(frozenset(), held.addresses & self.storage.blocklisted())
        proof = fencing.fence(self.storage, image)
        self.assertEqual(held.addresses, proof.addresses)
        self.assertEqual(held.addresses, fencing.recorded(self.storage.read_header(image)))
        subprocess.run(['kill', '-CONT', str(victim.pid)], check=True)
        self.assertEqual('ConnectionShutdown', victim.stdout.readline().split()[0])
        fencing.unfence(self.storage, image)

    def test_entries_of_librbd_last_as_long(self):
        """Of two entries for one address the older one stays; librbd's entry has Ceph's default."""
        image = self.make(size_mib=8)
        owner = self._break_lock(image, self.storage)
        self.storage.blocklist([owner], fencing.EXPIRE_SEC)
        (until,) = self._expiries(owner)
        self.assertGreater(until, self._now() + datetime.timedelta(days=6))
        self.storage.unblocklist([owner])
        # It stays as it is, whatever the duration of the next one.
        self.storage.blocklist([owner], 3600)
        self.storage.blocklist([owner], fencing.EXPIRE_SEC)
        (until,) = self._expiries(owner)
        self.assertLess(until, self._now() + datetime.timedelta(days=1))
        self.storage.unblocklist([owner])

    def test_warns_of_an_older_entry_that_ends_early(self):
        image = self.make(size_mib=8)
        victim = self.start_writing(image)
        subprocess.run(['kill', '-STOP', str(victim.pid)], check=True)
        owner = self.storage.find_clients(image).lock_owner
        self.storage.blocklist([owner], 3600)
        log = self.useFixture(fixtures.FakeLogger(level=logging.WARNING))
        fencing.fence(self.storage, image)
        (until,) = self._expiries(owner)
        self.assertLess(until, self._now() + datetime.timedelta(hours=2))
        self.assertIn(f'{owner} until', log.output)
        subprocess.run(['kill', '-CONT', str(victim.pid)], check=True)
        self.assertEqual('ConnectionShutdown', victim.stdout.readline().split()[0])
        fencing.unfence(self.storage, image)

    def test_breaks_locks_despite_rbd_blocklist_expire_seconds(self):
        """With this option Ceph breaks no lock."""
        conf = self.directory / 'ceph.conf'
        conf.write_text(
            self.cluster.conf.read_text().replace(
                '[client]\n', '[client]\nrbd_blocklist_expire_seconds = 3600\n'
            )
        )
        image = self.make(size_mib=8)
        with_option = connection.Connection(str(conf), storage.USER)
        self.addCleanup(with_option.close)
        owner = self._break_lock(image, backend.CephBackend(with_option))
        self.assertIsNone(self.storage.find_clients(image).lock_owner)
        self.storage.unblocklist([owner])

    def _break_lock(self, image, breaker):
        """Have another client break a client's lock; return the address of the loser."""
        victim = self.start_writing(image)
        owner = self.storage.find_clients(image).lock_owner
        breaker.break_lock(image, owner)
        self.assertEqual('ConnectionShutdown', victim.stdout.readline().split()[0])
        return owner

    def _expiries(self, address):
        listed = storage.link(self, self.cluster).mon_command('osd blocklist ls')
        for entry in listed:
            if entry['addr'] == address:
                yield datetime.datetime.fromisoformat(entry['until'])

    @staticmethod
    def _now():
        return datetime.datetime.now(datetime.UTC)

    def test_fence_does_not_recreate_a_removed_image(self):
        image = self.make(size_mib=8)
        with self.cluster.pool(image.pool, storage.USER) as pool:
            image_id = metadata.image_id(pool, image.name)
            self.storage.remove(image)
            for entries in ({'a': '1'}, {'a': None}, {}):
                self.assertRaises(rados.ObjectNotFound, metadata.change, pool, image_id, entries)
            self.assertRaises(rados.ObjectNotFound, pool.stat, f'rbd_header.{image_id}')
        self.assertRaises(
            exceptions.NotFoundError, self.storage.set_image_metadata, image, {'a': '1'}
        )

    def test_requests_an_object_of_each_placement_group(self):
        for pool in self.cluster.mon_command('osd dump')['pools']:
            groups = set()
            for name in placement.one_object_per_group(pool['pg_num']):
                mapped = self.cluster.mon_command('osd map', pool=pool['pool_name'], object=name)
                group = int(mapped['pgid'].partition('.')[2], 16)
                self.assertEqual(group, placement.group_of(name, pool['pg_num']))
                groups.add(group)
            self.assertEqual(set(range(pool['pg_num'])), groups)

    def test_computes_the_placement_of_names_of_any_length(self):
        for length in range(1, 40):
            name = 'rbd_data.0123456789abcdef.0123456789abcdef'[:length]
            mapped = self.cluster.mon_command('osd map', pool=self.pool, object=name)
            group = int(mapped['pgid'].partition('.')[2], 16)
            self.assertEqual(group, placement.group_of(name, 16), name)
