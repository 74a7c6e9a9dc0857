# SPDX-License-Identifier: Apache-2.0
"""The server of a source or of its replica stops during a promotion, and runs again later.

In the end one of them is the source and the other its replica, whatever the instant was, and no
acknowledged commit is lost.
"""

import random
import time

from tempest import config
from tempest.lib import decorators

from trove_ceph_tempest_plugin import ledger
from trove_ceph_tempest_plugin.tests import base
from trove_ceph_tempest_plugin.tests.scenario import failover, replication

CONF = config.CONF
COMMITS, COMMITS_TIMEOUT_SEC = replication.COMMITS, replication.COMMITS_TIMEOUT_SEC
PROMOTE = {'promote_to_replica_source': {}}
ROUNDS = 3
#: A promotion takes about so long; the server stops at an instant of it.
LATEST_STOP_SEC = 15
#: Longer than the taskmanager waits for an agent, so that a promotion may be given up meanwhile.
STOPPED_SEC = 60


class TestStoppedPromotion(failover.FailoverTestCase, replication.ReplicationTestCase):
    """A promotion whose source or replica is silent for a while."""

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a0b0')
    def test_stopped_source_or_replica(self):
        (replica_id,) = self.create_replicas()
        pair, done = [self.instance_id, replica_id], []
        for number in range(ROUNDS):
            source_id, replica_id = pair
            # A replica that is silent from the beginning must leave its source as it is.
            stopped = replica_id if number % 2 == 0 else source_id
            entries = ledger.Ledger(self.database_of(source_id))
            with entries:
                entries.wait_for_commits(COMMITS, COMMITS_TIMEOUT_SEC)
                stopped_after_sec = self._promote(replica_id, stopped)
                pair = self._wait_until_one_is_source(pair)
            done.append(
                {
                    'stopped': 'replica' if stopped == replica_id else 'source',
                    'after_sec': stopped_after_sec,
                    'promoted': pair[0] == replica_id,
                    **entries.figures(),
                }
            )
            self.record('rounds', {'completed': len(done), 'each': done})
            self.database = self.database_of(pair[0])
            self.assertEqual([], entries.faults(self.database))
            self.write_rows()
            self.assert_equal(pair[1], source_id=pair[0])

    def _promote(self, replica_id, stopped_id):
        """Request a promotion, stop a server meanwhile, and continue it; return when it stopped."""
        delay_sec = random.uniform(0, LATEST_STOP_SEC)
        server_id, host = self._server(stopped_id)
        self.client.create_resource(
            f'instances/{replica_id}/action',
            PROMOTE,
            expected_status_code=202,
            need_response=False,
        )
        time.sleep(delay_sec)
        self.hypervisors.signal('STOP', server_id, host)
        try:
            time.sleep(STOPPED_SEC)
        finally:
            self.hypervisors.signal('CONT', server_id, host)
        return round(delay_sec, 1)

    def _wait_until_one_is_source(self, pair):
        """Wait until one of two instances is the source of the other; return it, then the other."""

        def unsettled():
            if all(self._is_settled(one) for one in pair):
                return [] if self._list_sources(pair) else [f'no source among {pair}']
            return pair

        self.assertEqual([], self.wait_for(unsettled))
        (source_id,) = self._list_sources(pair)
        return [source_id, *(one for one in pair if one != source_id)]

    def _is_settled(self, instance_id):
        instance = self.client.get_resource('instances', instance_id)['instance']
        return (instance['status'], instance['operating_status']) == ('ACTIVE', 'HEALTHY')

    def _list_sources(self, pair):
        """Return the instances that follow none, if the other one follows it."""
        sources = {one: self.source_of(one) for one in pair}
        return [
            one for one in pair if sources[one] is None and one in set(sources.values()) - {None}
        ]


def load_tests(loader, tests, pattern):
    return base.on_volume_types(loader, everywhere=None, first=TestStoppedPromotion)
