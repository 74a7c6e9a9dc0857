# SPDX-License-Identifier: Apache-2.0
"""``replication``: the replicas of sources, how they follow, and their re-provisioning."""

from collections.abc import Sequence
from typing import Any

import webob.exc
from oslo_config import cfg
from trove.common import wsgi
from trove.instance import models as instance_models

from trove_ceph import exceptions
from trove_ceph.api import (
    controller,
    pages,
    replica_facts,
    replica_views,
    schemas,
    volume_tiers,
)
from trove_ceph.db import replicas, replication_policies
from trove_ceph.db.replica_record import Requester
from trove_ceph.strategies.replication import reprovision_rules
from trove_ceph.trove_adapter import notify, replaced_instance

CONF = cfg.CONF
_KEY = 'replication'


class ReplicationController(controller.Controller):
    """Replicas as Trove lists them, with what our watch has found.

    :param store: the replicas that follow, or have followed, their source
    :param policy_store: the policies of sources
    :param tiers_file: the path of the file with the copies of the tiers; it may be missing
    """

    def __init__(
        self,
        store: replicas.ReplicaStore,
        policy_store: replication_policies.ReplicationPolicyStore,
        tiers_file: str,
    ):
        self._store = store
        self._facts = replica_facts.ReplicaFacts(store, policy_store)
        self._tiers_file = tiers_file

    def index(self, req: Any, tenant_id: str) -> wsgi.Result:
        """List replicas, the latest first."""
        context = self.context_of(req)
        project_id = controller.authorize_list(req, context, _KEY, 'source_id')
        with controller.translated():
            rows, marker = pages.of(
                _replica_rows(
                    project_id=project_id,
                    source_id=req.GET.get('source_id'),
                ),
                context,
                CONF.instances_page_size,
                pages.row_position,
                pages.found_in(instance_models.DBInstance, project_id),
            )
            found = self._facts.of(rows)
        shown = [replica_views.replica(one, with_volumes=False) for one in found]
        return pages.answer(req, 'replicas', shown, marker)

    def show(self, req: Any, tenant_id: str, id: str) -> wsgi.Result:
        """Show a replica, or a source, with its own replicas."""
        context = self.context_of(req)
        row = controller.find_instance(context, f'{_KEY}:show', id)
        followers = _replica_rows(project_id=row.tenant_id, source_id=row.id)
        if row.slave_of_id is None and not followers:
            raise webob.exc.HTTPNotFound(
                f'instance {row.id} is not a replica, and has none; "openstack database instance '
                'create --replica-of" creates one'
            )
        return self._answer(context, row, followers, 200)

    def reprovision(self, req: Any, tenant_id: str, id: str, body: Any = None) -> wsgi.Result:
        """Request that a replica gets a fresh clone of its source.

        :raises HTTPConflict: it is no replica of ours, is being re-provisioned, or has a task
        """
        context = self.context_of(req)
        content = self.content_of(body, 'reprovision', schemas.REPROVISION)
        row = controller.find_instance(context, f'{_KEY}:reprovision', id)
        is_own = context.project_id == row.tenant_id
        with controller.translated():
            if (reason := self._why_not(row)) is not None:
                raise exceptions.ReprovisioningRefusedError(reason)
            self._store.request(
                row.id,
                Requester.TENANT if is_own else Requester.OPERATOR,
                content.get('reason') or '',
            )
        notify.replicas(context)
        followers = _replica_rows(project_id=row.tenant_id, source_id=row.id)
        return self._answer(context, row, followers, 202)

    def _why_not(self, row: Any) -> str | None:
        """Return why an instance cannot be re-provisioned, whatever its task is; None: it can."""
        if row.slave_of_id is None:
            return f'instance {row.id}: is not a replica; only replicas are re-provisioned'
        record = self._store.find(row.id)
        facts = replaced_instance.find_facts(row.id)
        if record is None or facts is None:
            return (
                f'instance {row.id}: cannot be re-provisioned, since it was not created as a clone '
                'of its source, or its creation has not succeeded; create another replica, and '
                'delete this one'
            )
        source = replaced_instance.find_facts(record.source_id)
        return reprovision_rules.why_unfit(facts, source, record.source_id)

    def _answer(self, context: Any, row: Any, followers: Sequence[Any], status: int) -> wsgi.Result:
        with_volumes = controller.is_allowed(context, f'{_KEY}:show:volumes')
        with controller.translated():
            own, *others = self._facts.of([row, *followers])
        tier = volume_tiers.find(context, [row], self._tiers_file).get(row.id)
        content = replica_views.replica(own, with_volumes) | {
            'copies': tier.copies if tier else None,
            'replicas': [replica_views.replica(one, with_volumes) for one in others],
        }
        return wsgi.Result({_KEY: content}, status)


def _replica_rows(project_id: str | None, source_id: str | None) -> Sequence[Any]:
    """Return the rows of replicas in Trove's table, the latest first; None: of all."""
    model = instance_models.DBInstance
    filters = [model.slave_of_id.isnot(None)]
    if project_id is not None:
        filters.append(model.tenant_id == project_id)
    if source_id is not None:
        filters.append(model.slave_of_id == source_id)
    with controller.translated():
        rows = model.find_by_filter(filters=filters, deleted=False)
        return sorted(rows, key=lambda row: (row.created, row.id), reverse=True)
