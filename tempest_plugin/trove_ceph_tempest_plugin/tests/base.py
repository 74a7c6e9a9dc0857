# SPDX-License-Identifier: Apache-2.0
"""The base class of all scenarios: a database on a volume type, and figures in the result."""

import re
import time
import unittest
import uuid
from collections.abc import Callable

import testtools.content
from oslo_log import log as logging
from tempest import config
from tempest.lib import exceptions
from trove_tempest_plugin.tests import base, constants

from trove_ceph_bench import model
from trove_ceph_tempest_plugin import ceph, load, mysql, placement, traces

CONF = config.CONF
LOG = logging.getLogger(__name__)
ROWS = 20
POLL_SEC = 2


class DatabaseTest(base.BaseTroveTest):
    """Scenarios that share the database of their class; recreate it if a test deleted it.

    To add a scenario, write a subclass with test methods, and add it to the bases in
    ``scenario/test_database.py``, or write a module with its own :func:`on_volume_types`.
    """

    datastore = 'mysql'
    volume_type = None

    @classmethod
    def skip_checks(cls):
        super().skip_checks()
        if not cls.volume_type:
            raise cls.skipException('[trove_ceph] volume_types is empty')

    @classmethod
    def setup_clients(cls):
        super().setup_clients()
        options = CONF.trove_ceph
        cls.cluster = ceph.Ceph(options.ceph_conf, options.ceph_user) if options.ceph_conf else None
        cls.expected = placement.parse(options.placement).get(cls.volume_type)

    @classmethod
    def resource_setup(cls):
        began = time.monotonic()
        super().resource_setup()
        cls.created_sec = round(time.monotonic() - began, 1)

    @classmethod
    def create_instance(
        cls,
        name=None,
        datastore_version=None,
        database=constants.DB_NAME,
        username=constants.DB_USER,
        password=constants.DB_PASS,
        backup_id=None,
        replica_of=None,
        create_user=True,
        volume=None,
        replica_count=1,
    ):
        """Request an instance on this class's volume type; class cleanup deletes it.

        :param replica_count: number of replicas; one of them is returned, and deleted by cleanup
        :param volume: overrides ``size`` in GiB, or ``type``
        """
        body = {
            'name': name or cls.get_resource_name('instance'),
            'nics': [{'net-id': cls.private_network}],
            'access': {'is_public': True},
        }
        if replica_of:
            body |= {'replica_of': replica_of, 'replica_count': replica_count}
        else:
            body |= cls._creation_parameters(datastore_version, volume or {})
            if create_user:
                schema = {'name': database}
                user = {'name': username, 'password': password, 'databases': [schema]}
                body |= {'databases': [schema], 'users': [user]}
        if backup_id:
            body['restorePoint'] = {'backupRef': backup_id}
        instance = cls.client.create_resource('instances', {'instance': body})['instance']
        cls.addClassResourceCleanup(
            cls.wait_for_instance_status,
            instance['id'],
            need_delete=True,
            expected_status='DELETED',
        )
        return instance

    @classmethod
    def _creation_parameters(cls, datastore_version, volume):
        options = CONF.trove_ceph
        version = datastore_version or CONF.database.default_datastore_versions.get(cls.datastore)
        datastore = {'type': cls.datastore}
        if version:  # without a version Trove uses its default
            datastore['version'] = version
        return {
            'datastore': datastore,
            'flavorRef': options.flavor_id or CONF.database.flavor_id,
            'volume': {'size': options.volume_size_gib, 'type': cls.volume_type} | volume,
        }

    def setUp(self):
        super().setUp()
        self._figures = {}
        if not self._instance_exists():
            LOG.info('A test deleted the instance of the class; creating another one')
            type(self).resource_setup()
        self.database = self.database_of(self.instance_id)
        self.database.wait_reachable(CONF.trove_ceph.connect_timeout_sec)

    def _instance_exists(self):
        try:
            self.client.get_resource('instances', self.instance_id)
        except exceptions.NotFound:
            return False
        return True

    def database_of(self, instance_id) -> mysql.Database:
        """Return the database of an instance, with the schema that all these instances have."""
        instance = self.client.get_resource('instances', instance_id)['instance']
        return mysql.Database(
            model.Address(
                host=self.get_instance_ip(instance),
                user=constants.DB_USER,
                password=constants.DB_PASS,
                database=constants.DB_NAME,
            )
        )

    def prepare_load(self, workload: str) -> load.Load:
        """Return a workload with filled tables; test cleanup drops them."""
        options = CONF.trove_ceph
        dataset = model.Dataset('scenario', options.sysbench_tables, options.sysbench_rows)
        sysbench_load = load.Load(self.database.address, workload, dataset)
        self.addCleanup(sysbench_load.cleanup)
        sysbench_load.prepare()
        return sysbench_load

    def write_rows(self) -> list[tuple]:
        """Commit rows, and return all rows of the table."""
        self.database.query('CREATE TABLE IF NOT EXISTS kept_rows (id CHAR(32) PRIMARY KEY)')
        for _ in range(ROWS):
            self.database.query('INSERT INTO kept_rows VALUES (%s)', uuid.uuid4().hex)
        return self.rows()

    def rows(self, database: mysql.Database | None = None) -> list[tuple]:
        """Return the rows of :meth:`write_rows`, from this or another database."""
        return (database or self.database).query('SELECT id FROM kept_rows ORDER BY id')

    def record(self, name: str, figures: dict) -> None:
        """Attach figures to the result, as the detail ``figures``: a JSON object by name."""
        LOG.info('%s: %s', name, figures)
        self._figures[name] = figures
        self.addDetail('figures', testtools.content.json_content(dict(self._figures)))

    def traces_of(self, instance_id) -> traces.Traces:
        """Return the resources of an instance, with its image if Ceph is accessible."""
        expected = self.placement_of(instance_id)
        cluster = self.cluster if expected else None
        pool = expected.pool if expected else ''
        return traces.Traces(self.os_admin, self.admin_client, instance_id, cluster, pool)

    def placement_of(self, instance_id) -> placement.Expected | None:
        """Return the expected placement of an instance's volume; None: there is none for its type.

        A replica may have another volume type than its source.
        """
        instance = self.admin_client.get_resource('instances', instance_id)['instance']
        volumes = self.os_admin.volumes_client_latest
        volume = volumes.show_volume(instance['volume_id'])['volume']
        return placement.parse(CONF.trove_ceph.placement).get(volume['volume_type'])

    def act(self, action: dict, *, admin: bool = False, instance_id: str | None = None) -> float:
        """Request an action on an instance, and wait until it is healthy again.

        :param action: such as ``{'restart': {}}``
        :param admin: use the administrator's API
        :param instance_id: None: the instance of the class
        :returns: seconds until Trove reported it as healthy
        """
        began = time.monotonic()
        client, prefix = (self.admin_client, 'mgmt/') if admin else (self.client, '')
        instance_id = instance_id or self.instance_id
        client.create_resource(
            f'{prefix}instances/{instance_id}/action',
            action,
            expected_status_code=202,
            need_response=False,
        )
        self.wait_for_instance_status(instance_id, expected_op_status=['HEALTHY'])
        return round(time.monotonic() - began, 1)

    def wait_until_empty(self, list_remaining: Callable[[], list], timeout_sec: float) -> list:
        """Wait until a list is empty, or the time is over; return it."""
        began = time.monotonic()
        remaining = list_remaining()
        while remaining and time.monotonic() - began < timeout_sec:
            time.sleep(POLL_SEC)
            remaining = list_remaining()
        return remaining


def on_volume_types(loader, everywhere, first) -> unittest.TestSuite:
    """Return the tests of a class for each configured volume type.

    :param everywhere: class for every type except the first; None means no tests
    :param first: class with more scenarios, for the first type
    """
    suite = unittest.TestSuite()
    for number, volume_type in enumerate(CONF.trove_ceph.volume_types or [None]):
        scenarios = everywhere if number else first
        if not scenarios:
            break
        name = f'{scenarios.__name__}_{re.sub(r"[^0-9A-Za-z]", "_", volume_type or "none")}'
        members = {'volume_type': volume_type, '__module__': scenarios.__module__}
        suite.addTests(loader.loadTestsFromTestCase(type(name, (scenarios,), members)))
    return suite
