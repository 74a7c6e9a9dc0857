# SPDX-License-Identifier: Apache-2.0
import os
import sys
from unittest import mock

import fixtures
from oslotest import base
from trove.common import cfg

from trove_ceph import exceptions
from trove_ceph.cmd import guest

CONF = cfg.CONF


class GuestCommandTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.addCleanup(CONF.reset)
        directory = self.useFixture(fixtures.TempDir())
        self.config = directory.join('guest.conf')
        self.write(
            '[DEFAULT]\ndatastore_manager = mysql\nguest_id = an-instance\n'
            'volume_format_timeout = 300\n'
            '[mysql]\ndevice_path = /dev/vdz\n'
            '[trove_ceph]\nvolume_ready_timeout_sec = 7\n'
        )
        self.useFixture(fixtures.MonkeyPatch('sys.argv', ['x', '--config-file', self.config]))
        self.useFixture(fixtures.MonkeyPatch('oslo_log.log.setup', mock.Mock()))
        self.volume = mock.Mock()
        self.made = mock.Mock(return_value=self.volume)
        self.useFixture(fixtures.MonkeyPatch('trove_ceph.host.data_volume.DataVolume', self.made))
        self.trove = mock.Mock(return_value=None)
        self.useFixture(fixtures.MonkeyPatch('trove.cmd.guest.main', self.trove))

    def write(self, content):
        with open(self.config, 'w') as config:
            config.write(content)


class StartTest(GuestCommandTestCase):
    def test_volume_first_then_troves_agent(self):
        def parse_again():
            # What Trove's agent does first; a command line option registered late would fail.
            from oslo_log import log

            log.register_options(CONF)
            cfg.parse_args(['x', '--config-file', self.config])
            self.assertEqual('an-instance', CONF.guest_id)
            self.volume.prepare.assert_called_once()

        self.trove.side_effect = parse_again

        self.assertIsNone(guest.main())

        self.trove.assert_called_once_with()
        self.made.assert_called_once_with('/dev/vdz', '/var/lib/mysql', mock.ANY)
        self.volume.prepare.assert_called_once_with(
            int(CONF.database_service_uid),
            int(CONF.database_service_uid),
            ready_timeout_sec=7,
            format_timeout_sec=300,
            read_ahead_kib=4096,
            volume_id='',
        )

    def test_agent_does_not_start_on_a_volume_that_was_refused(self):
        self.volume.prepare.side_effect = exceptions.VolumeHasDataError('/dev/vdz carries swap')

        self.assertEqual(1, guest.main())

        # It would format what we refused.
        self.trove.assert_not_called()

    def test_waits_with_its_modules_loaded(self):
        marker = os.path.join(os.path.dirname(self.config), 'configured')
        sys.argv[1:1] = ['--wait-for', marker]
        done = mock.Mock()

        def write_marker(_seconds):
            done.sleep()
            self.trove.assert_not_called()
            with open(marker, 'w'):
                pass

        self.useFixture(fixtures.MonkeyPatch('trove_ceph.guestagent.preload.run', done.preload))
        self.useFixture(fixtures.MonkeyPatch('time.sleep', write_marker))
        done.trove.return_value = None
        self.trove.side_effect = lambda: done.trove(*sys.argv)

        self.assertIsNone(guest.main())

        started = mock.call.trove('x', '--config-file', self.config)
        self.assertEqual([mock.call.preload(), mock.call.sleep(), started], done.mock_calls)

    def test_a_long_wait_is_reported(self):
        """As on a machine on which cloud-init has failed."""
        marker = os.path.join(os.path.dirname(self.config), 'configured')
        now = 0.0

        def pause(_seconds):
            nonlocal now
            now += 40
            if now == 200:
                with open(marker, 'w'):
                    pass

        self.useFixture(fixtures.MonkeyPatch('trove_ceph.guestagent.preload.run', mock.Mock()))
        self.useFixture(fixtures.MonkeyPatch('time.sleep', pause))
        self.useFixture(fixtures.MonkeyPatch('time.monotonic', lambda: now))
        output = self.useFixture(fixtures.StringStream('stderr')).stream
        self.useFixture(fixtures.MonkeyPatch('sys.stderr', output))
        guest._load_and_wait(marker)
        output.seek(0)
        expected = [f'Waiting for {marker} since {seconds} s' for seconds in (80, 160)]
        self.assertEqual(expected, output.read().splitlines())

    def test_does_not_wait_without_the_option(self):
        loaded = self.useFixture(fixtures.MockPatch('trove_ceph.guestagent.preload.run')).mock

        self.assertIsNone(guest.main())

        loaded.assert_not_called()


