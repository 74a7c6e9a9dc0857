# SPDX-License-Identifier: Apache-2.0
"""The profile of a hyper-converged host on a running lab: CPUs of processes, Ceph, the kernel."""

import contextlib
import io
import json
import os
from unittest import mock

from driver import __main__ as command_line
from driver import cpu_split, kernel_parameters, machine_profile, status
from driver.errors import LabError

from hci_profile import profile as profiles
from trove_ceph.tests.unit.lab.test_driver_instruments import InstrumentsTestCase

_CPUS = sorted(os.sched_getaffinity(0))
_THREADS = """
import threading, time
for _ in range(3):
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print('up', flush=True)
time.sleep(60)
"""


def profile(**changes):
    values = {
        'cpu_scale': 8,
        'memory_scale': 2,
        'osd_cpus': _CPUS[:1],
        'guest_cpus': _CPUS[-1:],
        'host_cpus': [],
        'osds': ['osd.0'],
        'other_osds': ['osd.1'],
        'osd_memory_target_mib': 1564,
        'guests': 3,
        'nova': {},
        'sysctl': {'vm.swappiness': '1'},
        'ceph': [['osd', 'osd_mclock_profile', 'high_client_ops']],
    }
    return profiles.Profile(**values | changes)


class HciTestCase(InstrumentsTestCase):
    """A lab with two processes that stand for an OSD and a guest."""

    def setUp(self):
        super().setUp()
        self.osd = self.spawn(_THREADS)
        self.vm = self.spawn(_THREADS)
        running = {'osd.0': [self.osd.pid], 'instance-1': [self.vm.pid]}
        patch = mock.patch('driver.cpu_split.running', return_value=running)
        patch.start()
        self.addCleanup(patch.stop)
        self.sys = self.directory / 'sys'
        (self.sys / 'vm').mkdir(parents=True)
        (self.sys / 'vm/swappiness').write_text('60\n')
        for name in ('ensure_set', 'restore'):
            self._redirect(name)

    def _redirect(self, name):
        """Have the parameters be files of the test."""
        real = getattr(kernel_parameters, name)
        patch = mock.patch.object(
            kernel_parameters, name, side_effect=lambda *words: real(*words, proc=self.sys)
        )
        patch.start()
        self.addCleanup(patch.stop)

    def plan(self, **changes):
        self.write('etc/hci/profile.json')
        profiles.save(self.root, profile(**changes))

    def ceph(self, **failing):
        """Fake the command of Ceph; those that contain a word fail with an error."""

        def run(words, **_options):
            error = next((text for word, text in failing.items() if word in words), '')
            return mock.Mock(returncode=22 if error else 0, stderr=error, stdout='')

        return mock.patch('driver.machine_profile.subprocess.run', side_effect=run)

    def settle(self, **options):
        out = io.StringIO()
        with self.ceph(**options) as run, contextlib.redirect_stdout(out):
            machine_profile.settle(self.settings)
        return [call.args[0][3:] for call in run.call_args_list], out.getvalue()

    def cpus(self):
        return [set(cpu_split.cpus_of(each.pid)) for each in (self.osd, self.vm)]

    def lab_hci(self, choice):
        arguments = command_line._parser().parse_args(['hci', choice])
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            self.assertEqual(0, arguments.run(self.settings, arguments))
        return out.getvalue()


class SettleTest(HciTestCase):
    def test_divides_the_cpus_and_configures(self):
        self.plan()
        commands, said = self.settle()
        self.assertEqual([set(_CPUS[:1]), set(_CPUS[-1:])], self.cpus())
        [option, noted] = commands
        self.assertEqual(['config', 'set', 'osd', 'osd_mclock_profile', 'high_client_ops'], option)
        self.assertEqual(['config-key', 'set', 'trove-ceph-bench/profile'], noted[:3])
        self.assertIn('unless a variant lifts this; osd_memory_target 1564 MiB; the plan', noted[3])
        self.assertEqual('1', (self.sys / 'vm/swappiness').read_text())
        self.assertIn('8 times the CPUs and 2 times the memory', said)
        self.assertIn('osd_memory_target 1564 MiB for osd.0;', said)
        self.assertNotIn('refused', said)

    def test_tells_what_is_refused(self):
        self.plan(sysctl={'net.core.nothing': '1'})
        _, said = self.settle(osd_mclock_profile='Error EINVAL: unrecognized config option')
        self.assertIn('refused here: net.core.nothing: No such file or directory', said)
        self.assertIn('refused here: osd osd_mclock_profile: Error EINVAL: unrecognized', said)

    def test_a_server_is_not_called_scaled(self):
        self.plan(cpu_scale=1, memory_scale=1)
        commands, said = self.settle()
        self.assertNotIn('scaled', said)
        self.assertTrue(commands[-1][-1].endswith('osd_memory_target 1564 MiB'))

    def test_the_other_profile_undoes_everything(self):
        self.plan()
        self.settle()
        profiles.path(self.root).unlink()
        commands, said = self.settle()
        self.assertEqual(
            [
                ['config', 'rm', 'osd', 'osd_mclock_profile'],
                ['config-key', 'rm', 'trove-ceph-bench/profile'],
            ],
            commands,
        )
        self.assertEqual('60', (self.sys / 'vm/swappiness').read_text())
        every = set(profile().cpus)
        self.assertEqual([every, every], self.cpus())
        self.assertEqual('', said)
        self.assertEqual([], self.settle()[0])

    def test_options_of_an_earlier_plan_are_undone_as_well(self):
        self.plan(ceph=[['osd', 'osd_scrub_end_hour', '8']])
        self.settle()
        self.plan()
        self.settle()
        profiles.path(self.root).unlink()
        undone = [words[-1] for words in self.settle()[0]]
        self.assertEqual(['osd_scrub_end_hour', 'osd_mclock_profile'], undone[:2])

    def test_what_cannot_be_undone_is_an_error_and_tried_again(self):
        self.plan()
        self.settle()
        profiles.path(self.root).unlink()
        error = self.assertRaises(LabError, self.settle, rm='no quorum')
        self.assertIn('ceph config rm osd osd_mclock_profile: no quorum', str(error))
        self.assertEqual(2, len(self.settle()[0]))

    def test_a_stopped_lab_leaves_the_kernel_as_it_was(self):
        self.plan()
        self.settle()
        self.settle()
        machine_profile.restore_kernel(self.settings)
        self.assertEqual('60', (self.sys / 'vm/swappiness').read_text())


