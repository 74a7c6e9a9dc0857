# SPDX-License-Identifier: Apache-2.0
"""The files of a waiting guest are replaced, and the machine crashes at any time."""

import os
import stat
import subprocess
from unittest import mock

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.guestagent import guest_identity, waiting_messages
from trove_ceph.host import file_replacement
from trove_ceph.tests.unit.guestagent import waiting_world
from trove_ceph.tests.unit.guestagent.waiting_world import GUEST, INSTANCE, VOLUME

#: The machine of a test has another one.
SET_HOSTNAME = guest_identity.SET_HOSTNAME
_CALLS = ('open', 'fsync', 'rename', 'unlink')


class IdentityTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.machine = self.useFixture(waiting_world.Machine())
        self.identity = guest_identity.find(self.machine.conf())

    def plan(self, **changes):
        binding = waiting_messages.parse_binding(self.machine.arguments(**changes))
        return guest_identity.plan(self.identity, binding)

    def refusal(self, **changes):
        return str(self.assertRaises(exceptions.GuestNotBoundError, self.plan, **changes))


class ReplaceTest(IdentityTestCase):
    def test_a_waiting_guest_becomes_an_instance(self):
        conf = self.machine.conf()
        self.assertTrue(guest_identity.is_waiting(conf))
        self.assertEqual(GUEST, conf.guest_id)

        file_replacement.replace(self.plan())

        conf = self.machine.conf()
        self.assertFalse(guest_identity.is_waiting(conf))
        self.assertEqual((INSTANCE, VOLUME), (conf.guest_id, conf.trove_ceph.data_volume_id))
        self.assertTrue(conf.x)
        expected = {
            'conf.d/bound-guest.conf',
            'conf.d/guest_info.conf',
            'conf.d/trove-guestagent.conf',
            'network/05-trove-ceph-fa163e000001.network',
        }
        self.assertEqual(expected, set(self.machine.files()))

    def test_no_file_has_the_keys_of_the_waiting_guest(self):
        file_replacement.replace(self.plan())

        for content in self.machine.files().values():
            self.assertNotIn(self.machine.rpc_key, content)
            self.assertNotIn(self.machine.signing_key, content)

    def test_host_name(self):
        replacement = self.plan(hostname='db1')
        self.assertIn(guest_identity.SET_HOSTNAME, replacement.commands)

        file_replacement.replace(replacement)

        self.assertEqual('db1\n', self.machine.files()['hostname'])
        for malformed in ('', 'a b', 'a\nb', '-a', 'x' * 64):
            arguments = self.machine.arguments(hostname=malformed)
            self.assertRaises(
                exceptions.GuestNotBoundError, waiting_messages.parse_binding, arguments
            )

    def test_guest_whose_host_name_cannot_be_set_is_bound(self):
        *shell, script = SET_HOSTNAME
        # There is no such file.
        script = script.replace('/etc', self.machine.root)
        done = subprocess.run([*shell, script], check=False, capture_output=True)
        self.assertEqual(0, done.returncode)

    def test_files_keep_their_mode(self):
        path = self.machine.path('guest_info.conf')
        os.chmod(path, 0o640)

        file_replacement.replace(self.plan())

        self.assertEqual(0o640, stat.S_IMODE(os.stat(path).st_mode))

    def test_new_files_have_the_owner_of_the_identity(self):
        owners = {file.path: file.owner_of for file in self.plan().files}

        info = self.machine.path('guest_info.conf')
        self.assertEqual(info, owners[self.machine.path('bound-guest.conf')])
        self.assertIsNone(owners[f'{self.machine.network}/05-trove-ceph-fa163e000001.network'])

    def test_an_interface_without_addresses_is_not_configured(self):
        interface = waiting_world.INTERFACE | {'addresses': []}

        replacement = self.plan(interfaces=[interface])

        self.assertEqual(3, len(replacement.files))
        self.assertEqual((), replacement.commands)


