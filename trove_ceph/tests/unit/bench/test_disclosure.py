# SPDX-License-Identifier: Apache-2.0
import json
import pathlib

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph_bench import disclosure

CPUINFO = 'processor\t: 0\nmodel name\t: Epyc 9\nflags\t\t: fpu sse hypervisor\n'


class HostTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.proc = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (self.proc / 'cpuinfo').write_text(CPUINFO)
        (self.proc / 'meminfo').write_text('MemTotal:       2097152 kB\nMemFree: 1 kB\n')
        programs = self.proc / 'bin'
        programs.mkdir()
        (programs / 'fio').touch(mode=0o755)
        self.useFixture(fixtures.EnvironmentVariable('PATH', str(programs)))

    def test_known_and_unknown_facts(self):
        def run(*command):
            if command[0] == 'fio':
                return 'fio-3.33\n'
            raise exceptions.StorageCommandError('none')

        found = json.loads(json.dumps(disclosure.host(self.proc, run)))

        self.assertEqual(('Epyc 9', 2048), (found['cpu'], found['memory_mib']))
        self.assertEqual('unknown', found['virtualisation'])
        self.assertEqual('fio-3.33', found['versions']['fio'])
        self.assertIsNone(found['versions']['sysbench'])
        self.assertEqual(3, len(found['load']))

    def test_a_program_that_fails_has_no_version(self):
        def run(*command):
            raise exceptions.StorageCommandError(f'{command[0]} is broken')

        (self.proc / 'cpuinfo').write_text(CPUINFO.replace('hypervisor', ''))

        found = disclosure.host(self.proc, run)

        self.assertIsNone(found['versions']['fio'])
        self.assertEqual('none', found['virtualisation'])
