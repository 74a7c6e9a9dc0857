# SPDX-License-Identifier: Apache-2.0
"""The configuration of a lab with one and with two compute hosts."""

import configparser

from trove_ceph.tests.unit.lab.test_backup_settings import SettingsTestCase


class SecondComputeSettingsTest(SettingsTestCase):
    def nova(self, second_compute):
        text = self.render('nova/nova.conf.j2', lab_second_compute=second_compute)
        parser = configparser.RawConfigParser(strict=False)
        parser.read_string(text)
        return text, parser['DEFAULT']

    def test_nova_notices_a_host_that_is_down_sooner_if_there_are_two(self):
        _, one = self.nova(0)
        self.assertEqual(('20', '120'), (one['report_interval'], one['service_down_time']))
        _, two = self.nova(1)
        self.assertEqual(('10', '60'), (two['report_interval'], two['service_down_time']))

    def test_with_one_host_the_conditions_leave_no_trace(self):
        text, _ = self.nova(0)
        self.assertIn('retries = 300\nreport_interval = 20\nservice_down_time = 120\n\n[api]', text)

    def test_tempest_lets_hosts_fail_only_if_there_are_two(self):
        names = {'server_command', 'host_command', 'failing_host', 'service_command'}
        found = []
        for has_second_host in (False, True):
            text = self.render('tempest/tempest.conf.j2', has_second_host=has_second_host)
            found.append(names & {line.partition(' = ')[0] for line in text.splitlines()})
        self.assertEqual([set(), names], found)
