# SPDX-License-Identifier: Apache-2.0
"""A guest image becomes a datastore version, also after an interrupted upload."""

import importlib.util
from types import SimpleNamespace
from unittest import mock

from oslotest import base

from trove_ceph.guestagent import manager
from trove_ceph.mysql import tuning
from trove_ceph.tests.unit.lab import LAB

_path = LAB / 'roles/datastore/files/register_datastore.py'
_spec = importlib.util.spec_from_file_location('lab_register_datastore', _path)
register_datastore = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(register_datastore)

_ARGUMENTS = (
    '--image=/c/guest.qcow2 --digest=abc --mysql-version=9.7.4 --trove-conf=/e/trove.conf '
    '--validation-rules=/e/rules.json'
).split()


class FakeGlance:
    current_project_id = 'p'

    def __init__(self, *images):
        self.stored = list(images)
        self.uploads = []
        self.image = self
        ram = tuning.smallest_ram_mib()
        flavors = [SimpleNamespace(id=str(n), ram=n) for n in (ram - 1, ram, 4 * ram)]
        self.compute = SimpleNamespace(flavors=lambda: flavors)

    def images(self, name=None, owner=None):
        return [
            image
            for image in self.stored
            if name in (None, image.name) and owner in (None, image.owner)
        ]

    def delete_image(self, image):
        self.stored.remove(image)

    def create_image(self, name, **options):
        self.uploads.append(options)
        self.stored.append(fake_image(name, 'new'))
        return self.stored[-1]


def fake_image(name, number, status='active', owner='p'):
    return SimpleNamespace(name=name, id=number, status=status, owner=owner)


class RegisterTest(base.BaseTestCase):
    def _main(self, cloud, *options):
        with (
            mock.patch('openstack.connect', return_value=cloud),
            mock.patch('sys.argv', ['register', *_ARGUMENTS, *options]),
            mock.patch('subprocess.run') as run,
        ):
            register_datastore.main()
        for call in run.call_args_list:
            self.assertEqual({'check': True}, call.kwargs)
        return [call.args[0] for call in run.call_args_list]

    def test_upload_and_registration(self):
        cloud = FakeGlance()
        commands = self._main(cloud)
        self.assertEqual(['trove-guest-abc'], [image.name for image in cloud.stored])
        self.assertEqual('/c/guest.qcow2', cloud.uploads[0]['filename'])
        for command in commands:
            self.assertTrue(command[0].endswith('/trove-manage'))
            self.assertEqual(['--config-file', '/e/trove.conf'], command[1:3])
        self.assertEqual(
            [
                'datastore_update',
                'datastore_version_update',
                'datastore_update',
                'db_load_datastore_config_parameters',
                'datastore_version_flavor_add',
                'datastore_version_flavor_add',
            ],
            [command[3] for command in commands],
        )
        version = commands[1]
        self.assertEqual('new', version[7])
        self.assertIn('--repl-strategy', version)
        named = version[version.index('--registry-ext') + 1].rpartition('.')
        self.assertEqual((manager.__name__, '.', manager.Manager.__name__), named)

    def test_stock_is_a_datastore_beside_ours(self):
        cloud = FakeGlance(fake_image('trove-guest-abc', 'ours'))
        commands = self._main(cloud, '--stock')
        self.assertEqual(
            ['trove-guest-abc', 'trove-stock-guest-abc'], [one.name for one in cloud.stored]
        )
        self.assertNotIn('trove_ceph_agent', cloud.uploads[0])
        self.assertEqual({'mysql-stock'}, {command[4] for command in commands})
        # Trove's own manager and strategy are the defaults.
        self.assertEqual(['--version', '9.7.4'], commands[1][10:])
        self._main(cloud)
        self.assertEqual(2, len(cloud.stored))

    def test_associates_only_large_enough_flavors(self):
        commands = self._main(FakeGlance())
        ram = tuning.smallest_ram_mib()
        added = [command[-1] for command in commands if command[3].endswith('flavor_add')]
        self.assertEqual([str(ram), str(4 * ram)], added)

    def test_uses_an_existing_image(self):
        cloud = FakeGlance(fake_image('trove-guest-abc', 'old'))
        self.assertEqual('old', self._main(cloud)[1][7])
        self.assertEqual([], cloud.uploads)

    def test_replaces_an_interrupted_upload(self):
        cloud = FakeGlance(fake_image('trove-guest-abc', 'cut', status='saving'))
        self._main(cloud)
        self.assertEqual(['new'], [image.id for image in cloud.stored])

    def test_removes_replaced_images_and_keeps_others(self):
        cloud = FakeGlance(
            fake_image('trove-guest-old', '1'),
            fake_image('cirros', '2'),
            fake_image(None, '3'),
            fake_image('trove-guest-old', '4', owner='somebody'),
        )
        self._main(cloud)
        self.assertEqual({'2', '3', '4', 'new'}, {image.id for image in cloud.stored})
