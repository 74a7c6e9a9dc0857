# SPDX-License-Identifier: Apache-2.0
"""The configuration of a waiting guest, compared with what Trove renders for an instance."""

import base64
from pathlib import Path

import fixtures
import yaml
from oslotest import base
from trove.common import cfg as trove_cfg
from trove.common import context as trove_context
from trove.datastore import models as datastore_models
from trove.instance import models as instance_models

from trove_ceph import exceptions
from trove_ceph.tests.unit.taskmanager import trove_database
from trove_ceph.trove_adapter import guest_config, guest_keys
from trove_ceph.trove_compat import guest_files

CONF = trove_cfg.CONF
KEYS = guest_keys.GuestKeys('rpc-key', 'ab' * 32)


def version():
    return datastore_models.DatastoreVersion.load_by_uuid(trove_database.datastore_version())


class ConfigTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        trove_database.path()
        self.directory = Path(self.useFixture(fixtures.TempDir()).path)
        self.set('guest_config', str(self.directory / 'trove-guestagent.conf'))
        self.set('cloudinit_location', str(self.directory))

    def set(self, name, value, group=None):
        CONF.set_override(name, value, group)
        self.addCleanup(CONF.clear_override, name, group)


class ContractTest(ConfigTestCase):
    """Trove gives an instance the same files."""

    def files_of_trove(self):
        instance = trove_database.add_instance('', 'volume')
        fresh = instance_models.FreshInstance(trove_context.TroveContext(), instance, None, None)
        found = guest_files.files(fresh, ['management'])
        keys = guest_keys.GuestKeys(instance.key.decode(), 'signing')
        return found, guest_config.files(instance.id, keys, version())

    def assert_same(self):
        theirs, ours = self.files_of_trove()
        ours = dict(ours)
        self.assertIn('signing', ours.pop(guest_config.WAITING_GUEST_FILE))
        self.assertEqual(theirs, ours)
        return ours

    def test_defaults(self):
        self.assertEqual(['/etc/trove/conf.d/guest_info.conf'], list(self.assert_same()))

    def test_all_options(self):
        (self.directory / 'trove-guestagent.conf').write_text('[DEFAULT]\n')
        self.set('injected_config_location', '/etc/elsewhere')
        self.set('controller_address', '192.0.2.1')
        self.set('docker_bridge_network_ip', '172.18.0.1/16')
        self.set('docker_insecure_registries', ['registry:4000'])
        self.set('network_isolation', False, 'network')
        self.assertEqual(4, len(self.assert_same()))

    def test_path_of_guest_info(self):
        self.set('guest_info', '/etc/guest_info')
        self.assertIn('/etc/guest_info', self.assert_same())


class GuestConfigTest(ConfigTestCase):
    def test_user_data(self):
        self.set('injected_config_owner', 'trove')
        text = guest_config.user_data('guest', KEYS, version())
        self.assertTrue(text.startswith('#cloud-config\n'))
        files = {one['path']: one for one in yaml.safe_load(text)['write_files']}
        waiting = files['/etc/trove/conf.d/waiting-guest.conf']
        self.assertEqual('trove:root', waiting['owner'])
        content = base64.b64decode(waiting['content']).decode()
        self.assertEqual(f'[trove_ceph]\nwaiting_guest_key={KEYS.signing}\n', content)
        info = base64.b64decode(files['/etc/trove/conf.d/guest_info.conf']['content']).decode()
        self.assertIn('guest_id=guest\n', info)
        self.assertIn('tenant_id=\n', info)
        self.assertIn('instance_rpc_encr_key=rpc-key\n', info)
        self.assertNotIn(KEYS.signing, info)

    def test_user_data_of_the_operator(self):
        (self.directory / 'mysql.cloudinit').write_text('#cloud-config\nruncmd: [date]\n')
        found = yaml.safe_load(guest_config.user_data('guest', KEYS, version()))
        self.assertEqual(['date'], found['runcmd'])
        self.assertEqual(2, len(found['write_files']))

    def test_digest_is_that_of_the_configuration(self):
        before = guest_config.digest(version(), image='one')
        self.assertEqual(before, guest_config.digest(version(), image='one'))
        self.assertNotEqual(before, guest_config.digest(version(), image='two'))
        self.set('injected_config_owner', 'other')
        self.assertNotEqual(before, guest_config.digest(version(), image='one'))

    def test_digest_has_no_key(self):
        self.assertEqual(64, len(guest_config.digest(version())))


class GuestKeysTest(base.BaseTestCase):
    def test_each_guest_has_its_own_keys(self):
        one, two = guest_keys.make(), guest_keys.make()
        self.assertEqual(4, len({one.rpc, one.signing, two.rpc, two.signing}))
        self.assertEqual(32, len(bytes.fromhex(one.signing)))
        self.assertNotIn(one.rpc, repr(one))

    def test_encryption(self):
        text = guest_keys.encrypt(KEYS)
        self.assertIsInstance(text, str)
        self.assertNotIn(KEYS.signing, text)
        self.assertEqual(KEYS, guest_keys.decrypt(text))

    def test_other_key_of_the_control_plane(self):
        text = guest_keys.encrypt(KEYS)
        CONF.set_override('inst_rpc_key_encr_key', 'another')
        self.addCleanup(CONF.clear_override, 'inst_rpc_key_encr_key')
        for damaged in (text, text[:40], 'x'):
            self.assertRaises(exceptions.InvalidConfigurationError, guest_keys.decrypt, damaged)
