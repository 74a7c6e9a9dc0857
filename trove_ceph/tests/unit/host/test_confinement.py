# SPDX-License-Identifier: Apache-2.0
import resource
import subprocess

from oslotest import base

from trove_ceph.host import confinement


class ConfinementTest(base.BaseTestCase):
    def test_never_root(self):
        for uid, gid in ((0, 5), (5, 0)):
            self.assertRaises(ValueError, confinement.Confinement, uid, gid, 2**30, 60)

    def test_the_kernel_holds_a_process_to_it(self):
        confined = confinement.Confinement(5, 5, 2**30, 60, tasks=2**14)
        limits = ('DATA', 'CPU', 'NPROC', 'CORE')
        program = (
            'import os, resource; print(os.nice(0), '
            + ', '.join(f'resource.getrlimit(resource.RLIMIT_{name})[1]' for name in limits)
            + ', "NoNewPrivs:\\t1" in open("/proc/self/status").read())'
        )

        told = subprocess.run(
            [*confined.prefix(), 'python3', '-c', program],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()

        before = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        tasks = 2**14 if before == resource.RLIM_INFINITY else min(before, 2**14)
        self.assertEqual(['19', str(2**30), '60', str(tasks), '0', 'True'], told)

    def test_the_server_has_no_network_and_is_nobody_else(self):
        confined = confinement.Confinement(5, 6, 2**30, 60)
        self.assertIn('--net', confined.name_spaces())
        self.assertEqual('--userspec=5:6 --groups=', confined.environment()['IDENTITY'])
