# SPDX-License-Identifier: Apache-2.0
"""``replication_policies``: how the replicas of a source are kept.

A policy has the id of its source. A source without a policy has the operator's defaults.
"""

from typing import Any

from oslo_config import cfg
from trove.common import exception as trove_exceptions
from trove.common import wsgi

from trove_ceph.api import controller, replica_views, schemas
from trove_ceph.db import replication_policies
from trove_ceph.db.replica_record import ReplicationPolicy
from trove_ceph.trove_adapter import trove_db

CONF = cfg.CONF
_KEY = 'replication_policy'
#: The values of a policy whose default is the option of the same name.
_OPTIONAL = ('reprovision_every_hours', 'max_own_percent', 'max_lag_sec')


class ReplicationPoliciesController(controller.Controller):
    """Replication policies."""

    def __init__(self, store: replication_policies.ReplicationPolicyStore):
        self._store = store

    def show(self, req: Any, tenant_id: str, id: str) -> wsgi.Result:
        """Show the policy of a source; without one, what applies to it."""
        row = controller.find_instance(self.context_of(req), f'{_KEY}:show', id)
        with controller.translated():
            return _shown(row.id, self._store.find(row.id))

    def update(self, req: Any, tenant_id: str, id: str, body: Any = None) -> wsgi.Result:
        """Set values of the policy of a source; those that are left out stay.

        :raises BadRequest: the instance has not our guest agent
        """
        row = controller.find_instance(self.context_of(req), f'{_KEY}:update', id)
        content = self.content_of(body, _KEY, schemas.REPLICATION_POLICY)
        if not trove_db.version_of(row.datastore_version_id).has_our_guest_agent:
            raise trove_exceptions.BadRequest(
                message=f'instance {row.id}: its datastore version has no replicas as clones; a '
                'replication policy has no effect'
            )
        with controller.translated():
            return _shown(row.id, self._store.set(row.id, **content))

    def delete(self, req: Any, tenant_id: str, id: str) -> wsgi.Result:
        """Delete the policy of a source; the operator's defaults apply from then on."""
        row = controller.find_instance(self.context_of(req), f'{_KEY}:delete', id)
        with controller.translated():
            self._store.remove(row.id)
        return wsgi.Result(None, 202)


def _shown(instance_id: str, found: ReplicationPolicy | None) -> wsgi.Result:
    defaults = {name: getattr(CONF.trove_ceph_replication, name) for name in _OPTIONAL}
    return wsgi.Result({_KEY: replica_views.policy(instance_id, found, defaults)}, 200)
