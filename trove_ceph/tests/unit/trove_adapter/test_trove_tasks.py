# SPDX-License-Identifier: Apache-2.0
"""The task of an instance, which our tables' transactions set, in Trove's own table."""

import datetime
import uuid

from oslotest import base
from trove.instance import models as instance_models
from trove.instance.tasks import InstanceTasks

from trove_ceph.db import claims, replacements, transactions, trove_tasks
from trove_ceph.tests.unit.db import database, replacement_helpers
from trove_ceph.tests.unit.taskmanager import trove_database


class TroveTasksTest(base.BaseTestCase):
    def test_codes_and_texts_are_those_of_trove(self):
        for task in trove_tasks.Task:
            known = getattr(InstanceTasks, task.name)
            self.assertEqual((known.code, known.db_text), task.value)
            # The action of an error is the one that failed.
            expected = 'EJECTING' if task is trove_tasks.Task.EJECTION_ERROR else task.name
            self.assertEqual(expected, known.action)

    def test_code_of_a_deletion_is_that_of_trove(self):
        self.assertEqual(InstanceTasks.DELETING.code, trove_tasks._DELETING)

    def test_trove_reads_what_the_store_writes(self):
        path = trove_database.path()
        instance = trove_database.add_instance(f'project-{uuid.uuid4()}', 'volume')
        store = replacements.ReplacementStore(transactions.Transactions(database.facade(path)))
        now = datetime.datetime(2026, 1, 1)
        record = replacement_helpers.record(str(uuid.uuid4()), now, instance_id=instance.id)
        store.request(record)
        self.assertEqual(InstanceTasks.MIGRATING, self.task(instance))
        store.fail(store.claim(record.replacement_id, claims.Claimant('one')), 'why')
        self.assertEqual(InstanceTasks.NONE, self.task(instance))

    def task(self, instance):
        return instance_models.DBInstance.find_by(id=instance.id).task_status
