# SPDX-License-Identifier: Apache-2.0
"""How facts are read: from Ceph's answers, from configuration files, and each once."""

import json
from pathlib import Path
from unittest import mock

import fixtures
import oslo_messaging as messaging
from amqp import exceptions as amqp_exceptions
from oslo_config import cfg
from oslotest import base
from trove.common import cfg as trove_cfg

from trove_ceph import exceptions
from trove_ceph.doctor import bus, cluster, measurement, settings, sources
from trove_ceph.doctor.settings import Service
from trove_ceph.storage_service import message_keys
from trove_ceph.tests.unit.doctor import facts
from trove_ceph.tests.unit.tiers import fake_ceph
from trove_ceph.tiers import ceph

ANSWERS = {
    'fsid': {'fsid': fake_ceph.FSID},
    'health detail': {
        'checks': {
            'OSD_DOWN': {
                'severity': 'HEALTH_WARN',
                'summary': {'message': '1 osds down'},
                'muted': False,
            },
            'MON_DOWN': {
                'severity': 'HEALTH_ERR',
                'summary': {'message': '1/3 mons down'},
                'muted': True,
            },
        }
    },
    'quorum_status': {
        'quorum_names': ['a'],
        'monmap': {'mons': [{'name': 'a'}, {'name': 'b'}]},
    },
    'tell mon.a config get mon_osd_blocklist_default_expire': {
        'mon_osd_blocklist_default_expire': '3600.000000'
    },
    'osd dump': {
        'pools': [{'pool': 3, 'pool_name': 'volumes'}, {'pool': 4, 'pool_name': 'new'}],
        'blocklist': {'10.0.0.1:0/1': '2026-11-24T03:00:00'},
        'require_min_compat_client': 'luminous',
        'backfillfull_ratio': 0.9,
    },
    'osd df': {
        'nodes': [
            {'id': 0, 'utilization': 71.5, 'reweight': 1, 'kb': 2, 'pgs': 128},
            {'id': 1, 'utilization': 99.0, 'reweight': 0, 'kb': 2, 'pgs': 0},
        ]
    },
    'versions': {'overall': {facts.PACIFIC: 3}},
    'pg dump pgs_brief': {
        'pg_stats': [
            {'pgid': '3.0', 'state': 'active+clean'},
            {'pgid': '3.1f', 'state': 'active+clean'},
            {'pgid': '3.2', 'state': 'down'},
            {'pgid': '9.0', 'state': 'creating'},
        ]
    },
}


class ClusterTest(base.BaseTestCase):
    def _run(self, program, *words, **_):
        self.asked = [*getattr(self, 'asked', ()), ' '.join(map(str, words[6:-2]))]
        return json.dumps(ANSWERS[self.asked[-1]])

    def test_read(self):
        expected = cluster.ClusterFacts(
            health=(cluster.HealthCheck('OSD_DOWN', False, '1 osds down'),),
            monitors=('a', 'b'),
            quorum=('a',),
            osds={0: cluster.OsdUse(0.715, 2048, 128)},
            backfillfull_ratio=0.9,
            versions={facts.PACIFIC: 3},
            blocklist=('10.0.0.1:0/1',),
            min_compat_client='luminous',
            groups={'volumes': {'active+clean': 2, 'down': 1}, 'new': {}},
        )
        self.assertEqual(expected, cluster.read(ceph.Ceph('c', 'admin', self._run)))

    def test_expiries_of_the_monitors_in_the_quorum(self):
        found = cluster.read_blocklist_expiries(ceph.Ceph('c', 'admin', self._run))
        self.assertEqual({'a': 3600.0}, found)

    def test_silent_cluster_is_waited_for_once(self):
        run = mock.Mock(side_effect=exceptions.StorageCommandError('did not end within 60 s'))
        targets = sources.Targets('t', ceph.Ceph('c', 'admin', run), 'm', {}, 'trove-manage', list)
        found = sources.Sources(targets)
        for read in (found.fsid, found.cluster, found.ceph, found.blocklist_expiries):
            self.assertRaises(exceptions.StorageCommandError, read)
        self.assertEqual(1, run.call_count)


class FilesTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.directory = Path(self.useFixture(fixtures.TempDir()).path)

    def file(self, name, text):
        path = self.directory / name
        path.write_text(text)
        return str(path)


