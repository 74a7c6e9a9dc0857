# SPDX-License-Identifier: Apache-2.0
"""The certificates and keys of a database that has none, made before it or at its start."""

import shutil
import stat

from trove_ceph.tests.functional import base, test_entrypoint

MODES = {'ca-key.pem': 0o600, 'server-key.pem': 0o600, 'private_key.pem': 0o600}
KEYS = {*MODES, 'ca.pem', 'server-cert.pem', 'public_key.pem'}


class KeysTestCase(test_entrypoint.EntrypointTestCase):
    """Databases without certificates."""

    def make_database_without_certificates(self, options=()):
        """Return a container that was started once, and killed."""
        box = self.make_container(options=(*test_entrypoint.TEMPLATE_FITS, *options))
        box.start()
        box.wait_until_ready()
        box.wait_until_settled()
        box.kill()
        self.remove_certificates(box)
        return box

    def make_keys(self, box):
        """Return the keys of a database that comes later, by their names."""
        box.start_command('make-keys')
        self.assertEqual(0, box.wait_for_end(), box.log())
        (made,) = box.settings.glob('new-keys*')
        self.assertEqual('new-keys', made.name)
        return self.keys_in(made)

    def keys_in(self, directory):
        return {path.name: path.read_text() for path in directory.glob('*.pem')}

    def remove_certificates(self, box):
        for path in box.data.glob('*.pem'):
            path.unlink()


class KeysTest(KeysTestCase):
    """Undisturbed starts."""

    def test_a_database_without_certificates_gets_some(self):
        """As a clone of a golden volume does; all others keep theirs."""
        box = self.make_database_without_certificates()
        box.start()
        self.assert_has_elliptic_certificates(box)
        before = (box.data / 'server-cert.pem').read_text()
        box.kill()
        box.start()
        box.wait_until_ready()
        self.assertEqual(before, (box.data / 'server-cert.pem').read_text())

    def test_a_database_gets_the_keys_that_were_made_before_it(self):
        box = self.make_database_without_certificates()
        made = self.make_keys(box)
        self.assertEqual(KEYS, set(made))

        box.start()

        self.assert_has_elliptic_certificates(box)
        self.assertEqual(made, self.keys_in(box.data))
        self.assertEqual([], [*box.settings.glob('new-keys*')])
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in box.data.glob('*.pem')}
        self.assertEqual({name: MODES.get(name, 0o644) for name in KEYS}, modes)
        # Without TLS, and not from a local socket, a password is encrypted with the key pair.
        self.assertTrue(box.query("SHOW STATUS LIKE 'Caching_sha2_password_rsa_public_key'")[0][1])

    def test_a_first_start_gets_the_keys_that_were_made_before_it(self):
        box = self.make_container()
        made = self.make_keys(box)
        box.start()
        self.assert_first_start_right(box)
        self.assertEqual(made, self.keys_in(box.data))
        self.assertEqual([], [*box.settings.glob('new-keys*')])

    def test_keys_that_cannot_be_read_are_replaced(self):
        box = self.make_database_without_certificates()
        self.make_keys(box)
        for name in ('private_key.pem', 'server-key.pem'):
            (box.settings / 'new-keys' / name).chmod(0)
        box.start()
        self.assert_has_elliptic_certificates(box)

    def test_keys_are_made_once(self):
        box = self.make_container()
        made = self.make_keys(box)
        self.assertEqual(made, self.make_keys(box))

    def test_a_server_that_is_to_have_no_certificates(self):
        box = self.make_database_without_certificates(('--auto-generate-certs=OFF',))
        box.start()
        box.wait_until_ready()
        self.assertEqual([], [*box.data.glob('*cert*.pem')])


@base.long
class InterruptedKeysTest(KeysTestCase):
    """Starts and commands that are killed at every step."""

    def test_survives_a_kill_before_each_command_that_adds_certificates(self):
        box = self.make_database_without_certificates()

        def check():
            box.start()
            self.assert_has_elliptic_certificates(box)
            box.kill()
            self.remove_certificates(box)

        reached = self.kill_before_each(box, box.start, check)
        self.assertLessEqual({'mkdir', 'openssl', 'mv', 'sync', 'rmdir'}, reached)

    def kill_before_each(self, box, start, check):
        """Kill a container before each command of its entrypoint; return their names.

        :param start: takes the number of the command before which the entrypoint halts
        :param check: called after each kill
        """
        reached = set()
        for number in range(1, test_entrypoint.MAX_COMMANDS):
            start(number)
            command = box.wait_until_halted()
            box.kill()
            if command is None:
                return reached
            reached.add(command.split()[0])
            check()
        raise AssertionError(
            f'the entrypoint has more than {test_entrypoint.MAX_COMMANDS} commands'
        )

    def test_survives_a_kill_before_each_command_that_makes_keys(self):
        box = self.make_container()

        def check():
            self.assertEqual(KEYS, set(self.make_keys(box)))
            shutil.rmtree(box.settings / 'new-keys')

        reached = self.kill_before_each(
            box, lambda number: box.start_command('make-keys', number), check
        )
        self.assertLessEqual({'mkdir', 'openssl', 'chmod', 'mv'}, reached)

    def test_survives_a_kill_before_each_command_that_takes_keys(self):
        box = self.make_database_without_certificates()

        def start(number):
            self.make_keys(box)
            box.start(halt_before=number)

        def check():
            box.start()
            self.assert_has_elliptic_certificates(box)
            self.assertEqual([], [*box.settings.glob('new-keys*')])
            box.kill()
            self.remove_certificates(box)

        reached = self.kill_before_each(box, start, check)
        self.assertLessEqual({'mkdir', 'cp', 'mv', 'sync', 'rm', 'rmdir'}, reached)
