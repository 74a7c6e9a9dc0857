# SPDX-License-Identifier: Apache-2.0
"""The versions of service and caller: what is pinned, and how a difference is reported."""

import inspect

import fixtures
import oslo_messaging as messaging
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.storage import image_types
from trove_ceph.storage_service import endpoint, rpcapi
from trove_ceph.tests.unit.storage_service import bus_case

#: The verbs and their arguments, as the version of the interface names them.
PINNED = (
    '2.1',
    {
        'cancel': ['operation_id'],
        'clone': ['snapshot', 'image', 'qos', 'options'],
        'create_snapshot': ['snapshot'],
        'describe': ['image', 'with_usage'],
        'find_job': ['operation_id'],
        'list_images': ['pool', 'prefix', 'after', 'limit'],
        'list_jobs': [],
        'list_trash': ['pool'],
        'remove_snapshot': ['snapshot'],
        'rename_snapshot': ['snapshot', 'name'],
        'restore': ['pool', 'image_id', 'name'],
        'set_qos': ['image', 'qos'],
        'start': ['operation_id', 'work'],
        'survey_jobs': [],
        'trash': ['image', 'image_id'],
        'unfence': ['image'],
        'usage': ['pool'],
        'usage_of_tier': ['tier'],
        'version': [],
    },
)


class PinnedTest(base.BaseTestCase):
    def test_a_change_of_a_verb_changes_the_version(self):
        verbs = {
            name: list(inspect.signature(getattr(endpoint.Endpoint, name)).parameters)[1:]
            for name in endpoint.permissions_of(endpoint.Endpoint)
        }
        self.assertEqual(PINNED, (endpoint.VERSION, verbs))

    def test_the_caller_needs_no_more_than_the_service_of_its_release_has(self):
        needed, offered = (
            tuple(map(int, version.split('.'))) for version in (rpcapi.VERSION, endpoint.VERSION)
        )
        self.assertEqual(needed[0], offered[0])
        self.assertLessEqual(needed, offered)


class VersionsTest(bus_case.BusTestCase):
    """A caller meets a service of another release, on a bus that sends exceptions as text."""

    url = 'kombu+memory:////'

    def serve_version(self, version):
        """Start a copy of the service with this version of its interface."""
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove_ceph.storage_service.receiver.Receiver.target',
                messaging.Target(version=version),
            )
        )
        self.useFixture(
            fixtures.MonkeyPatch('trove_ceph.storage_service.endpoint.VERSION', version)
        )
        return self.serve('one')

    def call(self, needed):
        """Create a snapshot as a caller that needs this version."""
        with fixtures.MonkeyPatch('trove_ceph.storage_service.rpcapi.VERSION', needed):
            api = rpcapi.StorageAPI(self.connection, timeout_sec=bus_case.TIMEOUT_SEC)
        return api.create_snapshot(self.image.snapshot('t'))

    def refused(self, needed):
        error = self.assertRaises(exceptions.VersionMismatchError, self.call, needed)
        facts = self.world.storage.describe(self.image)
        self.assertIsNone(facts.find_snapshot('t'))
        return str(error)

    def test_an_older_service_tells_its_version(self):
        self.serve_version('2.1')
        self.assertEqual(
            'create_snapshot: trove-ceph-storage has RPC version 2.1, and this caller needs 2.3 or '
            'a later minor version; it is older: upgrade and restart each trove-ceph-storage',
            self.refused('2.3'),
        )

    def test_a_service_from_before_the_version_was_told(self):
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove_ceph.storage_service.endpoint.Endpoint.version', fixtures.MonkeyPatch.delete
            )
        )
        self.serve_version('2.0')
        self.assertIn('has RPC version 2.0, and this caller needs 2.1', self.refused('2.1'))

    def test_a_service_of_the_major_version_before(self):
        self.serve_version('2.4')
        message = self.refused('3.0')
        self.assertIn('has RPC version 2.4, and this caller needs 3.0', message)
        self.assertIn('upgrade and restart each trove-ceph-storage', message)

    def test_a_service_of_the_next_major_version(self):
        self.serve_version('3.1')
        message = self.refused('2.1')
        self.assertIn('has RPC version 3.1, and this caller needs 2.1; upgrade', message)
        self.assertIn('restart the caller, trove-taskmanager or trove-ceph-manage', message)

    def test_a_service_that_is_far_away(self):
        self.serve_version('7.0')
        self.assertIn('has no RPC version near 2.1', self.refused('2.1'))

    def test_a_newer_service_serves_an_older_caller(self):
        self.serve_version('2.8')
        self.assertEqual('t', self.call('2.1').name)

    def test_the_request_succeeds_after_the_upgrade(self):
        old = self.serve_version('2.1')
        self.refused('2.2')
        old.stop()
        self.serve_version('2.2')
        self.assertEqual('t', self.call('2.2').name)

    def test_only_one_copy_is_older(self):
        self.serve_version('2.2')
        api = rpcapi.StorageAPI(self.connection, timeout_sec=bus_case.TIMEOUT_SEC)
        bus = api._client._bus
        answers = iter(['older'])

        class OneOlder:
            def prepare(self, **options):
                if next(answers, None):
                    raise messaging.UnsupportedVersion('2.1')
                return bus.prepare(**options)

        api._client._bus = OneOlder()
        error = self.assertRaises(exceptions.VersionMismatchError, api.list_jobs)
        self.assertIn('has RPC version 2.2, and this caller needs 2.1', str(error))
        self.assertIn('a copy of it is older: upgrade and restart each', str(error))

    def test_version(self):
        self.serve('one')
        self.assertEqual(endpoint.VERSION, self.api.version())
        self.assertIsInstance(self.api.describe(self.image), image_types.ImageFacts)


class SameProcessTest(VersionsTest):
    """The same, on a bus that delivers the exceptions of the service as they are."""

    url = 'fake://'
