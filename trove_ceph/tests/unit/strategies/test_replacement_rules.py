# SPDX-License-Identifier: Apache-2.0
"""Which servers can be replaced, and how a request for it looks."""

import dataclasses
import datetime

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.db.replacement_record import (
    FailoverCause,
    ReplacementKind,
    ReplacementState,
    RequestedBy,
)
from trove_ceph.strategies.replacement import requests, rules
from trove_ceph.strategies.replacement.dependencies import InstanceFacts

NOW = datetime.datetime(2026, 1, 1)
SECOND = datetime.timedelta(seconds=1)
FAILED = InstanceFacts(
    instance_id='i',
    project_id='p',
    name='db1',
    volume_id='volume',
    server_id='server',
    flavor_id='small',
    version_id='version',
    task='NONE',
    service_status='SHUTDOWN',
    agent_seen_at=NOW - 600 * SECOND,
)


class WhyNotTest(base.BaseTestCase):
    def why_not(self, is_forced=False, own_task=None, **values):
        return rules.why_not(dataclasses.replace(FAILED, **values), is_forced, NOW, own_task)

    def test_instance_that_failed(self):
        self.assertIsNone(self.why_not())
        self.assertIsNone(self.why_not(task='RESTART_REQUIRED'))
        for silent_since in (None, NOW - (rules.SEEN_SEC + 1) * SECOND):
            self.assertIsNone(self.why_not(service_status='HEALTHY', agent_seen_at=silent_since))

    def test_refused_even_if_forced(self):
        for expected, values in (
            ('is deleted', {'is_deleted': True}),
            ('is deleted', {'task': 'DELETING'}),
            ('has the task RESIZING', {'task': 'RESIZING'}),
            ('another guest agent', {'has_our_guest_agent': False}),
            ('no volume', {'volume_id': None}),
            ('no server', {'server_id': None}),
            ('still being created', {'service_status': 'BUILDING'}),
            ('cluster', {'is_in_cluster': True}),
            ('is being promoted', {'source_id': 's', 'source_change': 'is being promoted'}),
            ('being backed up', {'is_being_backed_up': True}),
        ):
            reason = self.why_not(is_forced=True, **values)
            self.assertIn(expected, reason)
            self.assertIn('instance i', reason)

    def test_backup_of_an_agent_that_died(self):
        """Such as one in Swift, which does not end by itself."""
        backup = {'is_being_backed_up': True, 'is_agent_backing_up': True}
        self.assertIsNone(self.why_not(**backup))
        self.assertIsNone(self.why_not(agent_seen_at=None, **backup))
        self.assertIn('being backed up', self.why_not(agent_seen_at=NOW, **backup))

    def test_healthy_instance_only_if_forced(self):
        healthy = {'service_status': 'HEALTHY', 'agent_seen_at': NOW - rules.SEEN_SEC * SECOND}
        self.assertIn('is healthy', self.why_not(**healthy))
        self.assertIsNone(self.why_not(is_forced=True, **healthy))

    def test_sources_and_replicas(self):
        self.assertIsNone(self.why_not(source_id='s'))
        self.assertIsNone(self.why_not(is_being_cloned=True))
        # Their source has failed as well, such as with its host.
        self.assertIsNone(self.why_not(source_id='s', source_status='SHUTDOWN'))

    def test_healthy_source_that_is_being_cloned(self):
        healthy = {'service_status': 'HEALTHY', 'agent_seen_at': NOW}
        reason = self.why_not(is_forced=True, is_being_cloned=True, **healthy)
        self.assertIn('is being cloned for a new replica', reason)

    def test_healthy_replica_whose_source_does_not_serve(self):
        """A restart of its MySQL would discard what only its relay log has."""
        replica = {'service_status': 'HEALTHY', 'agent_seen_at': NOW, 'source_id': 's'}
        serving = {'source_status': 'HEALTHY', 'source_seen_at': NOW}
        self.assertIsNone(self.why_not(is_forced=True, **replica, **serving))
        for values in (
            {'source_status': 'SHUTDOWN'},
            {'source_status': 'BUILDING'},
            {'source_seen_at': NOW - (rules.SEEN_SEC + 1) * SECOND},
            {'source_seen_at': None},
        ):
            reason = self.why_not(is_forced=True, **replica, **serving | values)
            self.assertIn('its source s does not serve', reason)

    def test_new_source_that_an_ejection_left_read_only(self):
        """An ejected source has the same task."""
        task = {'task': 'EJECTION_ERROR'}
        self.assertIsNone(self.why_not(is_unfinished_source=True, **task))
        self.assertIn('EJECTION_ERROR', self.why_not(**task))
        self.assertIn(
            'EJECTION_ERROR', self.why_not(is_unfinished_source=True, own_task='MIGRATING', **task)
        )

    def test_own_task(self):
        self.assertIsNone(self.why_not(task='MIGRATING', own_task='MIGRATING'))
        self.assertIn('MIGRATING', self.why_not(task='MIGRATING'))
        # An operator has reset it.
        self.assertIn('NONE', self.why_not(task='NONE', own_task='MIGRATING'))


class RetryTest(base.BaseTestCase):
    def test_pauses(self):
        pauses = [rules.retry_sec(attempts) for attempts in range(1, 7)]
        self.assertEqual([5, 10, 20, 40, 60, 60], pauses)
        self.assertEqual(60, rules.retry_sec(10**6))

    def test_guests_are_not_used_up(self):
        found = [attempts for attempts in range(31) if rules.may_claim_guest(attempts)]
        self.assertEqual([0, 1, 2, 10, 20, 30], found)


class RequestsTest(base.BaseTestCase):
    def test_failover(self):
        made = requests.new_failover(
            FAILED, RequestedBy.OPERATOR, 'fan broken', True, FailoverCause.MAINTENANCE, NOW
        )
        self.assertEqual(
            (ReplacementKind.FAILOVER, ReplacementState.REQUESTED, FailoverCause.MAINTENANCE),
            (made.kind, made.state, made.cause),
        )
        self.assertEqual(
            ('i', 'p', 'small', 'version', 'volume', 'server', 'fan broken', True),
            (
                made.instance_id,
                made.project_id,
                made.flavor_id,
                made.version_id,
                made.volume_id,
                made.old_server_id,
                made.reason,
                made.is_forced,
            ),
        )
        other = requests.new_failover(
            FAILED, RequestedBy.OPERATOR, '', False, FailoverCause.REQUEST, NOW
        )
        self.assertNotEqual(made.replacement_id, other.replacement_id)

    def test_resize(self):
        healthy = dataclasses.replace(
            FAILED, task='RESIZING', service_status='HEALTHY', agent_seen_at=NOW
        )
        made = requests.new_resize(healthy, 'large', 1024, NOW)
        self.assertEqual(
            (ReplacementKind.RESIZE, RequestedBy.TENANT, 'large', FAILED.flavor_id, 1024),
            (
                *(made.kind, made.requested_by, made.flavor_id),
                *(made.former_flavor_id, made.ram_growth_mib),
            ),
        )

    def test_refused(self):
        healthy = dataclasses.replace(FAILED, service_status='HEALTHY', agent_seen_at=NOW)
        refused = exceptions.ReplacementRefusedError
        error = self.assertRaises(
            refused,
            requests.new_failover,
            *(healthy, RequestedBy.TENANT, '', False, FailoverCause.REQUEST, NOW),
        )
        self.assertIn('is healthy', str(error))
        self.assertRaises(refused, requests.new_resize, healthy, 'large', 1024, NOW)
