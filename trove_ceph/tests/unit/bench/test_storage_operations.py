# SPDX-License-Identifier: Apache-2.0
"""Tests of the storage verbs on an in-memory cluster, and of their arguments."""

import contextlib
import io
import re
import shlex
from pathlib import Path
from unittest import mock

import fixtures
from oslo_utils import units
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.storage import copying, difference, image_types
from trove_ceph.storage.fake import backend, cluster
from trove_ceph.tests.unit.verification import world
from trove_ceph.verification import inspection
from trove_ceph_bench import arguments, plan_file, storage_operations

MIB = units.Mi
_VARIABLE = re.compile(r'\$\(\(.*?\)\)|\$\w+')
SOURCE, COPY = image_types.ImageRef('volumes', 'bench-a'), image_types.ImageRef('vault', 'bench-b')


class OperationsTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.cluster = cluster.Cluster({'volumes': 256 * MIB, 'vault': 256 * MIB})
        self.storage = backend.FakeBackend(self.cluster)
        self.phases, self.figures = [], {}
        self.operations = storage_operations.Operations(
            self.storage, self.phases.append, self.figures.__setitem__, inspector=self.fail
        )

    def extents(self, snapshot, since=None):
        with self.storage.open_reader(snapshot) as reader:
            return list(difference.extents(reader, since))

    def content(self, snapshot):
        with self.storage.open_reader(snapshot) as reader:
            return reader.read(0, reader.size_bytes).result()

    def names(self):
        return sorted(str(image.ref) for image in self.cluster.images)


class MakeTest(OperationsTestCase):
    def test_without_holes(self):
        self.operations.make(SOURCE, size_mib=9, data_mib=9, snapshot='s')
        self.assertEqual([image_types.Extent(0, 9 * MIB)], self.extents(SOURCE.snapshot('s')))
        data = self.content(SOURCE.snapshot('s'))
        self.assertNotIn(bytes(512), [data[at : at + 512] for at in range(0, 9 * MIB, 4096)])

    def test_scattered(self):
        self.operations.make(SOURCE, size_mib=64, data_mib=1, snapshot='s')
        extents = self.extents(SOURCE.snapshot('s'))
        self.assertEqual([64 * MIB], [sum(extent.length for extent in extents)])
        data = self.content(SOURCE.snapshot('s'))
        stored = [at for at in range(0, 64 * MIB, 65536) if any(data[at : at + 64])]
        self.assertEqual([4 * MIB * number for number in range(16)], stored)

    def test_the_same_each_time(self):
        for image in (SOURCE, COPY):
            self.operations.make(image, size_mib=8, data_mib=8, snapshot='s')
            self.operations.change(image, writes=9, overlapping=False, snapshot='t')
        for name in 'st':
            self.assertEqual(self.content(SOURCE.snapshot(name)), self.content(COPY.snapshot(name)))


class ChangeTest(OperationsTestCase):
    def changed(self, **options):
        self.operations.make(SOURCE, size_mib=32, data_mib=32, snapshot='s')
        self.operations.change(SOURCE, snapshot='t', **options)
        return self.extents(SOURCE.snapshot('t'), 's')

    def test_pages(self):
        extents = self.changed(writes=20, overlapping=False)
        for extent in extents:
            self.assertEqual((0, 0), (extent.offset % 16384, extent.end % 16384))
        found = sum(extent.length for extent in extents)
        self.assertEqual(found, self.figures['changed_bytes'])
        self.assertTrue(18 * 16384 <= found <= 20 * 16384, found)

    def test_overlapping_is_counted_once(self):
        extents = self.changed(writes=600, overlapping=True)
        self.assertEqual(sum(extent.length for extent in extents), self.figures['changed_bytes'])
        self.assertLess(self.figures['changed_bytes'], 0.8 * 600 * 16384)
        self.assertLess(extents[-1].end, 4 * MIB + 16384)


class VerifyTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = world.World()
        self.phases, self.figures, self.requested = [], {}, []

        def inspector(*arguments):
            self.requested.append(arguments)
            return self.world.inspector()

        self.operations = storage_operations.Operations(
            self.world.storage, self.phases.append, self.figures.__setitem__, inspector
        )

    def verify(self):
        self.operations.verify(self.world.work.snapshot, Path('/srv/mysql'), deep=True)

    def test_verified_backup(self):
        self.verify()
        self.assertEqual([(Path('/srv/mysql'), True)], self.requested)
        steps = inspection.make_steps(mock.Mock(spec=inspection.Context))
        self.assertEqual([step.name for step in steps], self.phases)
        self.assertEqual({'tables_checked': 3, 'tables_in_part': 0}, self.figures)
        self.assertEqual([], self.world.clones())

    def test_damaged_backup(self):
        self.world.raises = {'start': world.corrupt('the redo')}
        error = self.assertRaises(exceptions.LoadFailedError, self.verify)
        self.assertIn('corrupt, 0 of 0 tables checked', str(error))
        self.assertIn('the redo', str(error))


class VerbsTest(OperationsTestCase):
    def setUp(self):
        super().setUp()
        self.operations.make(SOURCE, size_mib=16, data_mib=16, snapshot='s')

    def test_copy(self):
        self.operations.copy(SOURCE.snapshot('s'), COPY)
        self.operations.change(SOURCE, writes=3, overlapping=False, snapshot='t')
        self.assertEqual(['connected', 'copying', 'verifying'], self.phases)
        self.assertEqual(16 * MIB, self.figures['moved_bytes'])
        self.operations.copy(SOURCE.snapshot('t'), COPY, since='s')
        self.assertEqual(self.figures['changed_bytes'], self.figures['moved_bytes'])
        self.assertEqual(self.figures['changed_bytes'], self.figures['compared_bytes'])
        self.assertEqual(['s', 't'], list(copying.complete_copies(self.storage.describe(COPY))))

    def test_snapshots_and_clones(self):
        self.operations.snapshot(SOURCE, 3)
        self.operations.clone(SOURCE.snapshot('s'), COPY, 2)
        names = [one.name for one in self.storage.describe(SOURCE).snapshots]
        self.assertEqual(['s', 'bench-0', 'bench-1', 'bench-2'], names)
        self.assertEqual(['vault/bench-b-0', 'vault/bench-b-1', str(SOURCE)], self.names())
        self.assertEqual(['snapshots', 'clones'], self.phases)

    def test_sweep(self):
        many = image_types.ImageRef('vault', 'bench-many')
        self.operations.populate(many, images=20, snapshots=3, size_mib=1, at_once=4)
        self.operations.describe_pool('vault')
        self.assertEqual((20, 60), (self.figures['images'], self.figures['snapshots']))
        self.assertEqual(['connected', 'described'], self.phases)

    def test_populate_adds_and_removes_what_differs(self):
        many, other = (
            image_types.ImageRef('vault', name) for name in ('bench-many', 'bench-manyfold')
        )
        self.storage.create_image(other, MIB, image_types.ImageOptions())

        def populate(images, snapshots=2):
            self.operations.populate(many, images, snapshots, size_mib=1, at_once=4)
            found = [one for one in self.storage.describe_pool('vault') if one.image != other]
            self.assertEqual({snapshots}, {len(one.snapshots) for one in found})
            return {one.image.name: one.image_id for one in found}

        few = populate(3)
        more = populate(5)
        self.assertEqual([f'bench-many-{number:05}' for number in range(5)], sorted(more))
        self.assertEqual(few, {name: more[name] for name in few})
        # An image whose creation was interrupted.
        self.storage.remove_snapshot(image_types.SnapshotRef('vault', 'bench-many-00001', 's1'))
        repaired = populate(3)
        self.assertEqual(sorted(few), sorted(repaired))
        self.assertEqual(
            {'bench-many-00001'}, {name for name in few if few[name] != repaired[name]}
        )
        self.assertIn(str(other), self.names())

    def test_limit(self):
        self.operations.limit(SOURCE, iops=200)
        self.assertEqual(image_types.Qos(iops=200), self.storage.describe(SOURCE).qos)

    def test_used(self):
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            self.operations.used(SOURCE)
        self.assertEqual(f'{16 * MIB}\n', shown.getvalue())

    def test_remove(self):
        self.storage.create_image(
            image_types.ImageRef('volumes', 'volume-1'), MIB, image_types.ImageOptions()
        )
        self.operations.clone(SOURCE.snapshot('s'), COPY, 2)
        images = [SOURCE, SOURCE, COPY, image_types.ImageRef('vault', 'bench-none')]
        self.operations.remove(images, at_once=2)
        self.assertEqual(['volumes/volume-1'], self.names())

    def test_remove_waits_for_a_killed_client(self):
        writer = self.storage.open_writer(SOURCE)
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove_ceph_bench.storage_operations.time.sleep', lambda _: writer.close()
            )
        )
        self.operations.remove([SOURCE], at_once=1)
        self.assertEqual([], self.names())

    def test_remove_does_not_wait_for_ever(self):
        self.useFixture(
            fixtures.MonkeyPatch('trove_ceph_bench.storage_operations.BUSY_TIMEOUT_SEC', 0)
        )
        with self.storage.open_writer(SOURCE):
            self.assertRaises(exceptions.BusyError, self.operations.remove, [SOURCE], at_once=1)