class WaitingGuestTest(GuestCommandTestCase):
    """The agent of a guest that waits for an instance."""

    def setUp(self):
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())
        self.binding = mock.Mock()
        self.wait = self.replace('waiting_guest.wait', side_effect=self.bind)
        self.begin = self.replace('interface_wait.begin')
        self.write_identity('waiting_guest_key = a-secret\n')

    def replace(self, name, **options):
        path = f'trove_ceph.guestagent.{name}'
        return self.useFixture(fixtures.MockPatch(path, **options)).mock

    def write_identity(self, options, guest_id='a-guest'):
        self.write(
            f'[DEFAULT]\ndatastore_manager = mysql\nguest_id = {guest_id}\n[trove_ceph]\n{options}'
        )

    def bind(self, conf):
        self.assertEqual('a-guest', conf.guest_id)
        self.write_identity('data_volume_id = a-volume\n', 'an-instance')
        return self.binding

    def test_it_waits_then_reads_the_configuration_again(self):
        order = mock.Mock()
        order.attach_mock(self.wait, 'wait')
        order.attach_mock(self.begin, 'begin')
        order.attach_mock(self.volume.prepare, 'prepare')
        order.attach_mock(self.trove, 'trove')
        self.volume.prepare.side_effect = lambda *_, **__: self.assertEqual(
            ('an-instance', ''), (CONF.guest_id, CONF.trove_ceph.waiting_guest_key)
        )

        self.assertIsNone(guest.main())

        names = [call[0] for call in order.mock_calls]
        self.assertEqual(['wait', 'begin', 'prepare', 'trove'], names)
        self.begin.assert_called_once_with(self.binding.interfaces, 120)
        self.assertEqual('a-volume', self.volume.prepare.call_args.kwargs['volume_id'])

    def test_an_instance_does_not_wait(self):
        self.write_identity('', 'an-instance')

        self.assertIsNone(guest.main())

        self.wait.assert_not_called()
        self.begin.assert_not_called()
        self.trove.assert_called_once_with()

    def assert_not_started(self):
        self.assertEqual(1, guest.main())
        self.volume.prepare.assert_not_called()
        self.trove.assert_not_called()
        self.assertNotIn('a-secret', self.log.output)

    def test_a_guest_that_is_not_bound_does_not_start(self):
        self.wait.side_effect = exceptions.GuestNotBoundError('The binding failed')
        self.assert_not_started()

    def test_a_half_bound_guest_neither_waits_nor_starts(self):
        self.write_identity('binding_instance_id = an-instance\n')
        self.assert_not_started()
        self.wait.assert_not_called()
        self.assertIn('interrupted while it became instance an-instance', self.log.output)

    def test_an_interface_that_never_comes(self):
        # Trove's agent makes the guest manager, which waits for them.
        self.trove.side_effect = exceptions.InterfaceNotReadyError('No interface')
        self.assertEqual(1, guest.main())
        self.assertIn('The agent cannot start: No interface', self.log.output)

    def test_a_volume_that_never_comes(self):
        self.volume.prepare.side_effect = exceptions.VolumeNotReadyError('did not appear')
        self.assertEqual(1, guest.main())
        self.trove.assert_not_called()
