# SPDX-License-Identifier: Apache-2.0
"""A fault of the host or of Ceph is never a verdict about a backup.

These are the faults that most resemble damage; test_inspection_faults_long has all phases and
faults.
"""

from trove_ceph.tests.functional import base, inspection_faults
from trove_ceph.verification import report


class Contract:
    """Faults in both modes of isolation; in a virtual machine, QEMU is the storage daemon."""

    @base.long
    def test_storage_daemon_dies_while_the_server_reads(self):
        fault, found = self.assert_no_verdict('checking', 'storage daemon', 'dies')
        self.assertEqual((True, None), (fault.has_struck, found))

    def test_storage_daemon_dies_while_the_server_recovers(self):
        fault, found = self.assert_no_verdict('recovering', 'storage daemon', 'dies')
        self.assertEqual((True, None), (fault.has_struck, found))

    @base.long
    def test_storage_daemon_stops_during_the_mount(self):
        """The mount hangs in the kernel until the daemon is killed."""
        fault, found = self.assert_no_verdict('opening', 'storage daemon', 'stops')
        self.assertEqual((True, None), (fault.has_struck, found))

    @base.long
    def test_osds_stop_while_the_server_reads(self):
        fault, found = self.assert_no_verdict('recovering', 'OSDs', 'stops')
        self.assertEqual((True, None), (fault.has_struck, found))
        self.assert_sound()


class InspectionFaultsTest(Contract, inspection_faults.InspectionFaultsTestCase):
    """Faults of inspections in namespaces of this host."""


@base.long
class VirtualMachineFaultsTest(Contract, inspection_faults.InspectionFaultsTestCase):
    """Faults of inspections in a virtual machine, which takes a minute to start."""

    mode = report.VM
    limit_sec = 120
    phase_limits_sec = {'checking': 600}
