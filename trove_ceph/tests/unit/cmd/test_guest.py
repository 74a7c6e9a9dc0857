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

    def test_does_not_wait_without_the_option(self):
        loaded = self.useFixture(fixtures.MockPatch('trove_ceph.guestagent.preload.run')).mock

        self.assertIsNone(guest.main())

        loaded.assert_not_called()
