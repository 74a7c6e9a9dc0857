# SPDX-License-Identifier: Apache-2.0
import json
import re
from pathlib import Path

import fixtures
import yaml
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.tests.unit.cmd.manage import command
from trove_ceph.tests.unit.tiers import sample, world
from trove_ceph.tiers import ceph, cinder, render, resources, show, trove

_CEPH = ceph.Ceph
_TROVE = trove.Trove


class CliTestCase(base.BaseTestCase):
    """The command on systems in memory."""

    def setUp(self):
        super().setUp()
        self.world = world.World()
        self.file = Path(self.useFixture(fixtures.TempDir()).path) / 'tiers.yaml'
        self._write()
        patch = fixtures.MonkeyPatch
        run = self.world.ceph
        self.useFixture(
            patch('trove_ceph.tiers.ceph.Ceph', lambda conf, user: _CEPH(conf, user, run=run))
        )
        self.useFixture(
            patch(
                'trove_ceph.tiers.cinder.Cinder.of_environment',
                lambda *_: cinder.Cinder(self.world.cinder.client()),
            )
        )
        self.useFixture(
            patch(
                'trove_ceph.tiers.trove.Trove',
                lambda program, conf: _TROVE(program, conf, run=self.world.trove),
            )
        )

    def _write(self, changes=()):
        self.file.write_text(yaml.safe_dump(sample.changed(changes), sort_keys=False))

    def _run(self, *words, status=0):
        """Run a verb and return what it prints and complains of."""
        result = command.run(
            'tiers', *words, '--file', str(self.file), '--trove-conf', 'trove.conf'
        )
        self.assertEqual(status, result.status, result)
        return result.out, result.err

    def test_plan_apply_check(self):
        out, _ = self._run('plan')
        self.assertIn('  + pool volumes-fast\n', out)
        self.assertIn('14 to create, 1 to change.\n', out)
        self.assertEqual([], self.world.changes())
        out, _ = self._run('check', status=1)
        self.assertTrue(out.startswith('drift: 15 differences: '), out)

        out, _ = self._run('apply')
        self.assertEqual(15, out.count('done: '))
        self.assertEqual(('ok: everything matches the tiers file\n', ''), self._run('check'))
        self.assertIn('Everything matches the tiers file.\n', self._run('plan')[0])
        self.assertIn('nothing was changed', self._run('apply')[0])

    def test_refusal_names_the_flag(self):
        self._run('apply')
        self._write({'tiers/fast/copies': 3, 'tiers/fast/min_size': 2})
        before = self.world.state()
        out, _ = self._run('plan')
        self.assertIn('  ~ pool volumes-fast: size  ! moves data (--yes-move-data)\n', out)
        self.assertIn('      2 -> 3\n', out)
        out, err = self._run('apply', status=2)
        self.assertIn('add --yes-move-data', err)
        self.assertEqual(before, self.world.state())
        self._run('apply', '--yes-move-data')
        self._run('check')

    def test_reports_changes_that_wait(self):
        self._run('apply')
        self.world.ceph.copies['volumes-fast'] = 1
        self._write({'tiers/fast/min_size': 2})
        out, _ = self._run('plan')
        self.assertIn('  ~ pool volumes-fast: min_size  ! pauses I/O (--yes-pause-io)\n', out)
        self.assertIn('waits until the copies exist', out)
        before = self.world.state()
        out, _ = self._run('apply', status=1)
        self.assertIn('waits: pool volumes-fast: min_size 1 -> 2', out)
        self.assertIn('to apply it now, add --yes-pause-io', out)
        self.assertNotIn('Everything matched', out)
        out, _ = self._run('apply', '--format', 'json', status=1)
        document = json.loads(out)
        self.assertEqual((False, []), (document['changed'], document['changes']))
        self.assertEqual(['pauses I/O'], document['waiting'][0]['risks'])
        self.assertEqual(before, self.world.state())
        self._run('apply', '--yes-pause-io')
        self._run('check')

    def test_problem(self):
        self._write({'tiers/fast/device_class': 'ssd'})
        out, _ = self._run('plan', status=2)
        self.assertIn('problem: tier fast: there is no OSD of device class ssd\n', out)
        self.assertIn('no OSD of device class ssd', self._run('apply', status=2)[1])
        self.assertTrue(self._run('check', status=2)[0].startswith('problem: '))
        self.assertEqual([], self.world.changes())

    def test_wrong_file(self):
        self._write({'tiers/fast/copies': 0})
        _, err = self._run('check', status=2)
        self.assertRegex(
            err, r'^trove-ceph-manage: .*tiers\.yaml, line \d+: tiers\.fast\.copies: 0'
        )

    def test_system_that_does_not_answer(self):
        def silent(*words, **options):
            raise exceptions.StorageCommandError('ceph did not end within 60 s')

        self.useFixture(
            fixtures.MonkeyPatch(
                'trove_ceph.tiers.ceph.Ceph', lambda conf, user: _CEPH(conf, user, run=silent)
            )
        )
        self.assertIn('did not end within 60 s', self._run('check', status=3)[1])

    def test_only_one_system(self):
        self._run('apply', '--only', 'ceph')
        self.assertEqual([], self.world.cinder.changes + self.world.trove.changes)
        self._run('check', '--only', 'ceph')
        self._run('check', '--only', 'ceph', '--only', 'cinder', status=1)

    def test_json(self):
        document = json.loads(self._run('plan', '--format', 'json')[0])
        made = [one for one in document['changes'] if one['name'] == 'volumes-fast']
        self.assertEqual('pool', made[0]['kind'])
        self.assertEqual(2, made[0]['to']['size'])
        done = json.loads(self._run('apply', '--format', 'json')[0])
        self.assertEqual((True, document['changes']), (done['changed'], done['changes']))
        again = json.loads(self._run('apply', '--format', 'json')[0])
        self.assertEqual({'changed': False, 'changes': [], 'waiting': []}, again)
        self.assertEqual('ok', json.loads(self._run('check', '--format', 'json')[0])['status'])

    def test_show(self):
        self._run('apply')
        self.world.ceph.objects['volumes-fast'] = 700
        for size in (10, 200, 1000):
            self.world.cinder.add_volume('fast', size)
        out, _ = self._run('show')
        (row,) = [line.split() for line in out.splitlines() if line.startswith('| fast')]
        self.assertEqual(
            ['fast', 'data', 'nvme', '6', '6', 'volumes-fast', '2x', 'True', '7.0%', '64', '21.3']
            # 10 GiB get the floor, 200 GiB what their size gives, 1000 GiB the cap.
            + ['fast', '30', '3', '1210', str(3000 + 6000 + 20000), '-'],
            [cell for cell in row if cell != '|'],
        )
        rows = json.loads(self._run('show', '--format', 'json')[0])
        redundancy = {row['tier']: row['redundancy'] for row in rows}
        self.assertEqual('2+1', redundancy['vault'])

    def test_show_before_anything_was_made(self):
        out, _ = self._run('show', '--only', 'ceph', '-c', 'pool', '-c', 'exists', '-f', 'value')
        self.assertIn('volumes-fast False\n', out)
        out, _ = self._run('show', '--only', 'ceph', '-c', 'volumes', '-c', 'fill')
        self.assertRegex(out, r'\| - +\| - +\|')


class RenderTestCase(base.BaseTestCase):
    def test_colours_only_where_asked(self):
        plan = world.World().plan(sample.read())
        plain, painted = render.plan_text(plan, False), render.plan_text(plan, True)
        self.assertNotIn('\x1b', plain)
        self.assertIn('\x1b[32m  + pool volumes-fast\x1b[0m', painted)
        self.assertEqual(plain, re.sub(r'\x1b\[\d+m', '', painted))

    def test_sets_show_what_comes_and_goes(self):
        them = world.World()
        content = sample.read()
        them.apply(content)
        them.ceph.users['client.glance'] |= {'mds': 'allow *', 'mgr': ''}
        exclusive = {'users/client.glance': {'role': 'glance', 'exclusive': True}}
        content = sample.read(exclusive)
        text = render.plan_text(them.plan(content), False)
        self.assertIn('      - mds allow *\n      + mgr profile rbd pool=images\n', text)


class ShowTestCase(base.BaseTestCase):
    def test_what_was_not_looked_at_is_left_open(self):
        content = sample.read()
        rows = show.rows(content, resources.Observed())
        self.assertEqual((None, None), (rows[0].osds, rows[0].volumes))
