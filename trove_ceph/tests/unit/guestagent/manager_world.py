# SPDX-License-Identifier: Apache-2.0
"""The guest manager of an instance whose volume and container are fakes."""

from unittest import mock

import fixtures
from oslotest import base

# Registers the option ssl_mode.
from trove.cmd import guest as _trove_guest  # noqa: F401
from trove.common import cfg

from trove_ceph.conf import guest as guest_conf
from trove_ceph.guestagent import manager
from trove_ceph.host import data_volume

CONF = cfg.CONF
GIB_MIB = 1024


class ManagerTestCase(base.BaseTestCase):
    """A test of the manager.

    :ivar volume: the fake data volume
    :ivar configuration: the fake of what writes MySQL's configuration
    """

    def setUp(self):
        super().setUp()
        guest_conf.register(CONF)
        for name, value in {
            'datastore_manager': 'mysql',
            'datastore_version': '9.7.4',
        }.items():
            CONF.set_override(name, value)
            self.addCleanup(CONF.clear_override, name)
        CONF.set_override('guest_id', 'an-instance')
        self.addCleanup(CONF.clear_override, 'guest_id')
        self.useFixture(fixtures.MonkeyPatch('docker.from_env', mock.Mock()))
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove_ceph.host.data_volume.DataVolume', mock.Mock(name='DataVolume')
            )
        )
        self.volume = data_volume.DataVolume.return_value
        self.volume.size_mib.return_value = 100 * GIB_MIB
        self.manager = manager.Manager()
        self.manager.app._configuration_manager = self.configuration = mock.Mock()

    def option(self, name, value):
        CONF.set_override(name, value, 'trove_ceph')
        self.addCleanup(CONF.clear_override, name, 'trove_ceph')