class SettingsTest(FilesTestCase):
    def test_read(self):
        trove = self.file('trove.conf', '[DEFAULT]\nstorage_strategy = swift\n')
        more = self.file('more.conf', '[DEFAULT]\nstorage_strategy = cinder\n')
        cinder = self.file(
            'cinder.conf',
            '[DEFAULT]\nenabled_backends = a, b\n[a]\nreport_discard_supported = yes\n',
        )
        found = settings.read({Service.TROVE: [trove, more], Service.CINDER: [cinder]})
        values = {
            (one.requirement.service, one.group, one.requirement.option.name): one.value
            for one in found.values
        }
        self.assertEqual('cinder', values[Service.TROVE, 'DEFAULT', 'storage_strategy'])
        self.assertIs(True, values[Service.CINDER, 'a', 'report_discard_supported'])
        self.assertIs(False, values[Service.CINDER, 'b', 'report_discard_supported'])
        self.assertEqual('volume-%s', values[Service.CINDER, 'DEFAULT', 'volume_name_template'])
        others = {Service.TROVE_API, Service.TROVE_CONDUCTOR, Service.NOVA}
        self.assertEqual(others, set(found.unread))

    def _backends(self, text):
        cinder = self.file('cinder.conf', text)
        found = settings.read({Service.CINDER: [cinder]})
        return found, {
            (one.group, one.requirement.option.name): one.value
            for one in found.values
            if one.group != 'DEFAULT'
        }

    def test_back_ends_have_the_shared_values(self):
        _, values = self._backends(
            '[DEFAULT]\nenabled_backends = a, b, c\n'
            '[backend_defaults]\nreport_discard_supported = true\n'
            'volume_driver = cinder.volume.drivers.rbd.RBDDriver\n'
            '[a]\nreport_discard_supported = false\n[b]\n'
        )
        shared = {group: values[group, 'report_discard_supported'] for group in 'abc'}
        self.assertEqual({'a': False, 'b': True, 'c': True}, shared)
        self.assertTrue(values['c', 'volume_driver'].endswith('.RBDDriver'))
        self.assertIs(False, values['a', 'enable_deferred_deletion'])

    def test_without_back_ends_the_file_is_not_that_of_cinder_volume(self):
        for text in ('[DEFAULT]\nvolume_name_template = x-%s\n', '[DEFAULT]\nenabled_backends =\n'):
            found, values = self._backends(text)
            self.assertEqual({}, values)
            self.assertIn('no enabled_backends', found.unread[Service.CINDER])
        found, _ = self._backends('[DEFAULT]\nvolume_name_template = x-%s\n')
        (one,) = (v for v in found.values if v.requirement.option.name == 'volume_name_template')
        self.assertEqual('x-%s', one.value)

    def test_unusable_file_leaves_out_its_service_only(self):
        nova = self.file('nova.conf', '[service_user]\nsend_service_user_token = perhaps\n')
        gone = str(self.directory / 'gone.conf')
        trove = self.file('trove.conf', '')
        found = settings.read(
            {Service.TROVE: [trove], Service.NOVA: [nova], Service.CINDER: [gone]}
        )
        self.assertIn('perhaps', found.unread[Service.NOVA])
        self.assertEqual(f'{gone} is not on this host', found.unread[Service.CINDER])
        self.assertEqual({Service.TROVE}, {one.requirement.service for one in found.values})

    def test_options_are_those_of_trove(self):
        """The names, the groups and the defaults; a renamed option would be looked for in vain."""
        conf = trove_cfg.CONF
        for one in settings.REQUIREMENTS:
            if one.service not in (Service.TROVE, Service.TROVE_API, Service.TROVE_CONDUCTOR):
                continue
            if one.group == 'trove_ceph_backup':
                continue
            options = conf if one.group == 'DEFAULT' else conf[one.group]
            name = one.option.name
            self.assertIn(name, options)
            group = None if one.group == 'DEFAULT' else one.group
            conf.clear_override(name, group)
            default = conf._get_opt_info(name, conf._get_group(group) if group else None)['opt']
            self.assertEqual(default.default, one.option.default, name)

    def test_what_existing_data_depend_on_is_not_changed_under_them(self):
        """The keys of instances and the names of volumes are found by these options."""
        found = {one.option.name: one for one in settings.REQUIREMENTS if one.only_while}
        self.assertEqual(
            {
                *('inst_rpc_key_encr_key', 'volume_driver'),
                *('volume_name_template', 'snapshot_name_template'),
            },
            set(found),
        )
        key = found['inst_rpc_key_encr_key']
        self.assertIn('trove-ceph-manage instance-keys --help', key.only_while)
        self.assertEqual(('trove-api', 'trove-conductor', 'trove-taskmanager'), key.all_readers)

    def test_templates_of_the_project_are_accepted(self):
        (one,) = (r for r in settings.REQUIREMENTS if r.option.name == 'template_path')
        templates = Path(__file__).parents[4] / 'etc' / 'trove' / 'templates'
        self.assertTrue(one.holds(str(templates)))
        self.assertFalse(one.holds(str(self.directory)))


