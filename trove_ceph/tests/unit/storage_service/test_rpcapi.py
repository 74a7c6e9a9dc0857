# SPDX-License-Identifier: Apache-2.0
"""The service over a bus: two copies on one topic, and a caller without Ceph."""

import json
import logging
import subprocess
import sys
import threading
import time
import uuid

import fixtures
import oslo_messaging as messaging
from oslo_config import cfg
from oslo_messaging import conffixture
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.conf import storage as storage_conf
from trove_ceph.storage import copying, fencing, image_types, names, tasks
from trove_ceph.storage.fake import backend, lock_store
from trove_ceph.storage_service import message_keys, rpcapi, server
from trove_ceph.tests.unit.cmd.manage import command
from trove_ceph.tests.unit.storage_service import service_world
from trove_ceph.tests.unit.storage_service.service_world import MIB

TIMEOUT_SEC = 60
#: Managed names, on which each verb may be used.
IMAGE = names.image_name('restore', str(uuid.uuid4()))
VAULT = names.image_name('vault', str(uuid.uuid4()))
CLONE = names.image_name('replica', str(uuid.uuid4()))
MISSING = names.image_name('former', str(uuid.uuid4()))
FAKE = 'trove_ceph.storage.fake.backend.FakeBackend'
NO_CEPH = """
import sys
for name in ('rados', 'rbd'):
    sys.modules[name] = None
import trove_ceph.storage_service.rpcapi
loaded = [name for name in sys.modules if name.startswith('trove_ceph.')]
print(' '.join(loaded))
"""


class BusTestCase(base.BaseTestCase):
    """With a cluster that uses the real clock."""

    url = 'fake://'

    def setUp(self):
        super().setUp()
        self.world = service_world.World(IMAGE, VAULT)
        self.world.cluster.clock = time.monotonic
        self.key_file = self.useFixture(fixtures.TempDir()).join('keys.json')
        message_keys.create(self.key_file)
        self.conf = cfg.ConfigOpts()
        self.useFixture(conffixture.ConfFixture(self.conf))
        storage_conf.register(self.conf)
        self.conf([])
        self.conf.set_override('transport_url', self.url, 'trove_ceph_storage')
        self.conf.set_override('key_file', self.key_file, 'trove_ceph_storage')
        # The whole process shares one fake bus.
        exchange = f'test-{uuid.uuid4().hex}'
        self.useFixture(
            fixtures.MonkeyPatch('trove_ceph.storage_service.rpcapi.EXCHANGE', exchange)
        )
        self.useFixture(
            fixtures.MonkeyPatch('trove_ceph.storage_service.server._HEARTBEAT_SEC', 0.05)
        )
        self.connection = rpcapi.connect(self.conf)
        self.api = rpcapi.StorageAPI(self.connection, timeout_sec=TIMEOUT_SEC)
        self.image, self.vault = self.world.image, self.world.vault

    def serve(self, name):
        service = server.Service(
            backend.FakeBackend(self.world.cluster),
            lock_store.FakeLockStore(self.world.cluster),
            service_world.POOLS,
            self.conf.trove_ceph_storage,
            name,
        )
        served = server.Server(service, rpcapi.connect(self.conf))
        served.start()
        self.addCleanup(served.stop)
        return served


class CommandTest(BusTestCase):
    """``trove-ceph-manage storage`` with a running service."""

    def setUp(self):
        super().setUp()
        self.addCleanup(cfg.CONF.reset)
        self.config = self.useFixture(fixtures.TempDir()).join('storage.conf')
        with open(self.config, 'w') as config:
            config.write('[trove_ceph_storage]\ntransport_url = fake://\n')
            config.write(f'key_file = {self.key_file}\n')

    def command(self, *arguments):
        """Return exit status and output."""
        result = command.run('storage', *arguments, '--config-file', self.config)
        self.err = result.err
        return result.status, result.out

    def test_status_and_jobs(self):
        self.serve('one')
        self.assertEqual((0, '\n'), self.command('jobs'))
        self.assertEqual('There are no jobs.\n', self.err)
        self.api.run('copy', tasks.CopyTask(self.image.snapshot('s'), self.vault), TIMEOUT_SEC)
        status, text = self.command('status')
        self.assertEqual(0, status)
        self.assertRegex(text, r'^ok: answered in \d+ ms; jobs: 1 done\n$')
        work = tasks.VerifyTask(self.image.snapshot('missing'), self.vault.snapshot('s'))
        self.assertRaises(exceptions.NotFoundError, self.api.run, 'verify', work, TIMEOUT_SEC)
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
        self.api.run('copy', tasks.CopyTask(self.image.snapshot('s'), self.vault), TIMEOUT_SEC)
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
        self.api.run('copy', work, TIMEOUT_SEC)
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
            (0, f'{IMAGE} {facts.image_id}\n'), self.command('images', 'volumes', *words)
        )
        _status, text = self.command('images', 'volumes', '--format', 'json')
        self.assertEqual(['other', IMAGE], [one['name'] for one in json.loads(text)])
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
            go_on.wait(TIMEOUT_SEC)
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
        (address,) = self.api.run('fence', tasks.FenceTask(self.image), TIMEOUT_SEC).addresses
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
        self.api.run('copy', tasks.CopyTask(self.image.snapshot('s'), self.vault), TIMEOUT_SEC)
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


