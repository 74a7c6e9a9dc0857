# SPDX-License-Identifier: Apache-2.0
"""Every verb of the service while something dies under it, stands still, or is full.

All verbs are asked for at once, each on an image of its own, and in the midst of that something
happens. What came to nothing is asked for again, as callers do. In the end each has come to what it
promises, and nothing besides is there.
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
from trove_ceph.tests.functional import base, ceph, storage, test_storage_service, workspace

MIB = units.Mi
POOL, OTHER_POOL = 'one', 'two'
# The locks of one that was killed, the 30 s that Ceph remembers it, and the work.
TIMEOUT_SEC = 600
PAUSE_SEC = 3
# Far below what an empty OSD has in use, and what they are else.
RATIOS = {'nearfull': (0.0001, 0.85), 'backfillfull': (0.0002, 0.9), 'full': (0.0003, 0.95)}
#: What callers wait for, and ask again.
PASSING = (exceptions.CephUnreachableError, exceptions.BusyError)


@functools.cache
def cluster():
    """Return a cluster to break, made at its first use; it goes with the workspace."""
    made = ceph.Cluster(workspace.shared() / 'disrupted', {'ssd': 2}, osd_gib=3)
    made.create()
    made.start()
    tiers = {name: ceph.tier('data', 'ssd', name, 2, 8) for name in (POOL, OTHER_POOL)}
    made.apply({'tiers': tiers, 'users': {storage.USER: {'role': 'storage'}}})
    return made


@dataclasses.dataclass
class Deed:
    """A request, and how to see that it is done."""

    verb: str
    arguments: dict
    is_done: Callable[[], bool]


class DisruptionsTest(contract.StorageContract, storage.DeadClients, base.FunctionalTestCase):
    pool, second_pool = POOL, OTHER_POOL

    def setUp(self):
        super().setUp()
        self.cluster = cluster()
        self.storage, self.other = (storage.connect(self, self.cluster) for _ in range(2))
        self.base = self.make_written()
        self.storage.create_snapshot(self.base.snapshot('cloned'))
        self.expected = self.content(self.base.snapshot('s'))

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
        # The connections to Ceph are made at the first request.
        served.ask('list_jobs')
        return served

    # What is asked for.

    def clone(self, name, pool=None, snapshot=None):
        clone = self.ref(name, pool)
        self.storage.clone(self.base.snapshot('s'), clone, image_types.ImageOptions())
        if snapshot:
            self.storage.create_snapshot(clone.snapshot(snapshot))
        return clone

    def deeds(self):
        """Return each verb on an image of its own."""
        return [*self._short_deeds(), *self._looks(), *self._jobs()]

    def _short_deeds(self):
        made, removed, renamed = (
            self.clone(name, snapshot='old') for name in ('made', 'removed', 'renamed')
        )
        cloned, limited, trashed = self.ref('cloned', OTHER_POOL), self.clone('l'), self.clone('t')
        restored = self.storage.trash(self.clone('restored'))
        yield Deed(
            'create_snapshot',
            {'snapshot': made.snapshot('new')},
            lambda: self.snapshot_names(made) == ['old', 'new'],
        )
        yield Deed(
            'remove_snapshot',
            {'snapshot': removed.snapshot('old')},
            lambda: self.snapshot_names(removed) == [],
        )
        yield Deed(
            'rename_snapshot',
            {'snapshot': renamed.snapshot('old'), 'name': 'new'},
            lambda: self.snapshot_names(renamed) == ['new'],
        )
        yield Deed(
            'clone',
            {
                # The other one is busy as long as it is copied.
                'snapshot': self.base.snapshot('cloned'),
                'image': cloned,
                'qos': image_types.Qos(iops=300),
                'options': None,
            },
            lambda: self.storage.describe(cloned).qos.iops == 300,
        )
        yield Deed(
            'set_qos',
            {'image': limited, 'qos': image_types.Qos(iops=500)},
            lambda: self.storage.describe(limited).qos.iops == 500,
        )
        yield Deed(
            'trash',
            {'image': trashed},
            lambda: (
                trashed.name in [one.name for one in self.storage.list_trash(POOL)]
                and trashed not in [one.image for one in self.storage.list_images(POOL)]
            ),
        )
        again = self.ref('again')
        yield Deed(
            'restore',
            {'pool': POOL, 'image_id': restored.image_id, 'name': again.name},
            # Killed at the very end, it is an image again and still in the trash.
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
            yield Deed(verb, arguments, lambda: True)

    def _jobs(self):
        same, alike = (self.clone(name, snapshot='same') for name in ('same', 'alike'))
        self.flattened, self.vault = self.clone('flat', OTHER_POOL), self.ref('vault', OTHER_POOL)
        purged = self.storage.trash(self.clone('purged'))
        source = self.base.snapshot('s')
        for work in (
            tasks.CopyTask(source, self.vault),
            tasks.FlattenTask(self.flattened),
            # The source is held by the copy, for which this would have to wait.
            tasks.VerifyTask(alike.snapshot('same'), same.snapshot('same')),
            tasks.FenceTask(self.clone('fenced')),
            tasks.PurgeTask(POOL, purged.image_id),
        ):
            operation_id = f'{self.prefix}-{type(work).__name__}'
            arguments = {'operation_id': operation_id, 'work': work}
            yield Deed('start', arguments, functools.partial(self._is_job_done, operation_id))

    def _is_job_done(self, operation_id):
        found = self.served.ask('find_job', operation_id=operation_id)
        return found.state is JobState.DONE

    # How it goes.

    def tell_all(self, deeds):
        """Ask for all at once, and return when the first are being done."""
        numbers = [self.served.tell(deed.verb, **deed.arguments) for deed in deeds]
        time.sleep(random.uniform(0, 0.3))
        return numbers

    def hear_all(self, numbers):
        """Return the errors among the answers."""
        errors = []
        for number in numbers:
            try:
                self.served.hear(number)
            except exceptions.TroveCephError as error:
                errors.append(error)
        return errors

    def insist(self, deeds):
        """Ask for each again until it is done."""
        deadline = time.monotonic() + TIMEOUT_SEC
        for deed in deeds:
            while not self._is_done(deed):
                self.assertLess(time.monotonic(), deadline, deed)
                try:
                    self.served.ask(deed.verb, **deed.arguments)
                except exceptions.CephUnreachableError:
                    pass
                except exceptions.BusyError as error:
                    self.await_dead_clients(error)
                except exceptions.TroveCephError:
                    # Such as that it exists: the first attempt made it after all.
                    if not self._is_done(deed):
                        raise
                time.sleep(0.2)
        self.assert_all_right()

    def _is_done(self, deed):
        try:
            return deed.is_done()
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
        expected = 'image made removed renamed cloned l again same alike flat vault fenced'
        self.assertEqual(set(expected.split()), names)

    # What happens.

    def test_service_is_killed(self):
        deeds = self.deeds()
        first, second = self.serve('first'), self.serve('second')
        self.served = first
        self.tell_all(deeds)
        first.kill()
        self.served = second
        self.insist(deeds)

    def test_monitor_stops_and_an_osd_dies(self):
        """Whoever asks sees nothing of either."""
        deeds = self.deeds()
        self.served = self.serve('one')
        pids = self.cluster.pids()
        numbers = self.tell_all(deeds)
        os.kill(pids['mon.a'], signal.SIGSTOP)
        try:
            time.sleep(PAUSE_SEC)
        finally:
            os.kill(pids['mon.a'], signal.SIGCONT)
        ceph.kill_all([pids['osd.0']])
        try:
            self.assertEqual([], self.hear_all(numbers))
        finally:
            self.cluster.start()
        self.insist(deeds)

    def test_osds_are_full(self):
        deeds = self.deeds()
        self.served = self.serve('one')
        self.addCleanup(self._set_ratios, 1)
        self._set_ratios(0)
        self._await(lambda: self.storage.usage(OTHER_POOL).full)
        errors = self.hear_all(self.tell_all(deeds))
        jobs = [deed for deed in deeds if deed.verb == 'start']
        self._await(lambda: not any(map(self._is_active, jobs)))
        for deed in jobs:
            found = self._job(deed)
            if found.error:
                errors.append(exceptions.error_class(found.error)(found.message))
        self.assertNotEqual([], errors)
        for error in errors:
            self.assertIsInstance(error, exceptions.NoSpaceError)
        self.assertTrue(any(f'pool {OTHER_POOL}: ' in str(error) for error in errors), errors)
        self._set_ratios(1)
        self._await(lambda: not self.storage.usage(OTHER_POOL).full)
        self.insist(deeds)

    def _job(self, deed):
        return self.served.ask('find_job', operation_id=deed.arguments['operation_id'])

    def _is_active(self, deed):
        try:
            return self._job(deed).state.is_active
        except exceptions.NotFoundError:
            # It was refused at once.
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
            self.assertLess(time.monotonic(), deadline, 'not within the time')
            time.sleep(0.5)

    def test_refuses_invalid_requests_without_a_change(self):
        self.served = self.serve('one')
        image, other, nothing = self.base, self.make('other'), self.ref('nothing')
        self.write(other, 0, b'somebody\'s')
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
                self.assertRaises(error, self.served.ask, verb, **arguments)
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
            deed = Deed('start', {'operation_id': operation_id, 'work': work}, lambda: True)
            self.served.ask('start', **deed.arguments)
            self._await(lambda chosen=deed: not self._is_active(chosen))
            self.assertRaises(error, self._job(deed).raise_error)
        self.assertEqual(before, self._all())

    def _all(self):
        """Return all that there is of this test."""
        return [
            (facts.image, facts.image_id, facts.size_bytes, facts.parent, facts.snapshots)
            for pool in (POOL, OTHER_POOL)
            for facts in self.storage.describe_pool(pool)
            if facts.image.name.startswith(self.prefix)
        ]