class BusTest(FilesTestCase):
    OWN = 'rabbit://caller:secret@broker:5671/trove-ceph'

    def setUp(self):
        super().setUp()
        self.keys = str(self.directory / 'keys.json')
        message_keys.create(self.keys)
        self.guest = self.file(
            'guest.conf', '[DEFAULT]\ntransport_url = rabbit://trove-guest:g@broker/trove\n'
        )
        self.connect = self.useFixture(
            fixtures.MockPatch('kombu.Connection.connect', autospec=True)
        ).mock

    def _read(self, own=OWN, user='trove'):
        text = (
            f'[DEFAULT]\ntransport_url = rabbit://{user}:t@broker/trove\n'
            f'guest_config = {self.guest}\n[trove_ceph_storage]\nkey_file = {self.keys}\n'
        )
        return bus.read([self.file('trove.conf', f'{text}transport_url = {own}\n')])

    def test_refused(self):
        for refusal in (amqp_exceptions.NotAllowed, amqp_exceptions.AccessRefused):
            self.connect.side_effect = refusal('no')
            self.assertEqual(bus.BusFacts(None, self.guest, True, False), self._read())
        (connection,) = self.connect.call_args.args
        found = (connection.hostname, connection.port, connection.userid, connection.password)
        self.assertEqual(('broker', 5671, 'trove-guest', 'g'), found)
        self.assertEqual('trove-ceph', connection.virtual_host)

    def test_let_in(self):
        self.assertIs(True, self._read().enters)

    def test_broker_that_does_not_answer(self):
        self.connect.side_effect = ConnectionRefusedError('refused')
        found = self._read()
        self.assertIsNone(found.enters)
        self.assertIn('broker:5671: refused', found.unknown_because)

    def test_transport_of_trove(self):
        found = self._read('rabbit://trove:t@broker/trove')
        self.assertIn('same virtual host', found.problem)
        self.assertIsNone(found.enters)
        self.connect.assert_not_called()

    def test_guests_with_the_user_of_trove(self):
        self.assertFalse(self._read(user='trove-guest').is_separate)

    def test_file_that_cannot_be_read(self):
        self.guest = str(self.directory / 'gone.conf')
        self.assertRaisesRegex(exceptions.InvalidConfigurationError, 'gone.conf', self._read)


FIO = {'jobs': [{'read': {'iops': 1234.4}, 'write': {'iops': 567.8}}]}


class MeasurementTest(FilesTestCase):
    TARGET = measurement.Target('ceph.conf', 'admin', 'volumes')

    def _run(self, *words, **options):
        self.ran.append([str(word) for word in words])
        if words[0] == 'fio':
            return 'a warning\n' + json.dumps(FIO)
        return ''

    def setUp(self):
        super().setUp()
        self.ran = []
        self.path = str(self.directory / 'new' / 'measurements.json')

    def test_measure(self):
        found = measurement.measure(self.TARGET, 6, 1, 64, self._run)
        self.assertEqual((1234, 568, 6), (found.read_iops, found.write_iops, found.osds))
        (create, *fio, remove) = self.ran
        self.assertEqual(['rbd', '--conf', 'ceph.conf', '--id', 'admin', 'create'], create[:6])
        self.assertEqual(['rm', '--no-progress', create[-1]], remove[5:])
        self.assertEqual(['write', 'randread', 'randwrite'], [_option(job, 'rw') for job in fio])
        for job in fio:
            image = f'{_option(job, "pool")}/{_option(job, "rbdname")}'
            self.assertEqual(create[-1], image)

    def test_image_is_removed_after_a_failure_and_an_interrupt(self):
        for stop in (exceptions.StorageCommandError('fio failed'), KeyboardInterrupt()):
            for at in range(4):
                self.ran = []

                def run(*words, stop=stop, at=at, **options):
                    self._run(*words)
                    if len(self.ran) == at + 1:
                        raise stop
                    return json.dumps(FIO)

                self.assertRaises(type(stop), measurement.measure, self.TARGET, 6, 1, 64, run)
                self.assertEqual('rm', self.ran[-1][5])

    def test_output_without_a_result(self):
        self.assertRaisesRegex(
            exceptions.StorageCommandError,
            'no result',
            *(measurement.measure, self.TARGET, 6, 1, 64, lambda *words, **_: 'engine not found'),
        )

    def test_store_and_load(self):
        self.assertEqual({}, measurement.load(self.path))
        one = measurement.Measurement('2026-11-24T03:00:00+00:00', 2.0, 1.0, 3)
        measurement.store(self.path, {'a': one})
        measurement.store(self.path, {'b': one})
        self.assertEqual({'a': one, 'b': one}, measurement.load(self.path))
        self.assertEqual(['measurements.json'], [p.name for p in Path(self.path).parent.iterdir()])

    def test_foreign_file(self):
        for text in ('{', '[]', '{"a": {"x": 1}}'):
            path = self.file('foreign.json', text)
            self.assertRaises(exceptions.InvalidConfigurationError, measurement.load, path)


def _option(job, name):
    (found,) = (word for word in job if word.startswith(f'--{name}='))
    return found.partition('=')[2]


class UrlTest(base.BaseTestCase):
    def test_each_user_is_tried_on_each_broker(self):
        conf = cfg.ConfigOpts()
        parse = messaging.TransportURL.parse
        own = parse(conf, 'rabbit://c:s@one,c:s@two:5673/trove-ceph')
        guest = parse(conf, 'rabbit://g1:x@one,g2:y@two/trove')
        with mock.patch.object(bus, '_logs_in', return_value=False) as logs_in:
            self.assertFalse(any(bus._enters(one, guest, 'v', False) for one in own.hosts))
        self.assertEqual(
            [('one', 5672, 'g1'), ('one', 5672, 'g2'), ('two', 5673, 'g1'), ('two', 5673, 'g2')],
            [
                (host, port, user.username)
                for host, port, user, *_ in (c.args for c in logs_in.call_args_list)
            ],
        )