class VerbsTest(BusTestCase):
    def setUp(self):
        super().setUp()
        self.serve('one')

    def test_each_verb(self):
        facts = self.api.describe(self.image, with_usage=True)
        self.assertEqual(self.world.storage.describe(self.image), facts)
        self.assertIsNone(self.api.describe(self.image).used_bytes)
        created = self.api.create_snapshot(self.image.snapshot('t'))
        self.assertEqual(('t', 16 * MIB), (created.name, created.size_bytes))
        clone = image_types.ImageRef('vault', CLONE)
        self.api.clone(self.image.snapshot('t'), clone, image_types.Qos(iops=300))
        self.assertEqual(image_types.Qos(iops=300), self.api.describe(clone).qos)
        self.assertEqual('vault-data', self.api.describe(clone).data_pool)
        renamed = self.api.rename_snapshot(self.image.snapshot('t'), 'u')
        self.assertEqual(('u', created.snapshot_id), (renamed.name, renamed.snapshot_id))
        self.api.remove_snapshot(self.image.snapshot('u'))
        self.api.set_qos(clone, image_types.Qos(iops=500))
        self.assertEqual(500, self.api.describe(clone).qos.iops)
        trashed = self.api.trash(clone)
        self.assertEqual([trashed], self.api.list_trash('vault'))
        self.api.restore('vault', trashed.image_id, clone.name)
        self.assertEqual(trashed.image_id, self.api.describe(clone).image_id)
        self.assertEqual('vault', self.api.usage('vault').pool)
        self.assertEqual(
            ['vault', 'vault-data'], [usage.pool for usage in self.api.usage_of_tier('slow')]
        )
        self.assertEqual([], self.world.held_locks())

    def test_each_job(self):
        copy = tasks.CopyTask(self.image.snapshot('s'), self.vault)
        phases = set()
        report = self.api.run('copy', copy, TIMEOUT_SEC, lambda now: phases.add(now.state))
        self.assertIsInstance(report, copying.CopyReport)
        self.assertLessEqual(
            phases, {tasks.JobState.WAITING, tasks.JobState.RUNNING, tasks.JobState.DONE}
        )
        self.assertEqual(
            16 * MIB,
            self.api.run(
                'verify',
                tasks.VerifyTask(self.image.snapshot('s'), self.vault.snapshot('s')),
                TIMEOUT_SEC,
            ),
        )
        with self.world.storage.open_writer(self.image) as writer:
            proof = self.api.run('fence', tasks.FenceTask(self.image), TIMEOUT_SEC)
            self.assertEqual(1, len(proof.addresses))
            self.assertRaises(exceptions.CephUnreachableError, writer.flush)
        header = self.world.storage.read_header(self.image)
        self.assertEqual(proof.addresses, fencing.recorded(header))
        self.api.unfence(self.image)
        self.assertEqual(frozenset(), self.world.storage.blocklisted())
        clone = image_types.ImageRef('volumes', CLONE)
        self.api.clone(self.image.snapshot('s'), clone, image_types.Qos())
        self.api.run('flatten', tasks.FlattenTask(clone), TIMEOUT_SEC)
        self.assertIsNone(self.api.describe(clone).parent)
        trashed = self.api.trash(clone)
        self.api.run('purge', tasks.PurgeTask('volumes', trashed.image_id), TIMEOUT_SEC)
        self.assertEqual([], self.api.list_trash('volumes'))
        listed = self.api.list_jobs()
        self.assertEqual(
            ['purge', 'flatten', 'fence', 'verify', 'copy'], [one.operation_id for one in listed]
        )
        self.assertEqual((listed, []), self.api.survey_jobs())
        self.assertEqual(tasks.JobState.DONE, self.api.find_job('copy').state)
        self.assertEqual(tasks.JobState.DONE, self.api.cancel('copy').state)

    def test_errors_keep_their_class_and_message(self):
        missing = image_types.ImageRef('volumes', MISSING)
        clone = image_types.ImageRef('vault', CLONE)
        self.api.clone(self.image.snapshot('s'), clone, image_types.Qos())
        trashed = self.api.trash(self.image)
        cases = (
            (
                exceptions.NotFoundError,
                'describe',
                (missing,),
                f'volumes/{MISSING}: does not exist',
            ),
            (exceptions.InvalidRequestError, 'usage', ('images',), 'pool images: is not one of'),
            (exceptions.InvalidRequestError, 'usage_of_tier', ('no',), 'tier no: does not exist'),
            (exceptions.AlreadyExistsError, 'restore', ('volumes', trashed.image_id, IMAGE), ''),
            (exceptions.InvalidRequestError, 'start', ('op/1', tasks.FlattenTask(clone)), 'op/1'),
            (exceptions.NotFoundError, 'find_job', ('op',), 'job op: does not exist'),
            (exceptions.InvalidRequestError, 'list_trash', ('a/b',), 'pool a/b'),
            (exceptions.InvalidRequestError, 'rename_snapshot', (missing.snapshot('s'), 'a@b'), ''),
            (exceptions.NotFoundError, 'rename_snapshot', (missing.snapshot('s'), 't'), ''),
        )
        self.world.storage.create_image(
            image_types.ImageRef('volumes', IMAGE), MIB, image_types.ImageOptions()
        )
        for error_class, verb, arguments, text in cases:
            error = self.assertRaises(error_class, getattr(self.api, verb), *arguments)
            self.assertIs(error_class, type(error))
            self.assertIn(text, str(error))
            self.assertNotIn('\n', str(error))
        purge = tasks.PurgeTask('volumes', trashed.image_id)
        error = self.assertRaises(exceptions.BusyError, self.api.run, 'op', purge, TIMEOUT_SEC)
        self.assertIn(str(clone), str(error))

    def test_a_repetition_sets_the_limits_of_a_clone(self):
        clone = image_types.ImageRef('volumes', CLONE)
        self.world.storage.clone(self.image.snapshot('s'), clone, image_types.ImageOptions())
        self.api.clone(self.image.snapshot('s'), clone, image_types.Qos(iops=300))
        self.assertEqual(300, self.api.describe(clone).qos.iops)
        self.assertRaises(
            exceptions.AlreadyExistsError,
            self.api.clone,
            self.image.snapshot('s'),
            self.image,
            image_types.Qos(),
        )

    def test_images_are_listed_page_by_page(self):
        self.useFixture(fixtures.MonkeyPatch('trove_ceph.storage_service.serializer.MAX_LISTED', 2))
        names = [f'v{number}' for number in range(4)]
        for name in names:
            self.world.storage.create_image(
                image_types.ImageRef('vault', name), MIB, image_types.ImageOptions()
            )
        self.assertEqual(names, [one.image.name for one in self.api.list_images('vault')])
        self.assertEqual(['v2'], [one.image.name for one in self.api.list_images('vault', 'v2')])
        self.assertRaises(exceptions.InvalidRequestError, list, self.api.list_images('a/b'))
        arguments = {'pool': 'vault', 'prefix': '', 'after': '', 'limit': 3}
        self.assertRaises(
            exceptions.InvalidRequestError, self.api._call, 'list_images', **arguments
        )

    def test_refuses_an_argument_of_the_wrong_type(self):
        error = self.assertRaises(exceptions.InvalidRequestError, self.api.describe, 'no image')
        self.assertIn("'no image': is of the wrong type", str(error))


