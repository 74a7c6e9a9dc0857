# SPDX-License-Identifier: Apache-2.0
"""A tenant deletes the database; an operator finds none of its resources in any service."""

import time

from tempest import config
from tempest.lib import decorators

from trove_ceph_tempest_plugin.tests import base

CONF = config.CONF


class DeletionScenario(base.DatabaseTest):
    # The name sorts last, because later scenarios of the class would need a new database.
    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a011')
    @decorators.attr(type='smoke')
    def test_vanishes_when_deleted(self):
        """Nothing is left in Trove, Nova, Cinder, Neutron and, if accessible, Ceph."""
        traces = self.traces_of(self.instance_id)
        counts = traces.counts()
        self.assertGreater(min(counts['ports'], counts['security_groups']), 0, counts)
        began = time.monotonic()
        self.client.delete_resource('instances', self.instance_id)
        remaining = self.wait_until_empty(traces.remaining, CONF.trove_ceph.delete_timeout_sec)
        with_ceph = bool(self.cluster and self.expected)
        elapsed = round(time.monotonic() - began, 1)
        self.record('deletion', {'seconds': elapsed, 'ceph_asked': with_ceph, **counts})
        self.assertEqual([], remaining)
