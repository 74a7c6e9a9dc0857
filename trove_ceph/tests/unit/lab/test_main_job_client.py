# SPDX-License-Identifier: Apache-2.0
"""The tenant's command-line client, with a fake program."""

import json
import subprocess
import sys
from pathlib import Path
from unittest import mock

import fixtures
from main_job import client
from main_job.errors import JobError
from oslotest import base

_PROGRAM = """#!{python}
import json, os, sys
folder = {folder!r}
with open(folder + '/calls', 'a') as f:
    f.write(json.dumps([os.environ.get('OS_USERNAME'), *sys.argv[1:]]) + '\\n')
answers = json.load(open(folder + '/answers'))
for key in sorted(answers, key=len, reverse=True):
    if ' '.join(sys.argv[1:]).startswith(key):
        replies = answers[key]
        reply = replies.pop(0) if len(replies) > 1 else replies[0]
        json.dump(answers, open(folder + '/answers', 'w'))
        if isinstance(reply, str):
            sys.exit(reply)
        print(json.dumps(reply) if reply is not None else '', end='')
        break
"""


class ClientTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.folder = Path(self.useFixture(fixtures.TempDir()).path)
        program = self.folder / 'bin' / 'openstack'
        program.parent.mkdir()
        program.write_text(_PROGRAM.format(python=sys.executable, folder=str(self.folder)))
        program.chmod(0o755)
        self._answers({})
        self.client = client.Client(self.folder, {'OS_USERNAME': 'tenant'})
        self.notes = []
        self.useFixture(fixtures.MonkeyPatch('time.sleep', lambda seconds: None))

    def _answers(self, answers):
        """Set the program's successive outputs by the beginning of its arguments."""
        (self.folder / 'answers').write_text(json.dumps(answers))

    def _calls(self):
        calls = self.folder / 'calls'
        return [json.loads(line) for line in calls.read_text().splitlines()]

    def _wait(self):
        return self.client.wait_healthy('u-1', lambda text, seconds: self.notes.append(text))

    def test_flavor_name(self):
        self._answers({'flavor show f-1': [{'id': 'f-1', 'name': 'db.large'}]})
        self.assertEqual('db.large', self.client.flavor_name('f-1'))

    def _states(self, *pairs, **more):
        shown = [{'id': 'u-1', 'status': s, 'operating_status': o} | more for s, o in pairs]
        self._answers({'database instance show u-1': shown})

    def test_finds_an_instance_by_name(self):
        self._answers(
            {
                'database instance list': [
                    [{'Name': 'a', 'ID': 'u-0'}, {'Name': 'b', 'ID': 'u-1'}]
                ],
                'database instance show u-1': [{'id': 'u-1', 'status': 'BUILD'}],
            }
        )
        self.assertEqual('BUILD', self.client.find_instance('b')['status'])
        self.assertIsNone(self.client.find_instance('c'))

    def test_requests_json_as_the_tenant(self):
        self._answers({'database instance show': [{}]})
        self.client.get_instance('u-1')
        self.assertEqual(
            [['tenant', 'database', 'instance', 'show', 'u-1', '-f', 'json']], self._calls()
        )

    def test_creates_an_instance_with_options(self):
        self._answers({'database instance create': [{'id': 'u-1'}]})
        made = self.client.create_instance('db', volume_type='nvme', size=2, is_public=True)
        self.assertEqual('u-1', made['id'])
        self.assertEqual(
            ['db', '--volume-type', 'nvme', '--size', '2', '--is-public', '-f', 'json'],
            self._calls()[0][4:],
        )

    def test_waits_until_the_instance_is_healthy(self):
        self._states(('BUILD', ''), ('ACTIVE', ''), ('ACTIVE', 'HEALTHY'))
        self.assertEqual('HEALTHY', self._wait()['operating_status'])
        self.assertEqual(['BUILD ', 'ACTIVE ', 'ACTIVE HEALTHY'], self.notes)

    def test_wait_ends_when_the_instance_fails(self):
        for state in ('ERROR', 'FAILED'):
            self._states(('BUILD', ''), (state, ''), fault='No valid host')
            error = self.assertRaises(JobError, self._wait)
            self.assertEqual(f'instance u-1 is {state}: No valid host', str(error))

    def test_wait_ends_at_the_deadline(self):
        self._states(('BUILD', 'NEW'))
        clock = iter([0.0, 10.0, client.CREATE_TIMEOUT_SEC + 1.0])
        with mock.patch('main_job.client.time.monotonic', side_effect=clock):
            error = self.assertRaises(JobError, self._wait)
        self.assertEqual('instance u-1 is still BUILD NEW after 1501 s', str(error))
        self.assertEqual(2, len(self.notes))

    def test_delete_waits_until_it_is_gone(self):
        self._answers(
            {
                'database instance delete': [None],
                'database instance list': [[{'ID': 'u-1'}], [{'ID': 'u-2'}]],
            }
        )
        self.client.delete_instance('u-1')
        self.assertEqual(3, len(self._calls()))

    def test_delete_fails_at_the_deadline(self):
        self._answers(
            {'database instance delete': [None], 'database instance list': [[{'ID': 'u-1'}]]}
        )
        clock = iter([0.0, 10.0, client.DELETE_TIMEOUT_SEC + 1.0])
        with mock.patch('main_job.client.time.monotonic', side_effect=clock):
            error = self.assertRaises(JobError, self.client.delete_instance, 'u-1')
        self.assertIn('still exists 300 s after its deletion', str(error))

    def test_creates_database_and_user_once(self):
        self._answers({'database db list': [[]], 'database user list': [None]})
        self.client.ensure_database('u-1', 'shop')
        self.client.ensure_user('u-1', 'sue', 'secret', 'shop')
        made = [call[1:] for call in self._calls() if 'create' in call]
        self.assertEqual(
            [
                ['database', 'db', 'create', 'u-1', 'shop'],
                ['database', 'user', 'create', 'u-1', 'sue', 'secret', '--databases', 'shop'],
            ],
            made,
        )
        (self.folder / 'calls').unlink()
        self._answers(
            {
                'database db list': [[{'Name': 'shop'}]],
                'database user list': [[{'Name': 'sue'}]],
            }
        )
        self.client.ensure_database('u-1', 'shop')
        self.client.ensure_user('u-1', 'sue', 'secret', 'shop')
        self.assertEqual([], [call for call in self._calls() if 'create' in call])

    def test_error_has_the_output_and_no_password(self):
        self._answers({'database user list': [[]], 'database user create': ['no such instance']})
        error = self.assertRaises(JobError, self.client.ensure_user, 'u-1', 'sue', 'secret', 'shop')
        self.assertIn('openstack database user create u-1', str(error))
        self.assertIn('no such instance', str(error))
        self.assertNotIn('secret', str(error))

    def test_error_of_a_hanging_client_has_no_password(self):
        hangs = subprocess.TimeoutExpired(['openstack', 'secret'], 300)
        with mock.patch('main_job.client.subprocess.run', side_effect=hangs):
            error = self.assertRaises(JobError, self.client.get_instance, 'u-1')
        self.assertIn('openstack database instance show u-1', str(error))
        self.assertNotIn('secret', str(error))
