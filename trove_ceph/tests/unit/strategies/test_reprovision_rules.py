# SPDX-License-Identifier: Apache-2.0
"""Which replicas can be re-provisioned."""

import dataclasses

from oslotest import base

from trove_ceph.db.replacement_record import ReplacementKind
from trove_ceph.strategies.replacement.dependencies import InstanceFacts
from trove_ceph.strategies.replication import reprovision_rules as rules

SOURCE = InstanceFacts(
    instance_id='source',
    project_id='p',
    name='db1',
    volume_id='volume-source',
    server_id='server-source',
    flavor_id='small',
    version_id='version',
    task='NONE',
    service_status='HEALTHY',
)
REPLICA = dataclasses.replace(
    SOURCE,
    instance_id='replica',
    volume_id='volume',
    server_id='server',
    task=rules.TASK,
    source_id='source',
)


class WhyNotTest(base.BaseTestCase):
    def why_not(self, source=SOURCE, **values):
        return rules.why_not(dataclasses.replace(REPLICA, **values), source, 'source')

    def test_replica_that_can_be(self):
        self.assertIsNone(self.why_not())
        # The status of the replica does not matter: a broken one gets a fresh clone.
        self.assertIsNone(self.why_not(service_status='SHUTDOWN'))

    def test_replica_that_cannot_be(self):
        for expected, values in (
            ('has the task NONE', {'task': 'NONE'}),
            ('another guest agent', {'has_our_guest_agent': False}),
            ('no volume', {'volume_id': None}),
            ('no server', {'server_id': None}),
            ('cluster', {'is_in_cluster': True}),
            ('being backed up', {'is_being_backed_up': True}),
            ('follows no instance', {'source_id': None}),
            ('follows other', {'source_id': 'other'}),
        ):
            reason = self.why_not(**values)
            self.assertIn(expected, reason)
            self.assertIn('instance replica', reason)

    def test_source_that_cannot_be_cloned(self):
        for expected, values in (
            ('is deleted', {'is_deleted': True}),
            ('is deleted', {'task': 'DELETING'}),
            *(
                ('is getting another server', {'task': kind.task, 'service_status': 'BUILDING'})
                for kind in ReplacementKind
            ),
            ('still being created', {'service_status': 'BUILDING'}),
            ('still being created', {'volume_id': None}),
        ):
            source = dataclasses.replace(SOURCE, **values)
            self.assertIn(expected, self.why_not(source))
        self.assertIn('is deleted', self.why_not(None))

    def test_task_of_the_request_does_not_matter_before_it(self):
        idle = dataclasses.replace(REPLICA, task='NONE')
        self.assertIsNone(rules.why_unfit(idle, SOURCE, 'source'))