class RefusalTest(IdentityTestCase):
    def test_files_of_another_instance(self):
        content = waiting_world.info(GUEST, 'a-secret')
        for info in (content, '', 'guest_id=x', 'a-secret\n[DEFAULT'):
            files = self.machine.arguments()['files'] | {self.identity.info_path: info}
            text = self.refusal(files=files)
            self.assertIn(f'expected {INSTANCE}', text)
            self.assertNotIn('a-secret', text)

    def test_files_without_identity(self):
        self.assertIn('expected', self.refusal(files={}))

    def test_a_file_in_the_place_of_the_marker(self):
        files = self.machine.arguments()['files'] | {self.identity.waiting_path: ''}
        self.assertIn('is removed by the binding', self.refusal(files=files))

    def test_malformed_arguments(self):
        interface = waiting_world.INTERFACE
        for changes in (
            {'instance_id': '../x'},
            {'volume_id': 'x\n[DEFAULT]'},
            {'files': {'conf.d/guest_info.conf': ''}},
            {'files': {'/etc/../x': ''}},
            {'files': {'/x': None}},
            {'files': None},
            {'interfaces': [interface | {'mac': 'fa:16:3e:00:00:0/'}]},
            {'interfaces': [interface | {'addresses': ['10.0.0.5/24\n[Match]']}]},
            {'interfaces': [interface | {'gateway': 'x'}]},
            {'interfaces': [interface | {'routes': [{'destination': 'x', 'nexthop': 'y'}]}]},
            {'interfaces': [interface | {'mtu': 1}]},
            {'interfaces': [{}]},
        ):
            self.assertIn('The request to bind is malformed', self.refusal(**changes))

    def test_an_identity_outside_of_files(self):
        conf = self.machine.conf()
        os.unlink(self.machine.path('waiting-guest.conf'))
        error = self.assertRaises(exceptions.GuestNotBoundError, guest_identity.find, conf)
        self.assertIn('waiting_guest_key: must be set in a configuration file', str(error))


class CrashTest(IdentityTestCase):
    """The process is killed before each of its system calls, and the machine starts again."""

    def run_until(self, call):
        """Replace the files in a process that dies before its system call of this number.

        :returns: whether it ended before
        """
        replacement = self.plan()
        child = os.fork()
        if child == 0:
            remaining = [call]

            def dying(original):
                def execute(*arguments, **options):
                    if not remaining[0]:
                        os._exit(9)
                    remaining[0] -= 1
                    return original(*arguments, **options)

                return execute

            status = 8
            try:
                patches = {name: dying(getattr(os, name)) for name in _CALLS}
                with mock.patch.multiple(os, **patches):
                    file_replacement.replace(replacement)
                status = 0
            finally:
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        self.assertIn(status, (0, 9))
        return status == 0

    def state(self, old, new):
        """Return the state of a machine that starts with these files, after checking it."""
        found = {name: one for name, one in self.machine.files().items() if '/.' not in name}
        conf = self.machine.conf()
        try:
            is_waiting = guest_identity.is_waiting(conf)
        except exceptions.GuestNotBoundError as error:
            self.assertIn(INSTANCE, str(error))
            self.assertEqual('', conf.trove_ceph.waiting_guest_key)
            return 'interrupted'
        self.assertEqual(old if is_waiting else new, found)
        return 'waiting' if is_waiting else 'bound'

    def test_each_state(self):
        first = self.machine
        file_replacement.replace(self.plan())
        states = []
        has_ended = False
        while not has_ended:
            self.machine = self.useFixture(waiting_world.Machine())
            self.identity = guest_identity.find(self.machine.conf())
            old = self.machine.files()
            new = {
                name: content.replace(first.bus, self.machine.bus)
                for name, content in first.files().items()
            }
            has_ended = self.run_until(len(states))
            states.append(self.state(old, new))
        order = ['waiting', 'interrupted', 'bound']
        self.assertEqual(order, list(dict.fromkeys(states)))
        # No way leads back.
        self.assertEqual(sorted(states, key=order.index), states)

    def test_an_interrupted_binding_can_be_repeated(self):
        """Temporary files that a crash has left are no obstacle."""
        self.run_until(5)
        file_replacement.replace(self.plan())
        self.assertEqual(INSTANCE, self.machine.conf().guest_id)
        self.assertNotIn('.replacement', ''.join(self.machine.files()))
