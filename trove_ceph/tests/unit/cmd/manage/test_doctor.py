# SPDX-License-Identifier: Apache-2.0
"""The command: what it shows, its exit status, and how it watches."""

import dataclasses
import json
from pathlib import Path

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.cmd.manage import doctor
from trove_ceph.doctor import checks, cloud_facts, measurement
from trove_ceph.doctor.settings import Service
from trove_ceph.tests.unit.cmd.manage import command
from trove_ceph.tests.unit.doctor import facts
from trove_ceph.tests.unit.tiers import world

FULL = dataclasses.replace(facts.CLUSTER, osds={0: facts.osd(0.9)})
SKEWED = facts.health('OSD_DOWN')


class DoctorTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        #: The sources of each round.
        self.rounds = [facts.FakeSources()]
        self.targets = []
        self.useFixture(fixtures.MonkeyPatch('trove_ceph.doctor.sources.Sources', self._sources))
        self.useFixture(fixtures.MonkeyPatch('trove_ceph.cmd.manage.doctor._sleep', self._sleep))

    def _sources(self, targets):
        self.targets.append(targets)
        return self.rounds.pop(0)

    def _sleep(self, seconds):
        self.slept = seconds
        if not self.rounds:
            raise KeyboardInterrupt

    def _run(self, *words, status=0):
        result = command.run('doctor', *words)
        self.assertEqual(status, result.status, result)
        return result.out

    def _rows(self, *words, status=0):
        return json.loads(self._run('-f', 'json', *words, status=status))

    def test_all_is_well(self):
        rows = self._rows()
        self.assertEqual([one.name for one in checks.ALL], [row['check'] for row in rows])
        self.assertEqual({'ok'}, {row['level'] for row in rows})

    def test_worst_first_and_status(self):
        self.rounds = [
            facts.FakeSources(
                cluster=FULL,
                missing_extensions=tuple(cloud_facts.API_LISTS),
                orphans=('image',),
                services=exceptions.ServiceUnavailableError('no answer'),
            )
        ]
        rows = self._rows(status=2)
        levels = [row['level'] for row in rows]
        self.assertEqual(
            ['error'] * 5 + ['unknown'] * 2 + ['warning'] + ['ok'] * (len(checks.ALL) - 5),
            levels,
        )
        self.assertEqual(
            {
                'level': 'error',
                'check': 'fill',
                'object': 'osd.0',
                'observed': '90.0% full',
                'expected': 'below 70%, so that Ceph can heal itself',
                'command': 'ceph osd df tree',
                'details': [],
            },
            rows[0],
        )

    def test_status_of_each_level(self):
        for sources, status in (
            (facts.FakeSources(orphans=('image',)), 1),
            (facts.FakeSources(cluster=FULL), 2),
            (facts.FakeSources(orphans=('image',), trove_version=ValueError()), 3),
            (facts.silent(), 3),
        ):
            self.rounds = [sources]
            self._run(status=status)

    def test_level_hides_rows_but_not_the_status(self):
        for level, shown in (('warning', ['orphans']), ('error', [])):
            self.rounds = [facts.FakeSources(orphans=('image',))]
            rows = self._rows('--level', level, status=1)
            self.assertEqual(shown, [row['check'] for row in rows])

    def test_table(self):
        self.rounds = [facts.FakeSources(cluster=FULL)]
        lines = self._run(status=2).splitlines()
        self.assertIn('| error ', lines[3])
        self.assertIn('osd.0', lines[3])

    def test_details_are_for_programs(self):
        records = dataclasses.replace(facts.RECORDS, policies=(), backups=())
        words = ('--check', 'unprotected-instances')
        self.rounds = [facts.FakeSources(records=records) for _ in range(3)]
        self.assertNotIn('details', self._run(*words, status=1))
        (row,) = self._rows(*words, status=1)
        expected = [{'instance_id': facts.INSTANCE, 'project_id': 'project'}]
        self.assertEqual(expected, row['details'])
        line = self._run(*words, '--watch', '1', '-f', 'json', status=1)
        self.assertEqual(expected, json.loads(line)['details'])

    def test_chosen_checks(self):
        found = self._rows('--check', 'fill', '--check', 'orphans')
        self.assertEqual(['fill', 'orphans'], [row['check'] for row in found])
        self.rounds = [facts.FakeSources(orphans=('image',))]
        found = [row['check'] for row in self._rows('--skip', 'orphans')]
        self.assertEqual([one.name for one in checks.ALL if one.name != 'orphans'], found)

    def test_list(self):
        rows = self._rows('--list')
        self.assertEqual([one.name for one in checks.ALL], [row['check'] for row in rows])
        self.assertEqual([], self.targets)

    def test_wrong_command_line(self):
        for words in (
            ('--check', 'nonsense'),
            ('--level', 'bad'),
            ('--watch', '0'),
            ('--watch', 'soon'),
            ('--watch', 'nan'),
            ('--watch', 'inf'),
            ('--watch', '1e10'),
            ('--list', '--check', 'fill'),
            ('--nonsense',),
            ('surplus',),
        ):
            self._run(*words, status=64)
        self.assertEqual([], self.targets)

    def test_files_of_services(self):
        directory = Path(self.useFixture(fixtures.TempDir()).path)
        for name in ('b.conf', 'a.conf', 'ignored.txt'):
            (directory / name).write_text('')
        self._run('--config-file', 't.conf', '--config-dir', str(directory))
        (targets,) = self.targets
        of_trove = ['t.conf', str(directory / 'a.conf'), str(directory / 'b.conf')]
        self.assertEqual(of_trove, targets.config_files[Service.TROVE])
        self.assertEqual(of_trove, targets.config_files[Service.TROVE_API])
        self.assertEqual(of_trove, targets.config_files[Service.TROVE_CONDUCTOR])
        self.assertEqual(['/etc/cinder/cinder.conf'], targets.config_files[Service.CINDER])
        self.assertEqual(['/etc/nova/nova.conf'], targets.config_files[Service.NOVA])

    def test_files_of_each_service_of_trove(self):
        self._run(
            *('--config-file', 't.conf', '--trove-api-config-file', 'a.conf'),
            *('--trove-conductor-config-file', 'c.conf', '--trove-conductor-config-file', 'd.conf'),
        )
        files = self.targets[0].config_files
        self.assertEqual(['a.conf'], files[Service.TROVE_API])
        self.assertEqual(['c.conf', 'd.conf'], files[Service.TROVE_CONDUCTOR])

    def test_watch_shows_what_comes_and_goes(self):
        self.rounds = [
            facts.FakeSources(cluster=FULL),
            facts.FakeSources(cluster=FULL),
            facts.FakeSources(orphans=('image',)),
        ]
        out = self._run('--watch', '7', '--level', 'warning', status=1)
        self.assertEqual(7, self.slept)
        lines = [line.split(' ', 1)[1] for line in out.splitlines()]
        self.assertEqual(
            [
                '+ error fill: osd.0: 90.0% full; expected: below 70%, so that Ceph can heal '
                'itself; ceph osd df tree',
                '- error fill: osd.0: 90.0% full',
                '+ warning orphans: orphans: image: 1; expected: none; trove-ceph-manage gc list',
            ],
            lines,
        )

    def test_watch_in_json(self):
        self.rounds = [facts.FakeSources(cluster=FULL), facts.FakeSources()]
        out = self._run('--watch', '1', '--level', 'error', '-f', 'json')
        found = [json.loads(line) for line in out.splitlines()]
        self.assertEqual(
            [('+', 'osd.0'), ('-', 'osd.0')], [(one['change'], one['object']) for one in found]
        )

    def test_measure(self):
        directory = self.useFixture(fixtures.TempDir()).path
        path = f'{directory}/measurements.json'
        file = Path(directory) / 'tiers.yaml'
        self.useFixture(
            fixtures.MonkeyPatch('trove_ceph.tiers.tiers_file.load', lambda given: facts.CONTENT)
        )
        found = world.World()
        found.apply(facts.CONTENT)
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove_ceph.cmd.manage.tiers.connect_ceph',
                lambda parsed_args: doctor.tiers_command.ceph.Ceph('c', 'admin', run=found.ceph),
            )
        )
        measured = []

        def measure(target, osds):
            measured.append((target.pool, osds))
            return measurement.Measurement('2026', 9.0, 8.0, osds)

        self.useFixture(fixtures.MonkeyPatch('trove_ceph.doctor.measurement.measure', measure))
        words = ('--measure', '--check', 'promised-iops', '--measurements', path)
        self._run(*words, '--file', str(file))
        self.assertEqual([('volumes-fast', 6)], measured)
        self.assertEqual(['volumes-fast'], list(measurement.load(path)))

        def fail(target, osds):
            raise exceptions.StorageCommandError('fio cannot be run')

        self.useFixture(fixtures.MonkeyPatch('trove_ceph.doctor.measurement.measure', fail))
        self._run(*words, status=64)
