# SPDX-License-Identifier: Apache-2.0
"""Create replicas, and compare them with their source."""

import time
from collections.abc import Callable

from tempest import config
from tempest.lib import exceptions

from trove_ceph.storage import image_types
from trove_ceph_tempest_plugin import equality, images, ledger, replicas
from trove_ceph_tempest_plugin.tests import base

CONF = config.CONF
#: Commits before an operation, and after it.
COMMITS = 50
COMMITS_TIMEOUT_SEC = 300
#: Whether commits wait until a replica has received them.
SEMI_SYNC_STATUS = 'Rpl_semi_sync_source_status'


class ReplicationTestCase(base.DatabaseTest):
    """Base class of the scenarios of replicas; the database of the class is their source."""

    def setUp(self):
        super().setUp()
        self.timeout_sec = CONF.trove_ceph.replica_timeout_sec
        self.replicas = replicas.Replicas(self.client, self.timeout_sec)
        if not self.replicas.are_offered():
            raise self.skipException("trove-api has not loaded this project's extension")

    def create_replicas(self, count: int = 1) -> list[str]:
        """Create replicas of the source with one request; test cleanup deletes them.

        :returns: their ids, once all of them are healthy
        """
        began = time.monotonic()
        self.create_instance(replica_of=self.instance_id, replica_count=count)
        source = self.client.get_resource('instances', self.instance_id)['instance']
        found = [one['id'] for one in source['replicas']]
        self.addCleanup(self._delete, found)
        self.assertEqual(count, len(found))
        for one in found:
            self.wait_for_instance_status(
                one, expected_op_status=['HEALTHY'], timeout=self.timeout_sec
            )
        self.record('creation', {'seconds_to_healthy': round(time.monotonic() - began, 1)})
        return found

    def _delete(self, instance_ids):
        """Delete instances; first those that follow another one, also the source of the class."""
        following = [one for one in (self.instance_id, *instance_ids) if self.source_of(one)]
        for one in dict.fromkeys([*following, *instance_ids]):
            self.wait_for_instance_status(one, need_delete=True, expected_status='DELETED')

    def source_of(self, instance_id: str) -> str | None:
        """Return the id of the source of an instance; None: it has none, or does not exist."""
        try:
            instance = self.client.get_resource('instances', instance_id)['instance']
        except exceptions.NotFound:
            return None
        return instance.get('replica_of', {}).get('id')

    def wait_for_source(self, instance_id: str, source_id: str | None) -> None:
        """Wait until an instance follows another one, or none."""

        def differing():
            found = self.source_of(instance_id)
            return [] if found == source_id else [found]

        self.assertEqual([], self.wait_for(differing))

    def wait_until_commits_wait(self) -> None:
        """Wait until commits on the source wait for a replica."""

        def differing():
            status = self.database.status(SEMI_SYNC_STATUS)
            return [] if status == 'ON' else [status]

        self.assertEqual([], self.wait_for(differing))

    def start_ledger(self) -> ledger.Ledger:
        """Return a client that commits to the source when it is entered."""
        return ledger.Ledger(self.database)

    def assert_equal(self, replica_id: str, source_id: str | None = None) -> None:
        """Assert that a replica catches up, and has the rows and transactions of its source.

        No client may commit.

        :param source_id: None: the instance of the class
        """
        source = self.database_of(source_id) if source_id else self.database
        pair = equality.Equality(source, self.database_of(replica_id))
        pair.wait_until_caught_up(self.timeout_sec)
        self.assertEqual('', pair.errant())
        self.assertEqual([], pair.faults())
        shown = self.replicas.wait_until_current(replica_id)
        self.record(
            'replica', {name: shown[name] for name in ('lag_sec', 'own_bytes', 'clone_depth')}
        )

    def assert_given_up(self, new_source_id: str, follower_id: str, entries: ledger.Ledger) -> None:
        """Assert that a replica is the source in place of that of the class, and lacks no commit.

        It becomes the database of the test.

        :param follower_id: the other replica
        :param entries: what was committed to the former source
        """
        self.wait_for_instance_status(
            self.instance_id, expected_status='ERROR', timeout=self.timeout_sec
        )
        new_source = self.database_of(new_source_id)
        self.assertEqual([], entries.faults(new_source))
        self.database = new_source
        self.write_rows()
        self.assert_equal(follower_id, source_id=new_source_id)
        self._delete_given_up()

    def _delete_given_up(self):
        """Delete the former source, as a tenant does; it has the status ERROR until it is gone.

        The clean-up of trove-tempest-plugin takes this status for the failure of a deletion.
        """
        self.client.delete_resource('instances', self.instance_id)

        def left():
            listed = self.client.list_resources('instances')['instances']
            return [one['id'] for one in listed if one['id'] == self.instance_id]

        self.assertEqual([], self.wait_for(left))

    def describe_image(self, instance_id: str) -> image_types.ImageFacts | None:
        """Return the facts of an instance's image; None: Ceph is not accessible."""
        expected = self.placement_of(instance_id)
        if not (self.cluster and expected):
            return None
        instance = self.admin_client.get_resource('instances', instance_id)['instance']
        cluster = images.Images(CONF.trove_ceph.ceph_conf, CONF.trove_ceph.ceph_user)
        return cluster.describe(
            image_types.ImageRef(expected.pool, f'volume-{instance["volume_id"]}')
        )

    def assert_vanishes(self, collected: list) -> None:
        """Assert that nothing is left of deleted instances.

        :param collected: their traces, from before the deletion
        """
        self.assertEqual(
            [], self.wait_for(lambda: [line for one in collected for line in one.remaining()])
        )

    def wait_for(self, list_remaining: Callable[[], list]) -> list:
        """Wait until a list is empty, or the time of replicas is over; return it."""
        return self.wait_until_empty(list_remaining, self.timeout_sec)
