# SPDX-License-Identifier: Apache-2.0
import resource
import subprocess

from oslotest import base

from trove_ceph.host import confinement


class ConfinementTest(base.BaseTestCase):
    def test_refuses_root(self):
        for uid, gid in ((0, 5), (5, 0)):
            self.assertRaises(ValueError, confinement.Confinement, uid, gid, 2**30, 60, 2**30)

    def test_the_kernel_limits_a_process(self):
        confined = confinement.Confinement(5, 5, 2**30, 60, 2**33, tasks=2**14)
        limits = ('DATA', 'CPU', 'NPROC', 'FSIZE', 'CORE')
        program = (
            'import os, resource; print(os.nice(0), '
            + ', '.join(f'resource.getrlimit(resource.RLIMIT_{name})[1]' for name in limits)
            + ')'
        )
        # Changing the user needs root.
        words = confined.prefix()
        words = words[: words.index('setpriv')]

        output = subprocess.run(
            [*words, 'python3', '-c', program], capture_output=True, text=True, check=True
        ).stdout.split()

        before = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        tasks = 2**14 if before == resource.RLIM_INFINITY else min(before, 2**14)
        self.assertEqual(['19', str(2**30), '60', str(tasks), str(2**33), '0'], output)

    def test_the_prefix_sets_the_user(self):
        words = confinement.Confinement(5, 6, 2**30, 60, 2**30).prefix()
        user = words[words.index('setpriv') :]
        for word in ('--reuid=5', '--regid=6', '--clear-groups', '--no-new-privs'):
            self.assertIn(word, user)
