# SPDX-License-Identifier: Apache-2.0
import json
import pathlib

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.tests.unit.bench.targets import fake_mysql
from trove_ceph_bench import targets
from trove_ceph_bench.targets import dsn, specification

STALE = 'trove_ceph_bench_0badc0de'


class DsnTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.mysql = fake_mysql.FakeMysql()

    def target(self, text='mysql://u@db.example:3307', environment=None, **more):
        settings = specification.Settings(environment or {'SECRET': 'right'})
        if not more:
            more = {'password_env': 'SECRET'}
        parsed = dsn.from_spec('t', {'dsn': text, **more}, settings)
        return dsn.DsnTarget('t', parsed.address, parsed.image, self.mysql.connect)

    def test_own_schema_exists_only_while_entered(self):
        before = set(self.mysql.schemas)

        with self.target() as target:
            self.assertEqual(before | {target.address.database}, self.mysql.schemas)
            self.assertIsNone(target.cpu_sec())
            self.assertFalse(target.restart())

        self.assertEqual(before, self.mysql.schemas)

    def test_removes_the_schema_after_an_error(self):
        before = set(self.mysql.schemas)

        def fail():
            with self.target():
                raise ZeroDivisionError

        self.assertRaises(ZeroDivisionError, fail)

        self.assertEqual(before, self.mysql.schemas)

    def test_removes_leftovers_of_a_killed_run_first(self):
        self.mysql.schemas.add(STALE)

        with self.target():
            self.assertNotIn(STALE, self.mysql.schemas)

    def test_keeps_the_schema_of_another_target_of_this_run(self):
        with self.target() as first, self.target() as second:
            self.assertLessEqual(
                {first.address.database, second.address.database}, self.mysql.schemas
            )

    def test_disclosure_holds_no_password(self):
        with self.target() as target:
            disclosed = json.dumps(target.disclose())

        self.assertIn('db.example:3307', disclosed)
        self.assertNotIn('right', disclosed)

    def test_error_names_the_schema_that_cannot_be_removed(self):
        target = self.target().__enter__()
        self.mysql.is_up = False

        error = self.assertRaises(
            exceptions.TargetUnavailableError, target.__exit__, None, None, None
        )

        self.assertIn(f'cannot remove schema {target.address.database}', str(error))

    def test_cleanup_error_does_not_hide_the_first_error(self):
        target = self.target().__enter__()
        self.mysql.is_up = False

        target.__exit__(ZeroDivisionError, ZeroDivisionError(), None)

        self.assertIn(target.address.database, self.mysql.schemas)

    def test_socket(self):
        with self.target('mysql://u@localhost/?unix_socket=/run/mysqld.sock') as target:
            self.assertEqual('/run/mysqld.sock', target.address.unix_socket)
        self.assertEqual({'/run/mysqld.sock'}, set(self.mysql.endpoints))

    def test_password_from_a_file(self):
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path) / 'password'
        path.write_text('right\n')

        with self.target(password_file=str(path)) as target:
            self.assertEqual('right', target.address.password)

    def test_image(self):
        target = self.target(image='volumes/data', ceph={'conf': '/c', 'user': 'bench'})

        self.assertEqual(
            ('volumes', 'data', '/c', 'bench'),
            (target.image.pool, target.image.name, target.image.conf, target.image.user),
        )

    def test_invalid_dsns(self):
        for spec, reason in (
            ({'dsn': 'mysql://u:secret@h'}, 'must not hold a password'),
            ({'dsn': 'mysql://u@h/shop'}, 'creates its own'),
            ({'dsn': 'mysql://h'}, 'must have the form'),
            ({'dsn': 'mysql://u@'}, 'must have the form'),
            ({'dsn': 'mysql://u@h?charset=utf8'}, 'charset'),
            ({'dsn': 'mysql://u@h:port'}, 'port'),
            ({'dsn': 'mysql://u@h', 'password_env': 'NOT_SET'}, 'NOT_SET'),
            ({'dsn': 'mysql://u@h', 'password_file': '/nonexistent'}, '/nonexistent'),
            ({'dsn': 'mysql://u@h', 'password_file': 'f', 'password_env': 'E'}, 'exclusive'),
        ):
            error = self.assertRaises(
                exceptions.InvalidPlanError,
                *(targets.create, 't', spec, specification.Settings(environment={})),
            )

            self.assertIn(reason, str(error))
            self.assertIn('target t', str(error))
            self.assertNotIn('secret', str(error))
