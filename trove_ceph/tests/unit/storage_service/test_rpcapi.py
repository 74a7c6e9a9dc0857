# SPDX-License-Identifier: Apache-2.0
"""The service over a bus: two copies on one topic, and a caller without Ceph."""

import dataclasses
import json
import logging
import subprocess
import sys
import threading
import time
import uuid
from unittest import mock

import fixtures
import oslo_messaging as messaging
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.storage import copying, fencing, image_types, names, tasks
from trove_ceph.storage_service import message_keys, rpcapi
from trove_ceph.tests.unit.storage_service import bus_case
from trove_ceph.tests.unit.storage_service.service_world import MIB

#: Managed names, on which each verb may be used.
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


class VerbsTest(bus_case.BusTestCase):
    def setUp(self):
        super().setUp()
        self.serve('one')

    def test_close(self):
        connection = rpcapi.connect(self.conf)
        api = rpcapi.StorageAPI(connection, timeout_sec=bus_case.TIMEOUT_SEC)
        api.version()
        with mock.patch.object(
            connection.transport, 'cleanup', wraps=connection.transport.cleanup
        ) as cleanup:
            api.close()
        cleanup.assert_called_once_with()

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
        report = self.api.run('copy', copy, bus_case.TIMEOUT_SEC, lambda now: phases.add(now.state))
        self.assertIsInstance(report, copying.CopyReport)
        self.assertLessEqual(
            phases, {tasks.JobState.WAITING, tasks.JobState.RUNNING, tasks.JobState.DONE}
        )
        self.assertEqual(
            16 * MIB,
            self.api.run(
                'verify',
                tasks.VerifyTask(self.image.snapshot('s'), self.vault.snapshot('s')),
                bus_case.TIMEOUT_SEC,
            ),
        )
        with self.world.storage.open_writer(self.image) as writer:
            proof = self.api.run('fence', tasks.FenceTask(self.image), bus_case.TIMEOUT_SEC)
            self.assertEqual(1, len(proof.addresses))
            self.assertRaises(exceptions.CephUnreachableError, writer.flush)
        header = self.world.storage.read_header(self.image)
        self.assertEqual(proof.addresses, fencing.recorded(header))
        self.api.unfence(self.image)
        self.assertEqual(frozenset(), self.world.storage.blocklisted())
        clone = image_types.ImageRef('volumes', CLONE)
        self.api.clone(self.image.snapshot('s'), clone, image_types.Qos())
        self.api.run('flatten', tasks.FlattenTask(clone), bus_case.TIMEOUT_SEC)
        self.assertIsNone(self.api.describe(clone).parent)
        trashed = self.api.trash(clone)
        self.api.run('purge', tasks.PurgeTask('volumes', trashed.image_id), bus_case.TIMEOUT_SEC)
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
            (
                exceptions.AlreadyExistsError,
                'restore',
                ('volumes', trashed.image_id, bus_case.IMAGE),
                '',
            ),
            (exceptions.InvalidRequestError, 'start', ('op/1', tasks.FlattenTask(clone)), 'op/1'),
            (exceptions.NotFoundError, 'find_job', ('op',), 'job op: does not exist'),
            (exceptions.InvalidRequestError, 'list_trash', ('a/b',), 'pool a/b'),
            (exceptions.InvalidRequestError, 'rename_snapshot', (missing.snapshot('s'), 'a@b'), ''),
            (exceptions.NotFoundError, 'rename_snapshot', (missing.snapshot('s'), 't'), ''),
        )
        self.world.storage.create_image(
            image_types.ImageRef('volumes', bus_case.IMAGE), MIB, image_types.ImageOptions()
        )
        for error_class, verb, arguments, text in cases:
            error = self.assertRaises(error_class, getattr(self.api, verb), *arguments)
            self.assertIs(error_class, type(error))
            self.assertIn(text, str(error))
            self.assertNotIn('\n', str(error))
        purge = tasks.PurgeTask('volumes', trashed.image_id)
        error = self.assertRaises(
            exceptions.BusyError, self.api.run, 'op', purge, bus_case.TIMEOUT_SEC
        )
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
        client = client.prepare(timeout=bus_case.TIMEOUT_SEC)
        error = self.assertRaises(messaging.RemoteError, client.call, {}, 'list_jobs')
        self.assertEqual('UnsupportedVersion', error.exc_type)


class SeveralTest(bus_case.BusTestCase):
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
        self.assertTrue(self.begun.wait(bus_case.TIMEOUT_SEC))
        holders = []
        # A request that is addressed to the first copy while it stops is lost: repeat it soon.
        api = rpcapi.StorageAPI(self.connection, timeout_sec=5)
        waiting = threading.Thread(
            target=lambda: holders.append(api.run('op', work, bus_case.TIMEOUT_SEC))
        )
        waiting.start()
        self.serve('other')
        self.assertTrue(first.stop())
        self.go_on.set()
        waiting.join(bus_case.TIMEOUT_SEC)
        self.assertEqual(16 * MIB, holders[0].copied_bytes)
        found = self.api.find_job('op')
        self.assertEqual(('other', 2), (found.holder, found.attempt))

    def test_any_copy_of_the_service_cancels_a_job(self):
        self.slow_down()
        self.serve('one')
        self.serve('other')
        work = tasks.CopyTask(self.image.snapshot('s'), self.vault)
        self.api.start('op', work)
        self.assertTrue(self.begun.wait(bus_case.TIMEOUT_SEC))
        for _ in range(2):
            self.api.cancel('op')
        deadline = time.monotonic() + bus_case.TIMEOUT_SEC
        while self.api.find_job('op').state.is_active and time.monotonic() < deadline:
            time.sleep(0.02)
        self.assertEqual(tasks.JobState.CANCELED, self.api.find_job('op').state)

    def test_the_result_of_another_image_is_no_proof(self):
        """A key holder may give the job of an image any id."""
        work = tasks.FenceTask(self.image)
        other = tasks.FenceTask(image_types.ImageRef('vault', self.image.name))
        self.serve('one')
        job = dataclasses.replace(self.api.start('fence.id', work), work=other)
        with mock.patch.object(rpcapi.StorageAPI, 'start', return_value=job):
            error = self.assertRaises(
                exceptions.InvalidRequestError, self.api.run, 'fence.id', work, 10
            )
        self.assertIn(f'another job: {other}, expected {work}', str(error))

    def test_the_job_continues_after_the_callers_timeout(self):
        self.slow_down()
        self.serve('one')
        work = tasks.CopyTask(self.image.snapshot('s'), self.vault)
        error = self.assertRaises(exceptions.StillRunningError, self.api.run, 'op', work, 0.3)
        self.assertIn(f'op ({work})', str(error))
        self.go_on.set()
        self.assertEqual(16 * MIB, self.api.run('op', work, bus_case.TIMEOUT_SEC).copied_bytes)
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
        self.api.run(
            'op', tasks.CopyTask(self.image.snapshot('s'), self.vault), bus_case.TIMEOUT_SEC
        )
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
