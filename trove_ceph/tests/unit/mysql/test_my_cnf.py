# SPDX-License-Identifier: Apache-2.0
from oslotest import base

from trove_ceph.mysql import my_cnf

TEXT = """\
[client]
port = 3306

[mysqld]
# a comment = 1
datadir = /var/lib/mysql/data
pid-file = /var/run/mysqld/mysqld.pid
innodb-log-buffer-size=25M
skip_name_resolve
sync_binlog = 1

[trove_ceph]
flavor_vcpus = 2
!includedir /etc/mysql/conf.d/
"""


class ServerOptionsTest(base.BaseTestCase):
    def test_only_settings_of_the_server_without_paths(self):
        self.assertEqual(
            {'innodb_log_buffer_size': '25M', 'skip_name_resolve': 'ON', 'sync_binlog': '1'},
            my_cnf.server_options(TEXT),
        )
