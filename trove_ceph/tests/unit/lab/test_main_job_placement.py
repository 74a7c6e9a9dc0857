# SPDX-License-Identifier: Apache-2.0
"""The proof of a volume's placement, with a fake Ceph."""

import contextlib
import json
import sys
import types
from unittest import mock

import fixtures
from main_job.errors import JobError
from oslotest import base


class Error(Exception):
    """The base class of the bindings' errors."""


def _load():
    """Import the module with a fake of Ceph's bindings, which only the distribution has."""
    names = ('rados', 'rbd')
    kept = {name: sys.modules.get(name) for name in names}
    for name in names:
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].Error = Error
    try:
        from main_job import placement
    finally:
        for name, module in kept.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
    return placement


placement = _load()


class Ceph:
    """One pool, with its objects by name and their OSDs."""

    def __init__(self):
        self.objects = {}
        self.classes = {0: 'nvme', 1: 'nvme', 2: 'hdd'}
        self.mapping_error = 0

    @contextlib.contextmanager
    def Rados(self, conffile, name):
        assert (conffile, name) == ('/etc/ceph.conf', 'client.admin')
        yield self

    @contextlib.contextmanager
    def open_ioctx(self, pool):
        if pool != 'volumes-nvme':
            raise Error(f'no pool {pool}')
        names = [mock.Mock(key=name) for name in self.objects]
        yield mock.Mock(list_objects=mock.Mock(return_value=names))

    @contextlib.contextmanager
    def Image(self, _ioctx, _name, read_only):
        assert read_only
        size = mock.Mock(return_value=2 * 1024**3)
        yield mock.Mock(block_name_prefix=lambda: 'rbd_data.1a2b', size=size)

    def mon_command(self, text, _input):
        command = json.loads(text)
        if command['prefix'] == 'osd tree':
            hosts = [{'id': -1, 'type': 'root'}, {'id': -2, 'type': 'host'}]
            osds = [{'id': osd, 'device_class': c} for osd, c in self.classes.items()]
            return 0, json.dumps({'nodes': hosts + osds}), ''
        assert command['prefix'] == 'osd map' and command['pool'] == 'volumes-nvme'
        acting = {'acting': self.objects[command['object']]}
        return self.mapping_error, json.dumps(acting), 'no such pool'


class ProveTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.ceph = Ceph()
        fake_rados = types.SimpleNamespace(Rados=self.ceph.Rados, Error=Error)
        fake_rbd = types.SimpleNamespace(Image=self.ceph.Image, Error=Error)
        self.useFixture(fixtures.MonkeyPatch('main_job.placement.rados', fake_rados))
        self.useFixture(fixtures.MonkeyPatch('main_job.placement.rbd', fake_rbd))
        self.ceph.objects = {
            'rbd_data.1a2b.0000000000000000': [0, 1],
            'rbd_data.1a2b.0000000000000001': [1, 0],
            'rbd_data.ffff.0000000000000000': [2, 2],
            'rbd_directory': [2],
        }

    def _prove(self, pool='volumes-nvme'):
        return placement.prove('/etc/ceph.conf', pool, 'volume-1', 'nvme')

    def test_accepts_objects_on_the_class(self):
        proof = self._prove()
        self.assertEqual(
            (2, 2.0, {'0': 2, '1': 2}, [2]),
            (
                proof['objects'],
                proof['size_gib'],
                proof['copies_by_osd'],
                proof['osds_of_other_classes'],
            ),
        )

    def test_ignores_an_unused_osd_of_the_class(self):
        self.ceph.classes[3] = 'nvme'
        proof = self._prove()
        self.assertNotIn('3', proof['copies_by_osd'])
        self.assertEqual([2], proof['osds_of_other_classes'])

    def test_refuses_a_copy_on_another_class(self):
        self.ceph.objects['rbd_data.1a2b.0000000000000001'] = [1, 2]
        error = self.assertRaises(JobError, self._prove)
        self.assertIn(
            "volumes-nvme/volume-1 must be only on nvme OSDs, but: {2: 'hdd'}", str(error)
        )

    def test_refuses_an_osd_without_a_class(self):
        self.ceph.classes[1] = None
        self.assertIn('{1: None}', str(self.assertRaises(JobError, self._prove)))

    def test_ignores_objects_of_an_image_with_a_similar_id(self):
        self.ceph.objects['rbd_data.1a2b3.0000000000000000'] = [2]
        self.assertEqual(2, self._prove()['objects'])

    def test_refuses_an_image_without_objects(self):
        self.ceph.objects = {'rbd_directory': [0]}
        self.assertIn('it has no objects', str(self.assertRaises(JobError, self._prove)))

    def test_reports_a_refused_monitor_command(self):
        self.ceph.mapping_error = -22
        error = self.assertRaises(JobError, self._prove)
        self.assertEqual('ceph osd map failed: no such pool', str(error))

    def test_translates_errors_of_the_bindings(self):
        error = self.assertRaises(JobError, self._prove, 'absent')
        self.assertIn('absent/volume-1', str(error))
        self.assertIn('no pool absent', str(error))
