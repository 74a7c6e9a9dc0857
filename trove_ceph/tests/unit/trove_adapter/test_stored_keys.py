# SPDX-License-Identifier: Apache-2.0
"""The keys of agents, encrypted under another key by the command of operators."""

import json
import os
import uuid

import fixtures
import sqlalchemy as sa
from oslotest import base
from trove.common import cfg as trove_cfg
from trove.common import crypto_utils
from trove.instance import models as instance_models

from trove_ceph import exceptions
from trove_ceph.db import guest_record, guests, transactions
from trove_ceph.doctor import settings
from trove_ceph.tests.unit.cmd.manage import command
from trove_ceph.tests.unit.db import guest_helpers
from trove_ceph.tests.unit.taskmanager import trove_database
from trove_ceph.trove_adapter import guest_keys, stored_keys

CONF = trove_cfg.CONF
OLD, NEW = 'the value up to now', 'the new value'


class StoredKeysTestCase(base.BaseTestCase):
    """An instance and a warm guest, whose keys are encrypted under OLD."""

    def setUp(self):
        super().setUp()
        trove_database.path()
        self._use(OLD)
        self.transactions = transactions.Transactions()
        # The database is one for all tests of the process.
        with self.transactions.writing() as session:
            session.execute(sa.text('UPDATE instances SET deleted = 1'))
            session.execute(sa.text('DELETE FROM trove_ceph_guests'))
        self.instance = trove_database.add_instance('project', 'volume')
        self.key = self.instance.key
        self.keys = guest_keys.make()
        self.guest_id = str(uuid.uuid4())
        guests.GuestStore(self.transactions).add(
            guest_helpers.record(
                self.guest_id, transactions.utcnow(), encrypted_key=guest_keys.encrypt(self.keys)
            )
        )

    def _use(self, value):
        CONF.set_override('inst_rpc_key_encr_key', value)
        self.addCleanup(CONF.clear_override, 'inst_rpc_key_encr_key')

    def read(self, value):
        """Return both keys as Trove's services read them with a value."""
        self._use(value)
        found = instance_models.DBInstance.find_by(id=self.instance.id)
        guest = guests.GuestStore(self.transactions).find(self.guest_id)
        return found.key.decode(), guest_keys.decrypt(guest.encrypted_key)

    def expected(self):
        return self.key.decode(), self.keys


class StoredKeysTest(StoredKeysTestCase):
    def reencrypt(self, previous=OLD, current=NEW, **options):
        found = stored_keys.reencrypt(self.transactions, previous, current, **options)
        return {one.owner_id: str(one.under) for one in found}

    def all_are(self, under):
        return {self.instance.id: under, self.guest_id: under}

    def test_services_read_all_keys_with_the_new_value(self):
        self.assertEqual(self.all_are('previous'), self.reencrypt())
        self.assertEqual(self.expected(), self.read(NEW))

    def test_is_repeated_after_an_interruption(self):
        self.reencrypt()
        self._use(OLD)
        late = trove_database.add_instance('project', 'volume')
        found = self.reencrypt()
        self.assertEqual(self.all_are('current') | {late.id: 'previous'}, found)
        self.assertEqual(self.expected(), self.read(NEW))

    def test_back_to_the_previous_value(self):
        self.reencrypt()
        self.reencrypt(NEW, OLD)
        self.assertEqual(self.expected(), self.read(OLD))

    def test_a_trial_changes_nothing(self):
        self.assertEqual(self.all_are('previous'), self.reencrypt(is_trial=True))
        self.assertEqual(self.expected(), self.read(OLD))

    def test_one_key_that_neither_value_reads_keeps_all_as_they_are(self):
        self._use('another value')
        other = trove_database.add_instance('project', 'volume')
        found = self.reencrypt()
        self.assertEqual(self.all_are('previous') | {other.id: 'neither'}, found)
        self.assertEqual(self.expected(), self.read(OLD))

    def test_leaves_out_unreadable_keys_that_are_not_used_any_more(self):
        self._use('another value')
        store = guests.GuestStore(self.transactions)
        for state in guest_record.GuestState:
            store.add(
                guest_helpers.record(
                    str(state),
                    transactions.utcnow(),
                    encrypted_key=guest_keys.encrypt(guest_keys.make()),
                )
            )
        with self.transactions.writing() as session:
            query = 'UPDATE trove_ceph_guests SET state = guest_id WHERE guest_id != :readable'
            session.execute(sa.text(query), {'readable': self.guest_id})
        used = set(guest_record.GuestState) - {'bound', 'retired'}
        self.assertEqual(
            self.all_are('previous') | dict.fromkeys(map(str, used), 'neither'), self.reencrypt()
        )

    def test_leaves_out_deleted_instances_and_those_without_a_key(self):
        self._use('another value')
        deleted = trove_database.add_instance('project', 'volume')
        deleted.update(deleted=True)
        deleted.save()
        without = trove_database.add_instance('project', 'volume')
        without.update(encrypted_key=None)
        without.save()
        self.assertEqual(self.all_are('previous'), self.reencrypt())

    def test_an_error_while_writing_changes_nothing(self):
        def fail(text, key):
            raise OSError(text)

        self.useFixture(fixtures.MockPatchObject(guest_keys, 'encrypt_text', fail))
        self.assertRaises(OSError, self.reencrypt)
        self.assertEqual(self.expected(), self.read(OLD))

    def test_keys_are_told_apart(self):
        """Nothing authenticates the cipher text; wrong keys give random bytes."""
        texts = ('x' * 16, 'k' * 32, json.dumps({'rpc': 'a' * 64, 'signing': 'b' * 64}))
        for text in texts:
            encrypted = guest_keys.encrypt_text(text, OLD)
            self.assertEqual(text, guest_keys.decrypt_text(encrypted, OLD))
            found = {guest_keys.decrypt_text(encrypted, f'key {n}') for n in range(500)}
            self.assertEqual({None}, found)

    def test_what_is_no_cipher_text(self):
        encoded = crypto_utils.encode_data(os.urandom(48))
        for text in ('', 'x', '====', 'YWJj', encoded):
            self.assertIsNone(guest_keys.decrypt_text(text, OLD))

    def test_what_holds_no_keys_of_a_guest(self):
        for text in ('k' * 32, json.dumps({'rpc': 'a' * 64})):
            encrypted = guest_keys.encrypt_text(text, OLD)
            self.assertRaises(exceptions.InvalidConfigurationError, guest_keys.decrypt, encrypted)


