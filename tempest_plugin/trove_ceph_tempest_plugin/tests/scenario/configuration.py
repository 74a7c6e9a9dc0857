# SPDX-License-Identifier: Apache-2.0
"""A tenant attaches a configuration group to the server and detaches it."""

from tempest.lib import decorators

from trove_ceph_tempest_plugin.tests import base

DYNAMIC = {'max_connections': 77}
NEEDS_RESTART = {'innodb_read_io_threads': 7}


class ConfigurationScenario(base.DatabaseTest):
    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a007')
    def test_configuration_dynamic(self):
        """A dynamic parameter takes effect at once, and is reset by the detachment."""
        (name, value), before = *DYNAMIC.items(), self.database.variable(*DYNAMIC)
        uptime = self.database.uptime_sec()
        self._attach(DYNAMIC)
        self.assertEqual(str(value), self.database.variable(name))
        self._detach()
        self.assertEqual(before, self.database.variable(name))
        self.assertGreaterEqual(self.database.uptime_sec(), uptime)

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a008')
    def test_configuration_with_restart(self):
        """A static parameter takes effect after the restart that Trove requires."""
        (name, value), before = *NEEDS_RESTART.items(), self.database.variable(*NEEDS_RESTART)
        self._attach(NEEDS_RESTART, status='RESTART_REQUIRED')
        self.assertEqual(before, self.database.variable(name))
        self.record('restart', {'seconds_to_healthy': self.act({'restart': {}})})
        self.assertEqual(str(value), self.database.variable(name))
        self._detach(status='RESTART_REQUIRED')
        self.act({'restart': {}})
        self.assertEqual(before, self.database.variable(name))

    def _attach(self, values, status='ACTIVE'):
        instance = self.client.get_resource('instances', self.instance_id)['instance']
        group = self.create_config(
            self.get_resource_name('config'),
            values,
            self.datastore,
            instance['datastore']['version'],
        )['configuration']
        self.addCleanup(self.client.delete_resource, 'configurations', group['id'])
        self.addCleanup(self._detach_if_attached)
        self.attach_config(self.instance_id, group['id'])
        self.wait_for_instance_status(self.instance_id, expected_status=[status])

    def _detach(self, status='ACTIVE'):
        self.detach_config(self.instance_id)
        self.wait_for_instance_status(self.instance_id, expected_status=[status])

    def _detach_if_attached(self):
        instance = self.client.get_resource('instances', self.instance_id)['instance']
        if 'configuration' in instance:
            self.detach_config(self.instance_id)