class CommandTest(HciTestCase):
    def test_applies_and_lifts(self):
        self.plan()
        every = set(profile().cpus)
        for _ in range(2):
            self.assertIn('guests on', self.lab_hci('apply'))
            self.assertEqual([set(_CPUS[:1]), set(_CPUS[-1:])], self.cpus())
            self.assertIn('share the CPUs', self.lab_hci('lift'))
            self.assertEqual([every, every], self.cpus())

    def test_needs_a_plan(self):
        arguments = command_line._parser().parse_args(['hci', 'apply'])
        error = self.assertRaises(LabError, arguments.run, self.settings, arguments)
        self.assertIn('LAB_PROFILE=hci make lab', str(error))

    def test_all_threads_have_the_cpus(self):
        cpu_split.set_cpus(self.osd.pid, frozenset(_CPUS[:1]))
        tasks = os.listdir(f'/proc/{self.osd.pid}/task')
        self.assertEqual(4, len(tasks))
        for tid in tasks:
            self.assertEqual(set(_CPUS[:1]), os.sched_getaffinity(int(tid)))

    def test_a_cpu_that_does_not_exist_is_an_error(self):
        error = self.assertRaises(LabError, cpu_split.set_cpus, self.osd.pid, frozenset({8000}))
        self.assertIn('cannot use the CPUs [8000]', str(error))

    def test_a_process_that_is_gone_is_no_error(self):
        self.osd.kill()
        self.osd.wait()
        cpu_split.set_cpus(self.osd.pid, frozenset(_CPUS[:1]))
        self.assertEqual(frozenset(), cpu_split.cpus_of(self.osd.pid))


class StatusTest(HciTestCase):
    def rows(self):
        return {row.name: row for row in status._cpus(self.settings)}

    def test_shows_the_cpus_of_the_kernel(self):
        row = self.rows()['osd.0']
        self.assertEqual((profiles.cpu_list(_CPUS), None), (row.state, row.ok))
        self.assertIn('not divided', row.detail)
        self.plan()
        self.lab_hci('apply')
        rows = self.rows()
        self.assertEqual((str(_CPUS[0]), True), (rows['osd.0'].state, rows['osd.0'].ok))
        self.assertEqual((str(_CPUS[-1]), True), (rows['instance-1'].state, rows['instance-1'].ok))

    def test_a_guest_that_left_its_cpus_is_unhealthy(self):
        if len(_CPUS) < 2:
            self.skipTest('one CPU cannot be divided')
        self.plan()
        self.lab_hci('apply')
        cpu_split.set_cpus(self.vm.pid, frozenset(_CPUS))
        row = self.rows()['instance-1']
        self.assertFalse(row.ok)
        self.assertIn('lab/bin/lab hci apply', row.detail)
        self.lab_hci('lift')
        self.assertIsNone(self.rows()['instance-1'].ok)


class ParametersTest(HciTestCase):
    def test_the_first_value_is_kept(self):
        earlier = self.root / 'state' / 'before.json'
        for value in ('1', '5'):
            self.assertEqual({}, kernel_parameters.ensure_set(earlier, {'vm.swappiness': value}))
        self.assertEqual({'vm.swappiness': '60'}, json.loads(earlier.read_text()))
        kernel_parameters.restore(earlier)
        self.assertEqual('60', (self.sys / 'vm/swappiness').read_text())
        self.assertFalse(earlier.exists())
        kernel_parameters.restore(earlier)
