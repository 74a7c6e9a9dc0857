# SPDX-License-Identifier: Apache-2.0
import dataclasses
import pathlib

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.tests.unit.verification import world
from trove_ceph.verification import isolation, on_host, report, virtual_machine, vm_image

ROOT = pathlib.Path('/srv/mysql-9.7')
IMAGE = vm_image.VmImage(
    pathlib.Path('/image/vmlinuz'),
    pathlib.Path('/image/initrd'),
    '6.1',
    {str(ROOT): pathlib.Path('/image/root')},
)


class SandboxesTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())
        self.image = IMAGE
        self.obstacle = None
        self.probed = []

    def load(self, directory):
        if self.image is None:
            raise exceptions.NotInspectableError(
                f'there is no virtual machine image in {directory}'
            )
        return self.image

    def probe(self, image, accelerator, directory, uid):
        self.probed.append((accelerator, uid))
        return self.obstacle

    def sandboxes(self, mode, **changes):
        settings = dataclasses.replace(
            world.SETTINGS, isolation=mode, **{'roots': {'9.7': ROOT}, **changes}
        )
        return isolation.Sandboxes(
            '/etc/ceph/ceph.conf', 'client.x', settings, lambda *_: 'key', self.load, self.probe
        )

    def assert_namespaces(self, sandboxes, why):
        self.assertIsInstance(sandboxes(), on_host.HostSandbox)
        self.assertIn(f'Inspections run in namespaces of this host{why}', self.log.output)

    def test_a_virtual_machine_where_one_starts(self):
        sandboxes = self.sandboxes(report.AUTO)
        found = sandboxes()
        self.assertIsInstance(found, virtual_machine.VmSandbox)
        self.assertEqual('vm (kvm)', found.isolation)
        self.assertIn('Inspections run in virtual machines with kvm', self.log.output)
        # Nothing else on the host runs as the user that it is tried with.
        self.assertEqual([('kvm', report.FIRST_UID + virtual_machine.FIRST_ID)], self.probed)

    def test_it_is_chosen_once(self):
        sandboxes = self.sandboxes(report.AUTO)
        self.assertIsNot(sandboxes(), sandboxes())
        self.assertEqual(1, len(self.probed))
        self.assertEqual(1, self.log.output.count('Inspections run'))

    def test_no_machine_starts(self):
        self.obstacle = 'a virtual machine with kvm did not start within 15 s'
        self.assert_namespaces(self.sandboxes(report.AUTO), f': {self.obstacle}')

    def test_there_is_no_image(self):
        self.image = None
        self.assert_namespaces(self.sandboxes(report.AUTO), ': there is no virtual machine image')
        self.assertEqual([], self.probed)

    def test_an_image_without_one_of_the_servers(self):
        roots = {'9.7': ROOT, '8.4': pathlib.Path('/srv/mysql-8.4')}
        self.assert_namespaces(self.sandboxes(report.AUTO, roots=roots), ': the virtual machine')

    def test_namespaces_as_configured(self):
        self.assert_namespaces(self.sandboxes(report.NAMESPACES), ', as configured')
        self.assertEqual([], self.probed)

    def test_a_machine_or_nothing(self):
        """The next inspection tries again: an operator may have mended it."""
        sandboxes = self.sandboxes(report.VM, vm_accelerator='tcg')
        self.obstacle = 'there is no /dev/kvm'
        error = self.assertRaises(exceptions.NotInspectableError, sandboxes)
        self.assertIn('there is no /dev/kvm', str(error))
        self.obstacle = None
        self.assertEqual('vm (tcg)', sandboxes().isolation)