class CommandTest(StoredKeysTestCase):
    def setUp(self):
        super().setUp()
        directory = self.useFixture(fixtures.TempDir())
        self.config, self.previous = map(directory.join, ('trove.conf', 'previous'))
        self.write(self.config, NEW)
        with open(self.previous, 'w') as file:
            file.write(f'{OLD}\n')

    def write(self, path, value):
        # The facade's engine is that of Trove's configuration.
        url = transactions.FACADE.writer.get_engine().url
        with open(path, 'w') as file:
            file.write(f'[DEFAULT]\ninst_rpc_key_encr_key = {value}\n')
            file.write(f'[database]\nconnection = {url}\n')

    def run_command(self, *words, status=0):
        words = (*words, '--config-file', self.config)
        result = command.run('instance-keys', 'reencrypt', *words, '-f', 'json')
        self.assertEqual(status, result.status, result)
        return (json.loads(result.out) if result.out else {}), result.err

    def test_shows_what_it_would_change(self):
        found, error = self.run_command('--previous-value-file', self.previous, status=2)
        self.assertEqual((0, 2, 0), tuple(found.values())[:3])
        self.assertIn('--yes-services-are-stopped', error)
        self.assertEqual(self.expected(), self.read(OLD))

    def test_changes_all_keys(self):
        accepted = ('--previous-value-file', self.previous, '--yes-services-are-stopped')
        found, _ = self.run_command(*accepted)
        self.assertEqual((2, 2, 0, []), tuple(found.values()))
        self.assertEqual(self.expected(), self.read(NEW))
        found, _ = self.run_command(*accepted)
        self.assertEqual((0, 0, 2, []), tuple(found.values()))

    def test_troves_default_is_the_previous_value_unless_another_is_named(self):
        stored_keys.reencrypt(self.transactions, OLD, settings.PUBLIC_KEY_OF_KEYS)
        self.run_command('--yes-services-are-stopped')
        self.assertEqual(self.expected(), self.read(NEW))

    def test_names_the_agents_whose_keys_it_cannot_read(self):
        found, error = self.run_command('--yes-services-are-stopped', status=1)
        names = [f'instance {self.instance.id}', f'warm guest {self.guest_id}']
        self.assertEqual(names, found['unreadable'])
        self.assertEqual(0, found['reencrypted'])
        self.assertIn('nothing was changed', error)
        self.assertEqual(self.expected(), self.read(OLD))

    def test_refuses_the_published_value(self):
        for value in (settings.PUBLIC_KEY_OF_KEYS, ''):
            self.write(self.config, value)
            _, error = self.run_command('--yes-services-are-stopped', status=3)
            self.assertIn('inst_rpc_key_encr_key', error)
        self.assertEqual(self.expected(), self.read(OLD))

    def test_refuses_a_file_without_a_value(self):
        for path in (os.devnull, '/nonexistent', '/'):
            _, error = self.run_command('--previous-value-file', path, status=3)
            self.assertIn(path, error)

    def test_never_prints_a_value_or_a_key(self):
        found, error = self.run_command(
            '--previous-value-file', self.previous, '--yes-services-are-stopped'
        )
        for secret in (OLD, NEW, self.key.decode(), self.keys.rpc):
            self.assertNotIn(secret, json.dumps(found) + error)
