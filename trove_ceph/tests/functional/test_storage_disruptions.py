# SPDX-License-Identifier: Apache-2.0
"""Every verb of the service while a daemon dies or stops, or the OSDs are full.

All verbs are requested at once, each on an image of its own, and a disruption happens meanwhile.
Failed requests are repeated, as callers do. In the end each verb has its promised result, and
nothing else exists.
"""

import dataclasses
import functools
import json
import os
import random
import signal
import time
from collections.abc import Callable

from oslo_utils import units

from trove_ceph import exceptions
from trove_ceph.storage import copying, image_types, tasks
from trove_ceph.storage.tasks import JobState
from trove_ceph.tests.contract import storage as contract
from trove_ceph.tests.functional import ceph, storage, test_storage_service, workspace

MIB = units.Mi
POOL, OTHER_POOL = 'one', 'two'
# For the locks of a killed process, the 30 s until its watch expires, and the work.
TIMEOUT_SEC = 600
PAUSE_SEC = 3
# Far below the usage of an empty OSD, and the normal ratios.
RATIOS = {'nearfull': (0.0001, 0.85), 'backfillfull': (0.0002, 0.9), 'full': (0.0003, 0.95)}
#: Errors after which callers repeat their request.
PASSING = (exceptions.CephUnreachableError, exceptions.BusyError)


@functools.cache
def cluster():
    """Return a cluster to break, created at its first use; it ends with the workspace."""
    created = ceph.Cluster(workspace.shared() / 'disrupted', {'ssd': 2}, osd_gib=3)
    created.create()
    created.start()
    tiers = {name: ceph.tier('data', 'ssd', name, 2, 8) for name in (POOL, OTHER_POOL)}
    created.apply({'tiers': tiers, 'users': {storage.USER: {'role': 'storage'}}})
    return created


@dataclasses.dataclass
class Request:
    """A request, and a check that it is done."""

    verb: str
    arguments: dict
    is_done: Callable[[], bool]