class RabbitDriverTest(VerbsTest):
    """With the driver for RabbitMQ, which sends errors as text, unlike the fake driver."""

    url = 'kombu+memory:////'

    def test_an_unexpected_error(self):
        self.useFixture(fixtures.FakeLogger())

        def fail(backend, image, with_usage):
            raise KeyError('unexpected')

        self.useFixture(fixtures.MonkeyPatch(f'{FAKE}.describe', fail))
        error = self.assertRaises(exceptions.StorageError, self.api.describe, self.image)
        self.assertEqual("describe failed: KeyError: 'unexpected'", str(error))

    def test_a_caller_of_an_older_release(self):
        target = messaging.Target(exchange=rpcapi.EXCHANGE, topic=rpcapi.TOPIC, version='1.0')
        client = messaging.get_rpc_client(self.connection.transport, target)
        client = client.prepare(timeout=TIMEOUT_SEC)
        error = self.assertRaises(messaging.RemoteError, client.call, {}, 'list_jobs')
        self.assertEqual('UnsupportedVersion', error.exc_type)

    def test_a_service_of_an_older_release(self):
        self.useFixture(fixtures.MonkeyPatch('trove_ceph.storage_service.rpcapi.VERSION', '3.0'))
        newer = rpcapi.StorageAPI(self.connection, timeout_sec=TIMEOUT_SEC)
        error = self.assertRaises(exceptions.UnauthenticatedReplyError, newer.list_jobs)
        self.assertIn('unsigned error, UnsupportedVersion', str(error))