class ArgumentsTest(base.BaseTestCase):
    def parse(self, *command):
        return arguments.parse(['storage', *command])

    def test_defaults_from_the_environment(self):
        for name, value in (('CEPH_CONF', '/c'), ('CEPH_USER', 'bench'), ('DIRECTORY', '/d')):
            self.useFixture(fixtures.EnvironmentVariable(f'BENCH_{name}', value))
        parsed = self.parse('used', 'volumes/bench-a')
        self.assertEqual(('/c', 'bench', Path('/d')), (parsed.conf, parsed.user, parsed.figures))

    def test_parameters_are_those_of_the_verb(self):
        parsed = self.parse('copy', 'volumes/bench-a@t', 'vault/bench-b', '--since', 's')
        self.assertEqual(['snapshot', 'image', 'since'], parsed.parameters)
        self.assertEqual((SOURCE.snapshot('t'), COPY), (parsed.snapshot, parsed.image))

    def test_refuses_foreign_images(self):
        for command in (
            ('remove', 'volumes/volume-1'),
            ('remove', 'volumes/'),
            ('remove', 'volumes/bench-a', 'vault/trove_ceph.vault'),
            ('make', 'volumes/a', '--size-mib', '1', '--data-mib', '1'),
            ('copy', 'volumes/bench-a@s', 'vault/b'),
            ('clone', 'volumes/bench-a', 'vault/bench-b', '--count', '1'),
        ):
            with contextlib.redirect_stderr(io.StringIO()) as shown:
                self.assertRaises(SystemExit, self.parse, *command)
            self.assertIn('bench-', shown.getvalue())

    def test_commands_of_plans_are_valid(self):
        pools = ('${BENCH_POOL:-volumes-nvme}', 'volumes'), ('${BENCH_VAULT_POOL:-vault}', 'vault')
        for name in (
            'storage-copy',
            'storage-increment',
            'storage-clone',
            'storage-sweep',
            'storage-verify',
        ):
            loaded = plan_file.load(name, {})
            for contender in loaded.contenders:
                texts = [contender.prepare, contender.run, contender.cleanup, loaded.cleanup]
                for text in filter(None, [*texts, *contender.cost.values()]):
                    for value, plain in pools:
                        text = text.replace(value, plain)
                    self.check(text.replace('$source', 'volumes/bench-source'))

    def check(self, command):
        for line in command.splitlines():
            if line.startswith('trove-ceph-bench storage '):
                self.parse(*shlex.split(_VARIABLE.sub('1', line))[2:])
