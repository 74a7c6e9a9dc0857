# SPDX-License-Identifier: Apache-2.0
"""The key file is created and rotated, and an unusable one is refused."""

import errno
import json
import os
import stat
from unittest import mock

import fixtures
from oslotest import base

from trove_ceph import exceptions, message_auth
from trove_ceph.storage_service import message_keys
from trove_ceph.tests.unit.cmd.manage import command


class KeyFileTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.path = self.useFixture(fixtures.TempDir()).join('keys.json')

    def refusal(self):
        return str(self.assertRaises(exceptions.KeyFileError, message_keys.KeyFile(self.path).load))

    def test_only_the_owner_can_read_a_new_file(self):
        previous = os.umask(0)
        self.addCleanup(os.umask, previous)
        created = message_keys.create(self.path)
        self.assertEqual(0o600, stat.S_IMODE(os.stat(self.path).st_mode))
        self.assertEqual(created, message_keys.KeyFile(self.path).load())
        lengths = (len(created.current.secret), created.previous)
        self.assertEqual((message_auth.KEY_BYTES, None), lengths)
        self.assertNotIn(created.current.secret.hex(), repr(created))

    def test_create_does_not_replace_a_file(self):
        created = message_keys.create(self.path)
        self.assertRaises(exceptions.KeyFileError, message_keys.create, self.path)
        self.assertEqual(created, message_keys.KeyFile(self.path).load())

    def test_rotated_and_retired(self):
        file = message_keys.KeyFile(self.path)
        first = message_keys.create(self.path).current
        second = message_keys.rotate(self.path).current
        # The file is read again, since it was replaced.
        self.assertEqual(message_auth.Keys(second, first), file.load())
        third = message_keys.rotate(self.path).current
        self.assertEqual((third, second), (file.load().current, file.load().previous))
        self.assertIsNone(file.load().find(first.id))
        message_keys.retire(self.path)
        self.assertEqual(message_auth.Keys(third), file.load())
        self.assertEqual(['keys.json'], os.listdir(os.path.dirname(self.path)))

    def test_a_rotated_file_keeps_its_owner(self):
        message_keys.create(self.path)
        with mock.patch('os.chown') as chown:
            message_keys.rotate(self.path)
        owner = os.stat(self.path)
        self.assertEqual((owner.st_uid, owner.st_gid), chown.call_args.args[1:])

    def test_refuses_a_missing_file(self):
        self.assertIn('trove-ceph-manage storage keys create', self.refusal())
        file = message_keys.KeyFile(self.path)
        message_keys.create(self.path)
        file.load()
        os.unlink(self.path)
        self.assertRaises(exceptions.KeyFileError, file.load)
        self.assertRaises(exceptions.KeyFileError, message_keys.rotate, self.path)

    def test_refuses_a_file_that_others_can_read(self):
        message_keys.create(self.path)
        for mode in (0o640, 0o604, 0o620, 0o644):
            os.chmod(self.path, mode)
            self.assertIn(f'has mode {mode:04o}; only its owner may have access', self.refusal())

    def test_refuses_a_file_of_another_user(self):
        message_keys.create(self.path)
        owner = os.stat(self.path).st_uid
        for reader, is_refused in ((owner + 1, owner != 0), (0, False), (owner, False)):
            with mock.patch('os.geteuid', lambda reader=reader: reader):
                if is_refused:
                    self.assertIn('must belong to', self.refusal())
                else:
                    message_keys.KeyFile(self.path).load()
        os.chown(self.path, 4242, -1) if os.geteuid() == 0 else self.skipTest('needs root')
        with mock.patch('os.geteuid', lambda: 4243):
            self.assertIn('belongs to user id 4242, must belong to 4243', self.refusal())

    def test_tells_who_may_not_read_the_file(self):
        denied = PermissionError(errno.EACCES, 'Permission denied')
        with mock.patch('os.open', side_effect=denied), mock.patch('os.geteuid', lambda: 4242):
            refusal = self.refusal()
        self.assertIn('cannot be read by user id 4242; give it a copy of its own', refusal)
        self.assertNotIn('keys create', refusal)

    def test_refuses_a_damaged_file(self):
        good = message_keys.create(self.path)
        document = json.loads(open(self.path).read())
        secret = document['current']['secret']
        bad = (
            '',
            '[]',
            '{}',
            json.dumps({'current': document['current'] | {'secret': secret[:20]}}),
            json.dumps({'current': document['current'] | {'secret': 'x' * 64}}),
            json.dumps({'current': document['current'] | {'id': 'a\nb'}}),
            json.dumps({'current': document['current'], 'previous': document['current']}),
            json.dumps(document)[:-10],
        )
        for content in bad:
            with open(self.path, 'w') as file:
                file.write(content)
            text = self.refusal()
            self.assertNotIn(secret[:20], text)
            self.assertNotIn(good.current.secret.hex()[:20], text)

    def test_refuses_a_directory(self):
        os.mkdir(self.path, 0o700)
        self.assertIn('is not a regular file', self.refusal())


class CommandTest(base.BaseTestCase):
    """``trove-ceph-manage storage keys``."""

    def setUp(self):
        super().setUp()
        self.path = self.useFixture(fixtures.TempDir()).join('keys.json')

    def command(self, *arguments):
        self.result = command.run('storage', 'keys', *arguments, '--key-file', self.path)
        return self.result.status

    def test_create_rotate_retire(self):
        self.assertEqual(3, self.command('show'))
        self.assertIn('cannot be read', self.result.err)
        self.assertEqual(0, self.command('create'))
        first = message_keys.KeyFile(self.path).load().current
        self.assertIn(f'"id": "{first.id}"', self.result.out)
        self.assertRegex(self.result.out, r'\| previous +\| -')
        self.assertEqual(3, self.command('create'))
        self.assertEqual(0, self.command('rotate', '--format', 'json'))
        shown = json.loads(self.result.out)
        self.assertEqual(first.id, shown['previous']['id'])
        self.assertNotEqual(first.id, shown['current']['id'])
        self.assertEqual(0, self.command('retire'))
        self.assertEqual(0, self.command('show', '--format', 'json'))
        self.assertIsNone(json.loads(self.result.out)['previous'])
        keys = message_keys.KeyFile(self.path).load()
        self.assertNotIn(keys.current.secret.hex(), self.result.out)
