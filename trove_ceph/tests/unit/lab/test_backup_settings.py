# SPDX-License-Identifier: Apache-2.0
"""What the lab's services are told about backups is what they understand."""

from pathlib import Path

import fixtures
import jinja2
from oslo_config import cfg
from oslo_utils import importutils
from oslotest import base

from trove_ceph.conf import storage as storage_conf
from trove_ceph.conf import taskmanager as taskmanager_conf
from trove_ceph.conf import verification as verification_conf
from trove_ceph.tests.unit.lab import LAB
from trove_ceph.trove_adapter import cinder_client
from trove_ceph_tempest_plugin import config as tempest_conf

ROOTS = {'mysql_version': '9.7.4', 'path': '/var/cache/trove-ceph/mysql-rootfs-1/rootfs'}


class BackupSettingsTest(base.BaseTestCase):
    def render(self, template, **variables):
        """Return a role's template as Ansible renders it; what is not given is empty."""
        role = LAB / 'roles' / template.partition('/')[0] / 'templates'
        environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader([role, LAB / 'templates']),
            trim_blocks=True,
            undefined=jinja2.ChainableUndefined,
        )
        return environment.get_template(template.partition('/')[2]).render(**variables)

    def read(self, text, *registers):
        path = Path(self.useFixture(fixtures.TempDir()).path) / 'conf'
        path.write_text(text)
        conf = cfg.ConfigOpts()
        for register in registers:
            register(conf)
        conf([], default_config_files=[str(path)])
        return conf

    def taskmanager(self, **variables):
        text = self.render('trove/taskmanager.conf.j2', tiers_file='/etc/tiers', **variables)

        def register(conf):
            taskmanager_conf.register(conf)
            conf.register_opts([cfg.StrOpt('taskmanager_manager')])

        return self.read(text, register)

    def test_task_manager_is_ours_or_troves(self):
        ours = self.taskmanager(lab_backups='trove_ceph', lab_quiesce='ddl')
        self.assertEqual('trove_ceph.taskmanager.manager.Manager', ours.taskmanager_manager)
        self.assertEqual(
            ('ddl', '/etc/tiers'),
            (ours.trove_ceph_backup.quiesce, ours.trove_ceph_backup.tiers_file),
        )
        stock = self.taskmanager(lab_backups='stock', lab_quiesce='none')
        self.assertEqual('trove.taskmanager.manager.Manager', stock.taskmanager_manager)

    def test_api_has_our_client_of_cinder_or_troves(self):
        def register(conf):
            conf.register_opts([cfg.StrOpt('remote_cinder_client')])

        for backups, expected in (
            ('trove_ceph', cinder_client.cinder_client),
            ('stock', None),
        ):
            told = self.read(self.render('trove/trove-api.conf.j2', lab_backups=backups), register)
            named = told.remote_cinder_client
            self.assertEqual(expected, named and importutils.import_class(named))

    def storage(self, **variables):
        text = self.render('storage_service/trove-ceph-storage.conf.j2', **variables)
        return self.read(text, storage_conf.register, verification_conf.register)

    def test_backups_are_inspected_with_the_mysql_that_was_found(self):
        told = self.storage(inspecting=ROOTS, run='/opt/lab/run').trove_ceph_verification
        self.assertEqual({'9.7.4': ROOTS['path']}, told.mysqld_roots)
        self.assertEqual('/opt/lab/run/verification', told.directory)
        self.assertGreaterEqual(told.memory_mib, 512)

    def test_nothing_is_inspected_where_there_is_none(self):
        self.assertEqual({}, self.storage(inspecting={}).trove_ceph_verification.mysqld_roots)

    def test_scenarios_of_backups_follow_the_setting(self):
        for backups, expected in (('trove_ceph', True), ('stock', False)):
            text = self.render(
                'tempest/tempest.conf.j2',
                lab_backups=backups,
                storage_backends=[{'name': 'nvme', 'pool': 'p', 'iops': {}}],
            )

            def register(conf):
                conf.register_opts(tempest_conf.OPTS, group=tempest_conf.GROUP)

            self.assertEqual(expected, self.read(text, register).trove_ceph.backups)
