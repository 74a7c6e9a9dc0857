# SPDX-License-Identifier: Apache-2.0
"""``replication_policies``: how the replicas of a source are kept.

A policy has the id of its source. A source without a policy has the operator's defaults.
"""

from typing import Any

import webob.exc
from oslo_config import cfg
from oslo_log import log as logging
from trove.common import exception as trove_exceptions
from trove.common import wsgi

from trove_ceph import exceptions
from trove_ceph.api import controller, replica_views, schemas
from trove_ceph.db import replication_policies
from trove_ceph.db.replica_record import ReplicationPolicy
from trove_ceph.tiers import tier_types, tiers_file
from trove_ceph.trove_adapter import trove_db

CONF = cfg.CONF
LOG = logging.getLogger(__name__)
_KEY = 'replication_policy'
#: The values of a policy whose default is the option of the same name.
_OPTIONAL = ('reprovision_every_hours', 'max_own_percent', 'max_lag_sec')


class ReplicationPoliciesController(controller.Controller):
    """Replication policies.

    :param tiers_file: the path of the file with the volume types for replicas; it may be missing,
        and then no policy can name one
    """

    def __init__(self, store: replication_policies.ReplicationPolicyStore, tiers_file: str):
        self._store = store
        self._tiers_file = tiers_file

    def show(self, req: Any, tenant_id: str, id: str) -> wsgi.Result:
        """Show the policy of a source; without one, what applies to it.

        :raises BadRequest: the instance is a replica
        """
        row = _find_source(self.context_of(req), 'show', id)
        with controller.translated():
            return _shown(row.id, self._store.find(row.id))

    def update(self, req: Any, tenant_id: str, id: str, body: Any = None) -> wsgi.Result:
        """Set values of the policy of a source; those that are left out stay.

        :raises BadRequest: the instance is a replica, or has not our guest agent, or its replicas
            must not have the volume type
        :raises HTTPServiceUnavailable: whether they may have it cannot be told
        """
        context = self.context_of(req)
        row = _find_source(context, 'update', id)
        content = self.content_of(body, _KEY, schemas.REPLICATION_POLICY)
        version = controller.version_of(row)
        if not version.has_our_guest_agent:
            raise trove_exceptions.BadRequest(
                message=f'instance {row.id}: its datastore version has no replicas as clones; a '
                'replication policy has no effect'
            )
        if (volume_type := content.get('replica_volume_type')) is not None:
            self._check_volume_type(context, version, volume_type)
        with controller.translated():
            return _shown(row.id, self._store.set(row.id, **content))

    def delete(self, req: Any, tenant_id: str, id: str) -> wsgi.Result:
        """Delete the policy of a source; the operator's defaults apply from then on.

        :raises BadRequest: the instance is a replica
        """
        row = _find_source(self.context_of(req), 'delete', id)
        with controller.translated():
            self._store.remove(row.id)
        return wsgi.Result(None, 202)

    def _check_volume_type(self, context: Any, version: trove_db.Version, name: str) -> None:
        """Refuse a volume type that is not for the replicas of an instance of a version."""
        try:
            tiers = tiers_file.load(self._tiers_file).for_replicas
        except exceptions.InvalidTiersError as error:
            LOG.error('Policies cannot name a volume type for replicas: %s', error)
            raise webob.exc.HTTPServiceUnavailable(
                f'{_KEY}.replica_volume_type: the volume types for replicas cannot be listed at '
                'present; ask your operator'
            ) from error
        fitting = [
            one for one, tier in tiers.items() if _is_offered(tier, version, context.is_admin)
        ]
        if name not in fitting:
            raise trove_exceptions.BadRequest(
                message=f'{_KEY}.replica_volume_type: {name!r} is no volume type for the replicas '
                f'of this instance; those are {", ".join(fitting) or "none"}'
            )


def _find_source(context: Any, verb: str, instance_id: str) -> Any:
    """Return Trove's row of an instance that may have a policy.

    :raises BadRequest: it is a replica, to which the policy of its source applies
    """
    row = controller.find_instance(context, f'{_KEY}:{verb}', instance_id)
    if row.slave_of_id is not None:
        raise trove_exceptions.BadRequest(
            message=f'instance {row.id}: is a replica; use the policy of its source '
            f'{row.slave_of_id}, which is for all its replicas'
        )
    return row


def _is_offered(tier: tier_types.Tier, version: trove_db.Version, is_admin: bool) -> bool:
    """Return whether a policy may name a tier for the replicas of a datastore version."""
    if tier.purpose is tier_types.Purpose.REPLICA:
        return True
    # Operators keep private types from tenants, and types from the versions that they leave out.
    assert tier.volume_type
    versions = tier.datastore_versions
    is_of_version = not versions or f'{version.datastore}/{version.name}' in versions
    return is_of_version and (tier.volume_type.public or is_admin)


def _shown(instance_id: str, found: ReplicationPolicy | None) -> wsgi.Result:
    defaults = {name: getattr(CONF.trove_ceph_replication, name) for name in _OPTIONAL}
    return wsgi.Result({_KEY: replica_views.policy(instance_id, found, defaults)}, 200)
