# SPDX-License-Identifier: Apache-2.0
"""A creation of replicas by our manager and Trove's code, with a cloud in memory."""

import types

from trove.common import cfg as trove_cfg
from trove.common import notification
from trove.instance import models as instance_models
from trove.instance.tasks import InstanceTasks

from trove_ceph.tests.unit.taskmanager import trove_database
from trove_ceph.tests.unit.trove_adapter import stock_creation

CONF = trove_cfg.CONF


class ReplicaCreation(stock_creation.StockCreation):
    """For test cases, before the base class.

    :ivar silent: the ids of replicas whose guests never report that they follow
    """

    def set_up(self, world):
        super().set_up(world)
        # As trove-taskmanager does when it starts.
        notification.DBaaSAPINotification.register_notify_callback(
            instance_models.persist_instance_fault
        )
        self.addCleanup(notification.DBaaSAPINotification.register_notify_callback, lambda *_: None)
        self.patch(
            'trove_ceph.taskmanager.replication_factory.make_dependencies',
            lambda *_: self.replication_deps(),
        )
        self.patch('trove_ceph.taskmanager.replication_factory.make_agents', lambda *_: self.world)
        self.patch(
            'trove.taskmanager.models.FreshInstanceTasks._render_replica_config',
            lambda *_: types.SimpleNamespace(config_contents='[mysqld]\nread_only = ON'),
        )
        self.patch(
            'trove.taskmanager.models.FreshInstanceTasks.wait_for_instance',
            lambda tasks, *arguments: self.wait(tasks, *arguments),
        )
        self.silent = set()

    def replication_deps(self):
        return self.world.replication_deps()

    def wait(self, tasks, timeout_sec, _flavor):
        """Show the outcome of a creation, as Trove does."""
        self.assertEqual(CONF.restore_usage_timeout, timeout_sec)
        silent = tasks.id in self.silent
        tasks.update_db(
            task_status=InstanceTasks.BUILDING_ERROR_TIMEOUT_GA if silent else InstanceTasks.NONE
        )

    def replica_request(self, **facts):
        """Return the ids, or the one id, and the arguments of the call of Trove's API."""
        ids = list(self.world.replicas)
        request = self.request(
            slave_of_id=self.world.instance.id, root_password=[None] * len(ids), **facts
        )
        return ids if len(ids) > 1 else ids[0], request

    def tasks(self):
        return [trove_database.instance(one).task_status for one in self.world.replicas]

    def fault(self, instance_id):
        return instance_models.DBInstanceFault.find_by(instance_id=instance_id).message