class SeveralTest(BusTestCase):
    def slow_down(self):
        """Block copies until the test sets ``go_on``."""
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.addCleanup(self.go_on.set)
        copy = copying.copy

        def slow_copy(*arguments, limits, **options):
            self.begun.set()
            while not self.go_on.wait(0.05):
                limits.take(0)
            return copy(*arguments, limits=limits, **options)

        self.useFixture(fixtures.MonkeyPatch('trove_ceph.storage.copying.copy', slow_copy))

    def test_another_copy_resumes_the_job_of_a_stopped_one(self):
        self.slow_down()
        first = self.serve('one')
        work = tasks.CopyTask(self.image.snapshot('s'), self.vault)
        self.api.start('op', work)
        self.assertTrue(self.begun.wait(TIMEOUT_SEC))
        holders = []
        # A request that is addressed to the first copy while it stops is lost: repeat it soon.
        api = rpcapi.StorageAPI(self.connection, timeout_sec=5)
        waiting = threading.Thread(target=lambda: holders.append(api.run('op', work, TIMEOUT_SEC)))
        waiting.start()
        self.serve('other')
        self.assertTrue(first.stop())
        self.go_on.set()
        waiting.join(TIMEOUT_SEC)
        self.assertEqual(16 * MIB, holders[0].copied_bytes)
        found = self.api.find_job('op')
        self.assertEqual(('other', 2), (found.holder, found.attempt))

    def test_any_copy_of_the_service_cancels_a_job(self):
        self.slow_down()
        self.serve('one')
        self.serve('other')
        work = tasks.CopyTask(self.image.snapshot('s'), self.vault)
        self.api.start('op', work)
        self.assertTrue(self.begun.wait(TIMEOUT_SEC))
        for _ in range(2):
            self.api.cancel('op')
        deadline = time.monotonic() + TIMEOUT_SEC
        while self.api.find_job('op').state.is_active and time.monotonic() < deadline:
            time.sleep(0.02)
        self.assertEqual(tasks.JobState.CANCELED, self.api.find_job('op').state)

    def test_the_job_continues_after_the_callers_timeout(self):
        self.slow_down()
        self.serve('one')
        work = tasks.CopyTask(self.image.snapshot('s'), self.vault)
        error = self.assertRaises(exceptions.StillRunningError, self.api.run, 'op', work, 0.3)
        self.assertIn(f'op ({work})', str(error))
        self.go_on.set()
        self.assertEqual(16 * MIB, self.api.run('op', work, TIMEOUT_SEC).copied_bytes)
        self.assertEqual(1, self.api.find_job('op').attempt)

    def test_no_service_runs(self):
        hurried = rpcapi.StorageAPI(self.connection, timeout_sec=0.2)
        error = self.assertRaises(exceptions.ServiceUnavailableError, hurried.describe, self.image)
        self.assertIn('no answer to describe within 0 s; check that the service runs', str(error))
        self.assertRaises(
            exceptions.ServiceUnavailableError,
            hurried.run,
            'op',
            tasks.FlattenTask(self.image),
            0.5,
        )

    def test_no_key_is_disclosed(self):
        """Neither on the bus nor in the log."""
        log = self.useFixture(fixtures.FakeLogger(level=logging.DEBUG))
        self.serve('one')
        self.api.run('op', tasks.CopyTask(self.image.snapshot('s'), self.vault), TIMEOUT_SEC)
        self.conf.log_opt_values(logging.getLogger('options'), logging.DEBUG)
        self.assertIn('trove_ceph_storage.ceph_user', log.output)
        self.assertNotIn('keyring', json.dumps(self.world.cluster.entries))
        key = message_keys.KeyFile(self.key_file).load().current
        self.assertNotIn(key.secret.hex(), log.output + repr(key))


class BoundaryTest(base.BaseTestCase):
    def test_callers_need_no_ceph(self):
        result = subprocess.run(
            [sys.executable, '-c', NO_CEPH], capture_output=True, text=True, check=True
        )
        loaded = result.stdout.split()
        self.assertIn('trove_ceph.storage_service.rpcapi', loaded)
        for forbidden in ('storage.ceph', 'storage_service.server', 'storage_service.factory'):
            self.assertFalse(
                [name for name in loaded if name.startswith(f'trove_ceph.{forbidden}')]
            )