class DisruptionsTest(contract.StorageContract, storage.CephStorageTestCase):
    pool, second_pool = POOL, OTHER_POOL

    def setUp(self):
        super().setUp()
        self.base = self.make_written()
        self.storage.create_snapshot(self.base.snapshot('cloned'))
        self.expected = self.content(self.base.snapshot('s'))

    def find_cluster(self):
        return cluster()

    def serve(self, name):
        config = self.directory / f'{name}.conf'
        config.write_text(
            '[trove_ceph_storage]\n'
            f'ceph_conf = {self.cluster.conf}\n'
            f'pools = {POOL},{OTHER_POOL}\n'
            'job_threads = 8\n'
            f'lock_duration_sec = {test_storage_service.LOCK_SEC}\n'
        )
        served = test_storage_service.ServerProcess(name, config)
        self.addCleanup(served.close)
        # The connections to Ceph are created at the first request.
        served.request('list_jobs')
        return served

    # The requests.

    def clone(self, name, pool=None, snapshot=None):
        clone = self.ref(name, pool)
        self.storage.clone(self.base.snapshot('s'), clone, image_types.ImageOptions())
        if snapshot:
            self.storage.create_snapshot(clone.snapshot(snapshot))
        return clone

    def requests(self):
        """Return each verb on an image of its own."""
        return [*self._short_requests(), *self._looks(), *self._jobs()]

    def _short_requests(self):
        created, removed, renamed = (
            self.clone(name, snapshot='old') for name in ('created', 'removed', 'renamed')
        )
        cloned, limited, trashed = self.ref('cloned', OTHER_POOL), self.clone('l'), self.clone('t')
        restored = self.storage.trash(self.clone('restored'))
        yield Request(
            'create_snapshot',
            {'snapshot': created.snapshot('new')},
            lambda: self.snapshot_names(created) == ['old', 'new'],
        )
        yield Request(
            'remove_snapshot',
            {'snapshot': removed.snapshot('old')},
            lambda: self.snapshot_names(removed) == [],
        )
        yield Request(
            'rename_snapshot',
            {'snapshot': renamed.snapshot('old'), 'name': 'new'},
            lambda: self.snapshot_names(renamed) == ['new'],
        )
        yield Request(
            'clone',
            {
                # The other one is busy while it is copied.
                'snapshot': self.base.snapshot('cloned'),
                'image': cloned,
                'qos': image_types.Qos(iops=300),
                'options': None,
            },
            lambda: self.storage.describe(cloned).qos.iops == 300,
        )
        yield Request(
            'set_qos',
            {'image': limited, 'qos': image_types.Qos(iops=500)},
            lambda: self.storage.describe(limited).qos.iops == 500,
        )
        yield Request(
            'trash',
            {'image': trashed},
            lambda: (
                trashed.name in [one.name for one in self.storage.list_trash(POOL)]
                and trashed not in [one.image for one in self.storage.list_images(POOL)]
            ),
        )
        again = self.ref('again')
        yield Request(
            'restore',
            {'pool': POOL, 'image_id': restored.image_id, 'name': again.name},
            # After a kill at the very end, it is an image again and still in the trash.
            lambda: (
                self.storage.describe(again).image_id == restored.image_id
                and restored.image_id not in self.trashed_ids()
            ),
        )

    def trashed_ids(self):
        return [one.image_id for one in self.storage.list_trash(POOL)]

    def _looks(self):
        for verb, arguments in (
            ('describe', {'image': self.base, 'with_usage': True}),
            ('list_images', {'pool': POOL, 'prefix': '', 'after': '', 'limit': 10}),
            ('list_trash', {'pool': POOL}),
            ('usage', {'pool': POOL}),
        ):
            yield Request(verb, arguments, lambda: True)

    def _jobs(self):
        same, alike = (self.clone(name, snapshot='same') for name in ('same', 'alike'))
        self.flattened, self.vault = self.clone('flat', OTHER_POOL), self.ref('vault', OTHER_POOL)
        purged = self.storage.trash(self.clone('purged'))
        source = self.base.snapshot('s')
        for work in (
            tasks.CopyTask(source, self.vault),
            tasks.FlattenTask(self.flattened),
            # The copy locks the source, so this would have to wait.
            tasks.VerifyTask(alike.snapshot('same'), same.snapshot('same')),
            tasks.FenceTask(self.clone('fenced')),
            tasks.PurgeTask(POOL, purged.image_id),
        ):
            operation_id = f'{self.prefix}-{type(work).__name__}'
            arguments = {'operation_id': operation_id, 'work': work}
            yield Request('start', arguments, functools.partial(self._is_job_done, operation_id))

    def _is_job_done(self, operation_id):
        found = self.served.request('find_job', operation_id=operation_id)
        return found.state is JobState.DONE

    # The execution.

    def send_all(self, requests):
        """Send all requests at once, and return when the first ones are active."""
        numbers = [self.served.send(request.verb, **request.arguments) for request in requests]
        time.sleep(random.uniform(0, 0.3))
        return numbers

    def receive_all(self, numbers):
        """Return the errors among the replies."""
        errors = []
        for number in numbers:
            try:
                self.served.receive(number)
            except exceptions.TroveCephError as error:
                errors.append(error)
        return errors

    def repeat(self, requests):
        """Repeat each request until it is done."""
        deadline = time.monotonic() + TIMEOUT_SEC
        for request in requests:
            while not self._is_done(request):
                self.assertLess(time.monotonic(), deadline, request)
                try:
                    self.served.request(request.verb, **request.arguments)
                except exceptions.CephUnreachableError:
                    pass
                except exceptions.BusyError as error:
                    self.await_dead_clients(error)
                except exceptions.TroveCephError:
                    # For instance that it exists: the first attempt created it after all.
                    if not self._is_done(request):
                        raise
                time.sleep(0.2)
        self.assert_all_right()

    def _is_done(self, request):
        try:
            return request.is_done()
        except (*PASSING, exceptions.NotFoundError):
            return False

    def assert_all_right(self):
        self.assertIn('s', copying.complete_copies(self.storage.describe(self.vault)))
        self.assertIsNone(self.storage.describe(self.flattened).parent)
        # Not by assertEqual, which would print both.
        for found in (self.content(self.vault.snapshot('s')), self.content_now(self.flattened)):
            self.assertTrue(found == self.expected, 'not the same data')
        names = {
            listed.image.name.removeprefix(f'{self.prefix}-')
            for pool in (POOL, OTHER_POOL)
            for listed in self.storage.list_images(pool, self.prefix)
        }
        expected = 'image created removed renamed cloned l again same alike flat vault fenced'
        self.assertEqual(set(expected.split()), names)

    # The disruptions.

    def test_service_is_killed(self):
        requests = self.requests()
        first, second = self.serve('first'), self.serve('second')
        self.served = first
        self.send_all(requests)
        first.kill()
        self.served = second
        self.repeat(requests)

    def test_monitor_stops_and_an_osd_dies(self):
        """Callers notice neither."""
        requests = self.requests()
        self.served = self.serve('one')
        pids = self.cluster.pids()
        numbers = self.send_all(requests)
        os.kill(pids['mon.a'], signal.SIGSTOP)
        try:
            time.sleep(PAUSE_SEC)
        finally:
            os.kill(pids['mon.a'], signal.SIGCONT)
        ceph.kill_all([pids['osd.0']])
        try:
            self.assertEqual([], self.receive_all(numbers))
        finally:
            self.cluster.start()
        self.repeat(requests)

    def test_osds_are_full(self):
        requests = self.requests()
        self.served = self.serve('one')
        self.addCleanup(self._make_space)
        self._set_ratios(0)
        self._await(lambda: self.storage.usage(OTHER_POOL).full)
        errors = self.receive_all(self.send_all(requests))
        jobs = [request for request in requests if request.verb == 'start']
        self._await(lambda: not any(map(self._is_active, jobs)))
        for request in jobs:
            found = self._job(request)
            if found.error:
                errors.append(exceptions.error_class(found.error)(found.message))
        self.assertNotEqual([], errors)
        for error in errors:
            self.assertIsInstance(error, exceptions.NoSpaceError)
        self.assertTrue(any(f'pool {OTHER_POOL}: ' in str(error) for error in errors), errors)
        self._make_space()
        self.repeat(requests)

    def _make_space(self):
        self._set_ratios(1)
        self._await(lambda: not any(self.storage.usage(pool).full for pool in (POOL, OTHER_POOL)))

    def _job(self, request):
        return self.served.request('find_job', operation_id=request.arguments['operation_id'])

    def _is_active(self, request):
        try:
            return self._job(request).state.is_active
        except exceptions.NotFoundError:
            # The request was refused at once.
            return False

    def _set_ratios(self, which):
        with self.cluster.connection() as handle:
            for name, ratios in RATIOS.items():
                request = {'prefix': f'osd set-{name}-ratio', 'ratio': ratios[which]}
                code, _, message = handle.mon_command(json.dumps(request), b'')
                self.assertEqual(0, code, message)

    def _await(self, condition):
        deadline = time.monotonic() + TIMEOUT_SEC
        while not condition():
            self.assertLess(time.monotonic(), deadline, 'not within the time limit')
            time.sleep(0.5)

    def test_refuses_invalid_requests_without_a_change(self):
        self.served = self.serve('one')
        image, other, nothing = self.base, self.make('other'), self.ref('nothing')
        self.write(other, 0, b'foreign')
        child, trashed = self.clone('child'), self.storage.trash(self.clone('trashed'))
        elsewhere = image_types.ImageRef('.mgr', 'x')
        before = self._all()
        qos, source = {'qos': image_types.Qos(), 'options': None}, image.snapshot('s')
        bad_options = qos | {'options': image_types.ImageOptions(object_bytes=5)}
        invalid, missing, taken, busy = (
            exceptions.InvalidRequestError,
            exceptions.NotFoundError,
            exceptions.AlreadyExistsError,
            exceptions.BusyError,
        )
        restore = {'pool': POOL, 'image_id': trashed.image_id}
        with self.other.open_writer(other):
            for error, verb, arguments in (
                (invalid, 'describe', {'image': elsewhere, 'with_usage': False}),
                (missing, 'describe', {'image': nothing, 'with_usage': False}),
                (invalid, 'list_images', {'pool': POOL, 'prefix': '', 'after': '', 'limit': 0}),
                (invalid, 'list_trash', {'pool': 'a/b'}),
                (missing, 'create_snapshot', {'snapshot': nothing.snapshot('s')}),
                (taken, 'create_snapshot', {'snapshot': source}),
                (invalid, 'create_snapshot', {'snapshot': image.snapshot('a@b')}),
                (missing, 'remove_snapshot', {'snapshot': image.snapshot('t')}),
                (missing, 'rename_snapshot', {'snapshot': image.snapshot('t'), 'name': 'u'}),
                (taken, 'rename_snapshot', {'snapshot': source, 'name': 's'}),
                (invalid, 'rename_snapshot', {'snapshot': source, 'name': ''}),
                (missing, 'clone', {'snapshot': image.snapshot('t'), 'image': nothing} | qos),
                (taken, 'clone', {'snapshot': source, 'image': other} | qos),
                (invalid, 'clone', {'snapshot': source, 'image': elsewhere} | qos),
                (invalid, 'clone', {'snapshot': source, 'image': nothing} | bad_options),
                (missing, 'set_qos', {'image': nothing, 'qos': image_types.Qos()}),
                (missing, 'trash', {'image': nothing}),
                (busy, 'trash', {'image': other}),
                (missing, 'restore', {'pool': POOL, 'image_id': 'abc', 'name': 'x'}),
                (invalid, 'restore', {'pool': POOL, 'image_id': '../x', 'name': 'x'}),
                (taken, 'restore', restore | {'name': other.name}),
                (missing, 'unfence', {'image': nothing}),
                (missing, 'find_job', {'operation_id': 'nothing'}),
                (missing, 'cancel', {'operation_id': 'nothing'}),
                (invalid, 'start', {'operation_id': 'a/b', 'work': tasks.FlattenTask(child)}),
                (invalid, 'start', {'operation_id': 'a', 'work': tasks.FlattenTask(elsewhere)}),
                (missing, 'start', {'operation_id': 'a', 'work': tasks.PurgeTask(POOL, 'abc')}),
            ):
                self.assertRaises(error, self.served.request, verb, **arguments)
        for number, (error, work) in enumerate(
            (
                (missing, tasks.FlattenTask(nothing)),
                (missing, tasks.CopyTask(image.snapshot('t'), nothing)),
                (exceptions.StorageError, tasks.CopyTask(source, other)),
                (missing, tasks.VerifyTask(source, image.snapshot('t'))),
                (missing, tasks.FenceTask(nothing)),
            )
        ):
            operation_id = f'{self.prefix}-{number}'
            request = Request('start', {'operation_id': operation_id, 'work': work}, lambda: True)
            self.served.request('start', **request.arguments)
            self._await(lambda chosen=request: not self._is_active(chosen))
            self.assertRaises(error, self._job(request).raise_error)
        self.assertEqual(before, self._all())

    def _all(self):
        """Return all objects of this test."""
        return [
            (facts.image, facts.image_id, facts.size_bytes, facts.parent, facts.snapshots)
            for pool in (POOL, OTHER_POOL)
            for facts in self.storage.describe_pool(pool)
            if facts.image.name.startswith(self.prefix)
        ]
