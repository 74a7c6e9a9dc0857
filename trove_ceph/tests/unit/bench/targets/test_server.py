# SPDX-License-Identifier: Apache-2.0
import pathlib

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph_bench import targets


class ServerTargetTest(base.BaseTestCase):
    """The functional tests cover real servers."""

    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (self.directory / 'disk').mkdir()
        (self.directory / 'rootfs').mkdir()

    def enter(self, **more):
        server = {
            'mysqld': {'rootfs': str(self.directory / 'rootfs')},
            'on': {'local': str(self.directory / 'disk')},
            **more,
        }
        sandboxes = self.directory / 'sandboxes'
        sandboxes.mkdir(exist_ok=True)
        settings = targets.Settings({'TROVE_CEPH_CACHE': str(self.directory)}, sandboxes)
        return targets.create('t', {'server': server}, settings).__enter__()

    def assert_refused(self, reason, **more):
        error = self.assertRaises(exceptions.TargetUnavailableError, self.enter, **more)

        self.assertIn(reason, str(error))
        self.assertEqual([], list((self.directory / 'sandboxes').iterdir()))
        self.assertEqual([], list((self.directory / 'disk').iterdir()))

    def test_no_root_file_system_in_the_cache(self):
        self.assert_refused('build one with', mysqld={'rootfs': 'auto'})

    def test_no_such_root_file_system(self):
        self.assert_refused('/nonexistent', mysqld={'rootfs': '/nonexistent'})

    def test_no_such_program(self):
        self.assert_refused('/nonexistent', mysqld={'binary': '/nonexistent'})

    def test_no_such_directory(self):
        self.assert_refused('/nonexistent', on={'local': '/nonexistent'})

    def test_nothing_is_mounted(self):
        self.assert_refused('nothing is mounted', on={'path': str(self.directory / 'disk')})

    def test_root_file_system_without_mysql(self):
        self.assert_refused('passwd')

    def test_unusable_before_it_is_entered(self):
        spec = {'server': {'mysqld': {'rootfs': 'auto'}, 'on': {'local': '/srv'}}}
        target = targets.create('t', spec, targets.Settings())

        self.assertIsNone(target.image)
        self.assertRaises(exceptions.TargetUnavailableError, target.disclose)
        target.__exit__(None, None, None)
