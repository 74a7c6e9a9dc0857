# SPDX-License-Identifier: Apache-2.0
import gc
import json
import os
import subprocess
import sys

import fixtures
from oslotest import base

from trove_ceph.guestagent import preload

_CONFIG = """\
[DEFAULT]
# Nothing listens there.
transport_url = rabbit://user:password@127.0.0.1:1
control_exchange = trove
guest_id = 9f7e0c52-61d3-4b0a-8d34-7b1f2c5e9a60
instance_rpc_encr_key = bnBpuUnYaxQz4q8vWjZK2FkQpr0nNdBt
datastore_manager = mysql
datastore_version = 9.7.4
datastore_registry_ext = mysql:trove_ceph.guestagent.manager.Manager
"""


class PreloadTest(base.BaseTestCase):
    def modules_loaded_later(self, **environment):
        config = self.useFixture(fixtures.TempDir()).join('guest.conf')
        with open(config, 'w') as written:
            written.write(_CONFIG)
        kept = {k: v for k, v in os.environ.items() if k != 'NO_EVENTLET_MONKEYPATCH'}
        done = subprocess.run(
            [sys.executable, '-m', 'trove_ceph.tests.unit.guestagent.agent_start', config],
            env=kept | {'PYTHONPATH': os.pathsep.join(sys.path)} | environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        self.assertEqual(0, done.returncode, done.stderr)
        return json.loads(done.stdout.splitlines()[-1])

    def test_the_start_of_the_agent_loads_no_more_modules(self):
        self.assertEqual([], self.modules_loaded_later())

    def test_tolerates_a_module_that_is_gone(self):
        names = (*preload.MODULES, 'trove.no.such.module')
        self.useFixture(fixtures.MonkeyPatch('trove_ceph.guestagent.preload.MODULES', names))
        for verb in ('disable', 'enable', 'collect', 'freeze'):
            self.useFixture(fixtures.MockPatch(f'gc.{verb}'))

        preload.run()

        gc.enable.assert_called_once_with()
