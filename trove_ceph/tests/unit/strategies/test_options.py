# SPDX-License-Identifier: Apache-2.0
import dataclasses
import functools

import fixtures
from oslotest import base

from trove_ceph import enums
from trove_ceph.db import backups
from trove_ceph.db.backup_record import RecordState
from trove_ceph.strategies.backup.options import BackupOptions
from trove_ceph.tests.unit.db import database
from trove_ceph.tests.unit.strategies import policy_world


class OptionsTest(base.BaseTestCase):
    def test_a_message_carries_them(self):
        for one in (
            BackupOptions(),
            BackupOptions(enums.QuiesceLevel.FREEZE, copy=True, verify=True),
        ):
            self.assertEqual(one, BackupOptions.of_document(one.as_document()))
        self.assertEqual(BackupOptions(), BackupOptions.of_document({}))

    def test_are_recorded_with_the_backup(self):
        path = self.useFixture(fixtures.TempDir()).join('trove.sqlite')
        store = backups.BackupStore(database.with_tables(path))
        begin = functools.partial(
            store.begin_taking, 'b', 'one', policy_world.PROJECT, policy_world.WORKER
        )
        store.claims.release(begin(**dataclasses.asdict(BackupOptions())))
        plain = store.get('b')
        self.assertEqual(
            (None, None, None),
            (plain.quiesce_wanted, plain.copy_wanted_at, plain.verify_wanted_at),
        )
        begin(**dataclasses.asdict(BackupOptions(enums.QuiesceLevel.DDL, copy=True, verify=True)))
        found = store.get('b')
        self.assertEqual('ddl', found.quiesce_wanted)
        self.assertIsNotNone(found.copy_wanted_at)
        self.assertIsNotNone(found.verify_wanted_at)
        self.assertEqual(RecordState.TAKING, found.state)
