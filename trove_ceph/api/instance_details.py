# SPDX-License-Identifier: Apache-2.0
"""``instance_details``: the storage, the backups and the replication of instances."""

import collections
from collections.abc import Mapping, Sequence
from typing import Any

from oslo_config import cfg
from trove.common import wsgi
from trove.instance import models as instance_models

from trove_ceph.api import controller, instance_views, pages, replica_facts, volume_tiers
from trove_ceph.db import backup_record, backups, replicas, replication_policies

CONF = cfg.CONF
_KEY = 'instance_detail'


class InstanceDetailsController(controller.Controller):
    """Instances as Trove lists them, with their tiers, backups and replication.

    :param records: the records of backups
    :param store: the replicas that follow, or have followed, their source
    :param policy_store: the replication policies of sources
    :param tiers_file: the path of the file with the tiers; it may be missing
    """

    def __init__(
        self,
        records: backups.BackupStore,
        store: replicas.ReplicaStore,
        policy_store: replication_policies.ReplicationPolicyStore,
        tiers_file: str,
    ):
        self._records = records
        self._replicas = replica_facts.ReplicaFacts(store, policy_store)
        self._tiers_file = tiers_file

    def index(self, req: Any, tenant_id: str) -> wsgi.Result:
        """List instances, the latest first."""
        context = self.context_of(req)
        project_id = controller.authorize_list(req, context, _KEY)
        filters = {'deleted': False} | ({'tenant_id': project_id} if project_id else {})
        model = instance_models.DBInstance
        with controller.translated():
            rows, marker = pages.of(
                model.find_all(**filters),
                context,
                CONF.instances_page_size,
                pages.row_position,
                pages.found_in(model, project_id),
            )
        return pages.answer(req, f'{_KEY}s', self._shown(context, rows), marker)

    def show(self, req: Any, tenant_id: str, id: str) -> wsgi.Result:
        """Show one instance."""
        context = self.context_of(req)
        row = controller.find_instance(context, f'{_KEY}:show', id)
        (shown,) = self._shown(context, [row])
        return wsgi.Result({_KEY: shown}, 200)

    def _shown(self, context: Any, rows: Sequence[Any]) -> list[dict[str, Any]]:
        with controller.translated():
            records = self._records_of(rows)
            replication = self._replicas.of(rows)
            services = _services_of(rows)
        tiers = volume_tiers.find(context, rows, self._tiers_file)
        return [
            instance_views.instance(
                instance_views.Shown(
                    row,
                    services.get(row.id),
                    tiers.get(row.id),
                    records.get(row.id, ()),
                    replica,
                )
            )
            for row, replica in zip(rows, replication, strict=True)
        ]

    def _records_of(
        self, rows: Sequence[Any]
    ) -> Mapping[str, Sequence[backup_record.BackupRecord]]:
        """Return the records of the backups of some instances, by the ids of the instances."""
        found: dict[str, list[backup_record.BackupRecord]] = collections.defaultdict(list)
        for project_id in {row.tenant_id for row in rows}:
            for record in self._records.of_project(project_id):
                found[record.instance_id].append(record)
        return found


def _services_of(rows: Sequence[Any]) -> Mapping[str, Any]:
    """Return the status that each agent last reported, by the ids of the instances."""
    model = instance_models.InstanceServiceStatus
    if not rows:
        return {}
    found = model.find_by_filter(filters=[model.instance_id.in_([row.id for row in rows])])
    return {one.instance_id: one for one in found}
