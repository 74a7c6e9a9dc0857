# SPDX-License-Identifier: Apache-2.0
"""Templates and configuration group rules, read as Trove's control plane does."""

import json
import pathlib
from unittest import mock

import fixtures
from oslotest import base
from trove.common import cfg, exception, template, utils
from trove.configuration import service as configuration_service

from trove_ceph.guestagent import server_config
from trove_ceph.mysql import tuning

CONF = cfg.CONF
TEMPLATES = pathlib.Path(__file__).resolve().parents[4] / 'etc' / 'trove' / 'templates'
RULES = TEMPLATES / 'mysql' / '9' / 'validation-rules.json'
FLAVOR = {'ram': 4096, 'vcpus': 2}
#: Backups and replicas depend on these, so they cannot be overridden.
PROTECTED = {
    'innodb_doublewrite',
    'innodb_flush_method',
    'innodb_data_file_path',
    'log_bin',
    'gtid_mode',
    'enforce_gtid_consistency',
    'log_replica_updates',
    'datadir',
    'tmpdir',
    'server_id',
    'performance_schema',
}


class TemplateTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        CONF.set_override('template_path', str(TEMPLATES))
        self.addCleanup(CONF.clear_override, 'template_path')
        self.useFixture(
            fixtures.MonkeyPatch('trove.common.template.ENV', utils.build_jinja_environment())
        )

    def render(self, version, kind=template.SingleInstanceConfigTemplate):
        datastore = mock.Mock(datastore_name='mysql', manager='mysql', version=version)
        datastore.name = version
        return kind(datastore, FLAVOR, 'an-instance')

    def test_each_supported_version_gets_the_same_file(self):
        texts = {self.render(version).render() for version in ('9.7.4', '9.0.1', '8.4.6')}

        self.assertEqual(1, len(texts))

    def test_other_versions_keep_troves_template(self):
        self.assertIn('innodb_log_file_size', self.render('8.0.40').render())

    def test_flavor_reaches_the_guest(self):
        text = self.render('9.7.4').render()

        self.assertEqual((4096, 2), server_config._flavor_facts(text))

    def test_flavor_object_as_nova_returns_it(self):
        flavor = mock.Mock(spec=['ram', 'vcpus'], ram=2048, vcpus=1)
        subject = self.render('9.7.4')
        subject.flavor_dict = flavor

        self.assertEqual((2048, 1), server_config._flavor_facts(subject.render()))

    def test_settings_are_durable_and_allow_replicas(self):
        settings = dict(self.render('9.7.4').render_dict())

        expected = {
            'innodb_flush_log_at_trx_commit': 1,
            'sync_binlog': 1,
            'innodb_doublewrite': 'ON',
            'innodb_flush_method': 'O_DIRECT',
            'gtid_mode': 'ON',
            'enforce_gtid_consistency': 'ON',
            'log_bin': 'mysql-bin',
            'skip_name_resolve': 'ON',
        }
        self.assertEqual(expected, {name: settings.get(name) for name in expected})

    def test_no_setting_is_in_both_places(self):
        fixed = set(dict(self.render('9.7.4').render_dict()))
        for ram in (768, 65536):
            computed = tuning.tune(tuning.Machine(ram, 4, 102400, 3000)).mysqld_options()
            self.assertEqual(set(), fixed & (set(computed) | {'server_id'}))

    def test_includes_follow_the_last_section(self):
        self.assertEqual(
            '!includedir /etc/mysql/conf.d/', self.render('9.7.4').render().splitlines()[-1]
        )

    def test_replication_files_agree_with_the_settings(self):
        birth = dict(self.render('9.7.4').render_dict())
        source = self.render('9.7.4', template.ReplicaSourceConfigTemplate).render_dict()

        for name, value in dict(source).items():
            self.assertEqual(birth[name], value)
        replica = self.render('8.4.6', template.ReplicaConfigTemplate).render_dict()
        self.assertEqual({'read_only': 'ON'}, dict(replica))


class ValidationRulesTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.rules = json.loads(RULES.read_text())['configuration-parameters']
        self.stored = [
            mock.Mock(
                data_type=rule['type'],
                # Trove's database columns are strings.
                min_size=str(rule['min']) if 'min' in rule else None,
                max_size=str(rule['max']) if 'max' in rule else None,
            )
            for rule in self.rules
        ]
        for stored, rule in zip(self.stored, self.rules, strict=True):
            stored.name = rule['name']

    def validate(self, **values):
        version = mock.Mock(datastore_name='mysql')
        configuration_service.ConfigurationsController._validate_configuration(
            values, version, self.stored
        )

    def test_well_formed(self):
        names = [rule['name'] for rule in self.rules]

        self.assertEqual(sorted(set(names)), names)
        for rule in self.rules:
            self.assertIn(rule['type'], ('integer', 'float', 'boolean', 'string'))
            self.assertIsInstance(rule['restart_required'], bool)
            self.assertEqual('min' in rule, rule['type'] in ('integer', 'float'), rule['name'])

    def test_computed_sizes_can_be_overridden(self):
        names = {rule['name'] for rule in self.rules}
        computed = tuning.tune(tuning.Machine(65536, 16, 102400, 3000)).mysqld_options()

        self.assertEqual({'innodb_buffer_pool_chunk_size'}, set(computed) - names)

    def test_settings_of_backups_and_replicas_cannot_be_overridden(self):
        self.assertEqual(set(), PROTECTED & {rule['name'] for rule in self.rules})

    def test_accepts_and_refuses(self):
        self.validate(
            innodb_redo_log_capacity=1073741824,
            innodb_io_capacity=2000,
            long_query_time=0.5,
            innodb_strict_mode=True,
            sql_mode='STRICT_TRANS_TABLES',
            autocommit=1,
        )
        for values in (
            {'innodb_log_file_size': 50000000},
            {'innodb_io_capacity': 10},
            {'innodb_flush_log_at_trx_commit': 3},
            {'max_connections': 'many'},
            {'gtid_mode': 'OFF'},
        ):
            self.assertRaises(
                exception.UnprocessableEntity, lambda given=values: self.validate(**given)
            )
