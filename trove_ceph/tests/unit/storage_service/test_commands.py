# SPDX-License-Identifier: Apache-2.0
"""``trove-ceph-manage storage`` with a running service."""

import json
import threading
import uuid

import fixtures

from trove_ceph import exceptions
from trove_ceph.storage import image_types, names, tasks
from trove_ceph.storage.fake import backend, lock_store
from trove_ceph.tests.unit.storage_service import bus_case
from trove_ceph.tests.unit.storage_service.service_world import MIB

CLONE = names.image_name('replica', str(uuid.uuid4()))
FAKE = 'trove_ceph.storage.fake.backend.FakeBackend'


class CommandTest(bus_case.CommandTestCase):
    words = ('storage',)

    def test_status_and_jobs(self):
        self.serve('one')
        self.assertEqual((0, '\n'), self.command('jobs'))
        self.assertEqual('There are no jobs.\n', self.err)
        self.api.run(
            'copy', tasks.CopyTask(self.image.snapshot('s'), self.vault), bus_case.TIMEOUT_SEC
        )
        status, text = self.command('status')
        self.assertEqual(0, status)
        self.assertRegex(text, r'^ok: answered in \d+ ms, RPC version [\d.]+; jobs: 1 done\n$')
        work = tasks.VerifyTask(self.image.snapshot('missing'), self.vault.snapshot('s'))
        self.assertRaises(
            exceptions.NotFoundError, self.api.run, 'verify', work, bus_case.TIMEOUT_SEC
        )
        status, text = self.command('status')
        self.assertEqual(1, status)
        self.assertIn(f'verify ({work}) failed: {self.image}@missing', text)
        status, text = self.command('jobs')
        self.assertEqual(0, status)
        self.assertRegex(text, r'verify .* failed .*@missing: .*\n.*copy .* done .*16 MiB')
        _status, text = self.command('jobs', '-f', 'value', '-c', 'error', '-c', 'message')
        self.assertIn(f'NotFoundError {self.image}@missing', text)

    def test_json_output(self):
        self.serve('one')
        self.api.run(
            'copy', tasks.CopyTask(self.image.snapshot('s'), self.vault), bus_case.TIMEOUT_SEC
        )
        _status, text = self.command('jobs', '--format', 'json')
        (found,) = json.loads(text)
        self.assertEqual(
            ('copy', 'done', 16 * MIB, 1),
            (found['operation_id'], found['state'], found['done_bytes'], found['attempt']),
        )
        _status, text = self.command('status', '--format', 'json')
        found = json.loads(text)
        self.assertEqual(('ok', 1, []), (found['status'], found['jobs']['done'], found['bad']))

    def test_cancel(self):
        self.serve('one')
        self.assertEqual((1, ''), self.command('cancel', 'copy'))
        self.assertEqual('trove-ceph-manage: job copy: does not exist\n', self.err)
        work = tasks.CopyTask(self.image.snapshot('s'), self.vault)
        self.api.run('copy', work, bus_case.TIMEOUT_SEC)
        status, text = self.command('cancel', 'copy', '-f', 'json')
        found = json.loads(text)
        self.assertEqual(
            (0, 'copy', str(work), 'done'),
            (status, found['operation_id'], found['work'], found['state']),
        )

    def test_images(self):
        self.serve('one')
        facts = self.world.storage.describe(self.image)
        self.world.storage.create_image(
            image_types.ImageRef('volumes', 'other'), MIB, image_types.ImageOptions()
        )
        words = ('--prefix', 'trove_ceph.restore.', '-f', 'value')
        self.assertEqual(
            (0, f'{bus_case.IMAGE} {facts.image_id}\n'), self.command('images', 'volumes', *words)
        )
        _status, text = self.command('images', 'volumes', '--format', 'json')
        self.assertEqual(['other', bus_case.IMAGE], [one['name'] for one in json.loads(text)])
        self.assertEqual(3, self.command('images', 'elsewhere')[0])
        self.assertIn('pool elsewhere: is not one of the pools', self.err)

    def clone(self):
        clone = image_types.ImageRef('vault', CLONE)
        self.world.storage.clone(self.image.snapshot('s'), clone, image_types.ImageOptions())
        return clone

    def test_flatten(self):
        self.serve('one')
        clone = self.clone()
        expected = f'{clone}: flattened; it no longer reads from its parent\n'
        self.assertEqual((0, expected), self.command('flatten', str(clone)))
        self.assertIn('done flattening 100%', self.err)
        self.assertIsNone(self.api.describe(clone).parent)
        self.assertEqual((0, f'{clone}: has no parent\n'), self.command('flatten', str(clone)))
        # Another image with that name is another task.
        self.world.storage.trash(clone)
        self.clone()
        _status, text = self.command('flatten', str(clone), '--format', 'json')
        self.assertEqual('done', json.loads(text)['job']['state'])
        self.assertIsNone(self.api.describe(clone).parent)

    def test_flatten_that_takes_long(self):
        self.serve('one')
        clone = self.clone()
        go_on = threading.Event()
        self.addCleanup(go_on.set)
        flatten = backend.FakeBackend.flatten

        def slow_flatten(*arguments):
            go_on.wait(bus_case.TIMEOUT_SEC)
            flatten(*arguments)

        self.useFixture(fixtures.MonkeyPatch(f'{FAKE}.flatten', slow_flatten))
        for wait_sec, expected in (('0', 0), ('0.1', 1)):
            status, text = self.command('flatten', str(clone), '--wait', wait_sec)
            self.assertEqual(expected, status)
            self.assertRegex(text, f'flatten {clone}.*: not done .*it continues, see')
        self.assertRegex(self.err, '^(waiting|running)')
        go_on.set()
        self.assertEqual(0, self.command('flatten', str(clone))[0])
        (found,) = self.api.list_jobs()
        self.assertEqual(1, found.attempt)

    def test_flatten_fails(self):
        self.serve('one')
        clone = self.clone()
        self.world.service('other').leases.take([tasks.image_lock(clone)], 'op', 'copy it')
        self.useFixture(fixtures.MonkeyPatch('trove_ceph.storage_service.jobs.BUSY_WAIT_SEC', 0))
        expected = f'{clone}: held by other for copy it, operation op\n'
        self.assertEqual((1, expected), self.command('flatten', str(clone)))
        self.assertEqual((1, 'vault/x: does not exist\n'), self.command('flatten', 'vault/x'))
        for wrong in ('vault', 'vault/', '/clone'):
            self.assertEqual(2, self.command('flatten', wrong)[0])
            self.assertIn(f"'{wrong}' is not POOL/IMAGE", self.err)

    def test_unfence(self):
        self.serve('one')
        words = ('unfence', str(self.image), '-f', 'value')
        self.assertEqual((0, f'{self.image} [] False None\n'), self.command(*words))
        writer = self.world.storage.open_writer(self.image)
        self.addCleanup(writer.close)
        (address,) = self.api.run(
            'fence', tasks.FenceTask(self.image), bus_case.TIMEOUT_SEC
        ).addresses
        status, text = self.command('unfence', str(self.image))
        self.assertEqual(2, status)
        self.assertRegex(text, rf'\| {self.image} +\| {address} +\| False +\| - ')
        self.assertIn('Nothing was changed', self.err)
        self.assertEqual({address}, self.world.storage.blocklisted())
        # A failure does not stop the others.
        status, text = self.command(
            'unfence', 'volumes/x', str(self.image), '--yes-clients-are-dead', '--format', 'json'
        )
        self.assertEqual(1, status)
        missing, found = json.loads(text)
        self.assertEqual('volumes/x: does not exist', missing['error'])
        self.assertEqual(([address], True), (found['clients'], found['unfenced']))
        self.assertEqual(frozenset(), self.world.storage.blocklisted())

    def test_a_pool_that_does_not_answer_is_named(self):
        self.serve('one')
        self.api.run(
            'copy', tasks.CopyTask(self.image.snapshot('s'), self.vault), bus_case.TIMEOUT_SEC
        )
        read = lock_store.FakeLockStore.read

        def read_or_fail(entries, pool, prefix):
            if pool == 'volumes':
                raise exceptions.CephUnreachableError('reading entries: timed out')
            return read(entries, pool, prefix)

        self.useFixture(
            fixtures.MonkeyPatch(
                'trove_ceph.storage.fake.lock_store.FakeLockStore.read', read_or_fail
            )
        )
        status, text = self.command('status')
        self.assertEqual(1, status)
        self.assertRegex(text, '^trouble: .*; jobs: 1 done\n  pool volumes: does not answer\n$')
        found = json.loads(self.command('status', '--format', 'json')[1])
        self.assertEqual(['volumes'], found['silent_pools'])
        status, text = self.command('jobs')
        self.assertEqual(1, status)
        self.assertRegex(text, r'\| done +\|')
        self.assertIn('pool volumes: does not answer', self.err)

    def test_no_service_answers(self):
        self.assertEqual(3, self.command('status', '--timeout', '0.2')[0])
        self.assertIn('no answer to survey_jobs', self.err)
        self.config = '/nowhere.conf'
        self.assertEqual(3, self.command('status')[0])
        self.assertIn('/nowhere.conf', self.err)
