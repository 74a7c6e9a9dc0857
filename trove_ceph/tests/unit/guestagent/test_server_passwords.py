# SPDX-License-Identifier: Apache-2.0
"""The files with passwords of Trove's accounts, of which nothing else may tell."""

from unittest import mock

import docker
import fixtures
from oslotest import base
from trove.common import cfg, exception
from trove.guestagent.datastore.mysql_common import service as common_service

from trove_ceph.guestagent import server
from trove_ceph.mysql import tuning

CONF = cfg.CONF
MACHINE = tuning.Machine(4096, 2, 102400, 3000)


class PasswordTest(base.BaseTestCase):
    """Trove keeps a pool of connections, with the password of the former volume."""

    def setUp(self):
        super().setUp()
        self.done = mock.Mock()
        for name, value in (
            (
                'datastore.service.BaseDbApp.get_client_auth_file',
                classmethod(lambda _class, file: f'/conf/{file}'),
            ),
            ('datastore.mysql_common.service.ENGINE', self.done.engine),
        ):
            self.useFixture(fixtures.MonkeyPatch(f'trove.guestagent.{name}', value))
        self.useFixture(
            fixtures.MonkeyPatch('trove_ceph.guestagent.flushed_files.replace', self.done.replace)
        )

    def test_new_password_replaces_the_pool(self):
        for _ in range(2):
            server.MySqlServer.save_password('root', 'new')
        # A crash must not leave an empty file, nor a copy elsewhere.
        saved = mock.call.replace('/conf/root.cnf', mock.ANY)
        self.assertEqual([saved, mock.call.engine.dispose(), saved], self.done.mock_calls)
        written = self.done.replace.call_args.args[1]
        content = server.MySqlServer.CFG_CODEC.deserialize(written)
        self.assertEqual(
            {'client': {'user': 'root', 'password': 'new', 'host': 'localhost'}}, content
        )
        self.assertIsNone(common_service.ENGINE)


class RootPasswordTest(base.BaseTestCase):
    """The container gets it by a file."""

    def setUp(self):
        super().setUp()
        for name, value in (('datastore_manager', 'mysql'), ('state_change_wait_time', 0)):
            CONF.set_override(name, value)
            self.addCleanup(CONF.clear_override, name)
        self.log = self.useFixture(fixtures.FakeLogger())
        self.saved = {}
        self.written = {}
        self.docker = mock.Mock()
        self.docker.containers.get.side_effect = docker.errors.NotFound('database')
        place = 'trove.guestagent.common.operating_system.ensure_directory'
        self.useFixture(fixtures.MonkeyPatch(place, mock.Mock()))
        self.useFixture(
            fixtures.MonkeyPatch('trove_ceph.guestagent.flushed_files.replace', self.replace)
        )
        self.subject = server.MySqlServer(mock.Mock(), self.docker, lambda *_: MACHINE, 77)
        self.subject.get_auth_password = self.get_auth_password
        self.subject.save_password = self.saved.__setitem__

    def get_auth_password(self, file):
        try:
            return self.saved[file.removesuffix('.cnf')]
        except KeyError:
            raise exception.UnprocessableEntity from None

    def replace(self, path, content, owner):
        self.written[path] = content
        self.assertEqual((1001, 1001), owner)

    def test_neither_docker_nor_the_log_has_it(self):
        for saved in ({}, {'root': 'of-an-earlier-start'}):
            self.saved.clear()
            self.saved.update(saved)
            self.subject.start_db(ds_version='9.7.4', command='--datadir=x')
            password = self.saved['root']
            self.assertEqual({server.ROOT_PASSWORD_PATH: password}, self.written)
            self.assertNotIn(password, self.log.output)
            environment = self.docker.containers.run.call_args.kwargs['environment']
            self.assertNotIn(password, environment.values())
            self.assertEqual('', environment['MYSQL_ROOT_PASSWORD'])
            path = environment['MYSQL_ROOT_PASSWORD_FILE']
            self.assertEqual('/etc/mysql/root-password', path)
            volumes = self.docker.containers.run.call_args.kwargs['volumes']
            self.assertEqual('/etc/mysql', volumes['/etc/mysql']['bind'])
        self.assertIn('Creating docker container', self.log.output)
        self.assertEqual('of-an-earlier-start', password)
