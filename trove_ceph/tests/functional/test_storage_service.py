# SPDX-License-Identifier: Apache-2.0
"""Several processes of the storage service on one Ceph: killed, paused, in conflict."""

import itertools
import json
import signal
import subprocess
import sys
import time

from oslo_utils import units

from trove_ceph import exceptions
from trove_ceph.storage import copying, image_types, tasks, transfer
from trove_ceph.storage.ceph import encoding, lock_store, metadata
from trove_ceph.storage.tasks import JobState
from trove_ceph.storage_service import serializer
from trove_ceph.tests.contract import storage as contract
from trove_ceph.tests.functional import base, storage, storage_server

MIB = units.Mi
LOCK_SEC = 15
# More than one and a half checkpoints of a copy: it can be killed after the first.
LARGE_MIB = 448
# For a lock, the 30 s until the watch of a dead client expires, and the work on a busy machine.
TIMEOUT_SEC = 240


class ServerProcess:
    """A copy of the service, which receives requests as it would over the bus."""

    def __init__(self, name, config):
        self.name = name
        self._process = subprocess.Popen(
            [
                sys.executable,
                '-W',
                'ignore',
                storage_server.__file__,
                name,
                '--config-file',
                str(config),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._numbers = itertools.count(1)
        self._answers = {}
        self.expect('serving')

    def expect(self, line):
        found = self._process.stdout.readline()
        if found != f'{line}\n':
            raise AssertionError(f'{self.name} printed {found!r} instead of {line}')

    def request(self, verb, **arguments):
        """Return the result of a request, or raise its error."""
        return self.receive(self.send(verb, **arguments))

    def send(self, verb, **arguments):
        """Send a request without waiting for the reply, and return its number."""
        number = next(self._numbers)
        primitive = {name: serializer.encode(value) for name, value in arguments.items()}
        request = {'number': number, 'verb': verb, 'arguments': primitive}
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return number

    def receive(self, number):
        """Return the result of a numbered request, or raise its error."""
        while number not in self._answers:
            line = self._process.stdout.readline()
            if not line:
                raise AssertionError(f'{self.name} ended with status {self.wait()}')
            try:
                answer = json.loads(line)
            except ValueError:
                raise AssertionError(f'{self.name} printed {line!r}, not a reply') from None
            self._answers[answer['number']] = answer
        answer = self._answers.pop(number)
        if 'error' in answer:
            raise exceptions.error_class(answer['error'])(answer['message'])
        return serializer.decode(answer['result'])

    def signal(self, name):
        subprocess.run(['kill', f'-{name}', str(self._process.pid)], check=True)

    def kill(self):
        self._process.kill()
        self.wait()

    def wait(self):
        """Return its exit status."""
        return self._process.wait(TIMEOUT_SEC)

    def close(self):
        self.kill()
        self._process.stdin.close()
        self._process.stdout.close()


class ServiceTest(contract.StorageContract, storage.CephStorageTestCase):
    def setUp(self):
        super().setUp()
        self.vault = self.ref('vault', self.second_pool)
        self.operation = f'{self.prefix}-op'
        self.addCleanup(self._forget)

    def _forget(self):
        for pool in (self.pool, self.second_pool):
            with self.cluster.pool(pool) as context:
                context.set_namespace(lock_store.NAMESPACE)
                context.remove_object(lock_store.OBJECT)

    def serve(self, name, **options):
        """Start a copy of the service."""
        options = {
            'ceph_conf': self.cluster.conf,
            'pools': f'{self.pool},{self.second_pool}',
            'lock_duration_sec': LOCK_SEC,
        } | options
        config = self.directory / f'{name}.conf'
        lines = [f'{key} = {value}' for key, value in options.items()]
        config.write_text('\n'.join(['[trove_ceph_storage]', *lines, '']))
        served = ServerProcess(name, config)
        self.addCleanup(served.close)
        # The connections to Ceph are made at the first request.
        served.request('list_jobs')
        return served

    def make_large(self):
        """Create an image full of data with a snapshot ``s``."""
        image = self.make(size_mib=LARGE_MIB)
        with self.storage.open_writer(image) as writer:
            block = self.data(4 * MIB)
            writes = [writer.write(at * 4 * MIB, block) for at in range(LARGE_MIB // 4)]
            for write in writes:
                write.result()
            writer.create_snapshot('s')
        return image

    def wait_for(self, served, condition):
        deadline = time.monotonic() + TIMEOUT_SEC
        while True:
            found = served.request('find_job', operation_id=self.operation)
            if condition(found):
                return found
            self.assertLess(time.monotonic(), deadline, found)
            time.sleep(0.3)

    def begin_copy(self, served, beyond_bytes=0):
        """Begin a copy and wait until it is beyond a position."""
        image = self.make_large()
        work = tasks.CopyTask(image.snapshot('s'), self.vault)
        served.request('start', operation_id=self.operation, work=work)
        self.wait_for(
            served, lambda found: found.done_bytes > beyond_bytes or not found.state.is_active
        )
        return work

    def assert_taken_up(self, other, work, least_resumed_at):
        started = time.monotonic()
        other.request('start', operation_id=self.operation, work=work)
        done = self.wait_for(other, lambda found: not found.state.is_active)
        self.assertEqual(
            (JobState.DONE, other.name, 2), (done.state, done.holder, done.attempt), done
        )
        self.assertGreaterEqual(done.result.resumed_at, least_resumed_at)
        self.assertEqual(LARGE_MIB * MIB, done.result.compared_bytes)
        self.assertEqual(['s'], list(copying.complete_copies(self.storage.describe(self.vault))))
        return time.monotonic() - started

    def test_another_copy_of_the_service_resumes_after_a_kill(self):
        one, other = self.serve('one', copy_mib_per_sec=100), self.serve('other')
        work = self.begin_copy(one, transfer.CHECKPOINT_BYTES + 64 * MIB)
        # It is the same job for each copy of the service.
        seen = other.request('start', operation_id=self.operation, work=work)
        self.assertEqual((JobState.RUNNING, 'one', 1), (seen.state, seen.holder, seen.attempt))
        one.kill()
        found = self.wait_for(other, lambda found: found.state is not JobState.RUNNING)
        self.assertEqual(JobState.INTERRUPTED, found.state)
        self.assert_taken_up(other, work, transfer.CHECKPOINT_BYTES)

    def test_sigterm_releases_locks_at_once(self):
        one, other = self.serve('one', copy_mib_per_sec=100), self.serve('other')
        work = self.begin_copy(one, 64 * MIB)
        began = time.monotonic()
        one.signal('TERM')
        self.assertEqual(0, one.wait())
        found = other.request('find_job', operation_id=self.operation)
        self.assertEqual(JobState.INTERRUPTED, found.state)
        self.assertLess(time.monotonic() - began, LOCK_SEC)
        # A canceled copy has everything on disk: nothing is copied twice.
        self.assert_taken_up(other, work, 64 * MIB)

    def test_paused_for_too_long_loses_its_locks(self):
        """Like a suspended virtual machine, or a host that lost its network."""
        one, other = self.serve('one', copy_mib_per_sec=100), self.serve('other')
        work = self.begin_copy(one, transfer.CHECKPOINT_BYTES + 64 * MIB)
        one.signal('STOP')
        self.wait_for(other, lambda found: found.state is JobState.INTERRUPTED)
        self.assert_taken_up(other, work, transfer.CHECKPOINT_BYTES)
        before = other.request('find_job', operation_id=self.operation)
        one.signal('CONT')
        # It notices that at its next chunk, and writes nothing at its next heartbeat.
        time.sleep(3)
        self.assertEqual(before, other.request('find_job', operation_id=self.operation))
        self.assertEqual(['s'], list(copying.complete_copies(self.storage.describe(self.vault))))
        self.assertEqual(
            self.content(work.snapshot), self.content(self.vault.snapshot('s')), 'not the same'
        )

    def test_work_on_one_image_takes_turns(self):
        one, other = self.serve('one', copy_mib_per_sec=10), self.serve('other')
        work = self.begin_copy(one)
        image = work.snapshot.of
        self.storage.create_snapshot(image.snapshot('t'))
        second = tasks.CopyTask(image.snapshot('t'), self.vault, since='s')
        refused = (
            ('start', {'operation_id': 'another', 'work': second}),
            ('start', {'operation_id': 'another', 'work': tasks.FlattenTask(self.vault)}),
            ('trash', {'image': self.vault}),
            ('remove_snapshot', {'snapshot': work.snapshot}),
        )
        for served in (one, other):
            for verb, arguments in refused:
                error = self.assertRaises(exceptions.BusyError, served.request, verb, **arguments)
                self.assert_message(error, f'held by one for {work}, operation {self.operation}')
        # Work without a conflict continues.
        clone = self.ref('clone')
        other.request('create_snapshot', snapshot=image.snapshot('u'))
        other.request(
            'clone',
            snapshot=work.snapshot,
            image=clone,
            qos=image_types.Qos(iops=500),
            options=None,
        )
        other.request('set_qos', image=image, qos=image_types.Qos(iops=0))
        self.assertEqual(500, other.request('describe', image=clone, with_usage=False).qos.iops)
        # And when the first has ended, the second can.
        other.request('cancel', operation_id=self.operation)
        found = self.wait_for(other, lambda found: not found.state.is_active)
        self.assertEqual(JobState.CANCELED, found.state)
        self.assert_taken_up(other, work, 0)
        one.request('start', operation_id='another', work=second)
        self.operation = 'another'
        done = self.wait_for(other, lambda found: not found.state.is_active)
        self.assertEqual((JobState.DONE, 0), (done.state, done.result.copied_bytes), done)

    @base.long
    def test_leaves_the_lock_to_a_paused_server(self):
        """Like that of a source whose host is paused while its replica is promoted."""
        one = self.serve('one')
        image, clone = self.make_written(), self.ref('clone', self.second_pool)
        self.storage.clone(image.snapshot('s'), clone, image_types.ImageOptions())
        # Ceph keeps it for the clone, and removes it at the end of the flatten.
        self.storage.remove_snapshot(image.snapshot('s'))
        server = self.start_writing(image)
        address = self.storage.find_clients(image).lock_owner
        self.assertTrue(self.storage.do_clients_answer(image, TIMEOUT_SEC))
        server.send_signal(signal.SIGSTOP)
        self.assertFalse(self.storage.do_clients_answer(image))
        snapshot, flatten = image.snapshot('t'), tasks.FlattenTask(clone)
        # Before and after its watch expires.
        for is_watching in (True, False):
            self.await_watch(image, address, is_watching)
            error = self.assertRaises(
                exceptions.SilentOwnerError, one.request, 'create_snapshot', snapshot=snapshot
            )
            self.assert_message(error, image, address)
        one.request('start', operation_id=self.operation, work=flatten)
        found = self.wait_for(one, lambda found: not found.state.is_active)
        self.assertEqual((JobState.FAILED, 'SilentOwnerError'), (found.state, found.error), found)
        server.send_signal(signal.SIGCONT)
        self.await_watch(image, address, True)
        one.request('create_snapshot', snapshot=snapshot)
        one.request('start', operation_id=self.operation, work=flatten)
        done = self.wait_for(one, lambda found: not found.state.is_active)
        self.assertEqual(JobState.DONE, done.state, done)
        facts = self.storage.describe(image)
        self.assertEqual((['t'], address), (facts.snapshot_names, facts.lock_owner))
        self.assertNotIn(address, self.storage.blocklisted())
        self.assertIsNone(server.poll(), 'the server has ended')

    def test_cancels_and_resumes_a_flatten(self):
        one, other = self.serve('one'), self.serve('other')
        image, clone = self.make_large(), self.ref('clone', self.second_pool)
        self.storage.clone(image.snapshot('s'), clone, image_types.ImageOptions())
        # One object after the other, so that there is time.
        slow = {'conf_rbd_concurrent_management_ops': '1'}
        self.storage.set_image_metadata(clone, slow)
        work = tasks.FlattenTask(clone)
        one.request('start', operation_id=self.operation, work=work)
        self.wait_for(one, lambda found: found.done_bytes or not found.state.is_active)
        one.request('cancel', operation_id=self.operation)
        found = self.wait_for(other, lambda found: not found.state.is_active)
        self.assertEqual(JobState.CANCELED, found.state, found)
        self.assertIsNotNone(self.storage.describe(clone).parent)
        other.request('start', operation_id=self.operation, work=work)
        done = self.wait_for(one, lambda found: not found.state.is_active)
        self.assertEqual(JobState.DONE, done.state, done)
        self.assertIsNone(self.storage.describe(clone).parent)
        # Not by assertEqual, which would print both.
        is_same = self.content(image.snapshot('s')) == self.content_now(clone)
        self.assertTrue(is_same, 'the clone has lost data')
        # The copy of the service that canceled it still works.
        self.assertEqual(clone, one.request('describe', image=clone, with_usage=False).image)

    def test_recreates_an_interrupted_clone(self):
        one, image = self.serve('one'), self.make_written()
        expected = self.content(image.snapshot('s'))
        whole, blank, unknown = (self.ref(name) for name in ('whole', 'blank', 'unknown'))
        # As librbd leaves them: only the image, and a parent that does not list its child.
        self.make('blank')
        self.storage.clone(image.snapshot('s'), unknown, image_types.ImageOptions())
        child_id = self.storage.describe(unknown).image_id
        self._part(image, 's', child_id)
        self.assertEqual((), self.storage.describe(image).children)
        self.assertEqual(image.snapshot('s'), self.storage.describe(unknown).parent)
        for clone in (whole, blank, unknown):
            arguments = {'snapshot': image.snapshot('s'), 'image': clone, 'options': None}
            one.request('clone', qos=image_types.Qos(iops=500), **arguments)
            # Not by assertEqual, which would print both.
            self.assertTrue(expected == self.content_now(clone), f'{clone} has not the same data')
        children = {child.image for child in self.storage.describe(image).children}
        self.assertEqual({whole, blank, unknown}, children)

    def _part(self, parent, snapshot, child_id):
        """Remove a clone in the same pool from its parent's list of children."""
        facts = self.storage.describe(parent)
        with self.cluster.pool(parent.pool) as context:
            pool_id = encoding.long_number(context.get_pool_id())
            child = encoding.versioned(pool_id + encoding.string(child_id))
            snapshot_id = encoding.long_number(facts.find_snapshot(snapshot).snapshot_id)
            header = metadata.header_of(facts.image_id)
            context.execute(header, 'rbd', 'child_detach', snapshot_id + child)

    def test_fence_cancels_other_work(self):
        one, other = self.serve('one'), self.serve('other')
        image, clone = self.make_large(), self.ref('clone', self.second_pool)
        self.storage.clone(image.snapshot('s'), clone, image_types.ImageOptions())
        one.request(
            'start', operation_id=f'{self.operation}-flatten', work=tasks.FlattenTask(clone)
        )
        other.request('start', operation_id=self.operation, work=tasks.FenceTask(clone))
        done = self.wait_for(other, lambda found: not found.state.is_active)
        self.assertEqual(JobState.DONE, done.state, done)
        self.assertEqual(frozenset(), self.storage.find_clients(clone).addresses)
        flattened = one.request('find_job', operation_id=f'{self.operation}-flatten')
        self.assertIn(flattened.state, (JobState.CANCELED, JobState.DONE))
        other.request('unfence', image=clone)

    def test_no_key_in_errors_or_records(self):
        one = self.serve('one')
        (found,) = self.cluster.mon_command('auth get', entity=storage.USER)
        key = found['key']
        error = self.assertRaises(
            exceptions.NotFoundError,
            one.request,
            'describe',
            image=self.ref('missing'),
            with_usage=True,
        )
        self.assertNotIn(key, str(error))
        work = tasks.CopyTask(self.make_written().snapshot('s'), self.vault)
        one.request('start', operation_id=self.operation, work=work)
        self.wait_for(one, lambda found: not found.state.is_active)
        entries = lock_store.CephLockStore(lambda: storage.link(self, self.cluster))
        written = entries.read(self.second_pool, '')
        self.assertIn(self.operation, ' '.join(written))
        self.assertNotIn(key, json.dumps(written))
