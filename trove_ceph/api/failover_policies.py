# SPDX-License-Identifier: Apache-2.0
"""``failover_policies``: which databases are failed over automatically.

Owners set the policies of their instances, operators those of datastores.
"""

from typing import Any

from oslo_utils import strutils
from trove.common import exception as trove_exceptions
from trove.common import policy, wsgi

from trove_ceph.api import controller, datastore_targets, schemas, views
from trove_ceph.db import failover_policies
from trove_ceph.db.failover_record import FailoverPolicy, Preference
from trove_ceph.db.policy_record import Scope
from trove_ceph.strategies.policies import policy_match

_KEY = 'failover_policy'
_OPERATE = f'{_KEY}:operate'


class FailoverPoliciesController(controller.Controller):
    """Failover policies."""

    def __init__(self, store: failover_policies.FailoverPolicyStore):
        self._store = store

    def index(self, req: Any, tenant_id: str) -> wsgi.Result:
        """List the policies of a project, and for operators those of datastores.

        With ``instance_id`` list those that match the instance, including an operator's. The first
        of them applies to it.
        """
        context = self.context_of(req)
        policy.authorize_on_tenant(context, f'{_KEY}:index')
        with controller.translated():
            found = self._store.all()
        if instance_id := req.GET.get('instance_id'):
            row = controller.find_instance(context, f'{_KEY}:index', instance_id)
            version = controller.version_of(row)
            subject = policy_match.Subject(row.id, version.datastore, version.name)
            return _listed(policy_match.matching(policy_match.index(found), subject))
        if strutils.bool_from_string(req.GET.get('all_projects')):
            policy.authorize_on_tenant(context, f'{_KEY}:index:all_projects')
            return _listed(found)
        projects = {context.project_id}
        if controller.is_allowed(context, _OPERATE):
            projects.add(None)
        return _listed([one for one in found if one.project_id in projects])

    def show(self, req: Any, tenant_id: str, id: str) -> wsgi.Result:
        """Show a policy."""
        return _shown(self._find(self.context_of(req), 'show', id), 200)

    def create(self, req: Any, tenant_id: str, body: Any = None) -> wsgi.Result:
        """Create a policy.

        :raises BadRequest: the instance can never fail over, or there is no such datastore
        """
        context = self.context_of(req)
        content = self.content_of(body, _KEY, schemas.FAILOVER_POLICY)
        scope, target = Scope(content['scope']), content['target']
        project_id = None
        if scope is Scope.INSTANCE:
            row = controller.find_instance(context, f'{_KEY}:create', target)
            _check_can_fail_over(row)
            target, project_id = row.id, row.tenant_id
        else:
            policy.authorize_on_tenant(context, _OPERATE)
            datastore_targets.check(_KEY, target)
        with controller.translated():
            created = self._store.add(
                scope,
                target,
                project_id=project_id,
                enabled=content.get('enabled', True),
                prefer=Preference(content.get('prefer', Preference.VOLUME)),
            )
        return _shown(created, 201)

    def edit(self, req: Any, tenant_id: str, id: str, body: Any = None) -> wsgi.Result:
        """Change a policy. The extensions' router maps PATCH to edit."""
        self.check_patch(req)
        self._find(self.context_of(req), 'update', id)
        content = self.content_of(body, _KEY, schemas.FAILOVER_POLICY_CHANGES)
        with controller.translated():
            self._store.change(id, **content)
            found = self._store.find(id)
        if found is None:
            raise controller.absent(_subject(id))
        return _shown(found, 200)

    def delete(self, req: Any, tenant_id: str, id: str) -> wsgi.Result:
        """Delete a policy; that of the datastore, if any, applies from then on."""
        self._find(self.context_of(req), 'delete', id)
        with controller.translated():
            self._store.remove(id)
        return wsgi.Result(None, 202)

    def _find(self, context: Any, verb: str, policy_id: str) -> FailoverPolicy:
        """Return a policy, if the caller may do something with it.

        :raises HTTPNotFound: the policy does not exist, or the caller must not see it
        """
        with controller.translated():
            found = self._store.find(policy_id)
        subject = _subject(policy_id)
        if found is None:
            raise controller.absent(subject)
        rule = f'{_KEY}:{verb}'
        controller.authorize_policy(context, rule, _OPERATE, subject, found.project_id)
        return found


def _check_can_fail_over(row: Any) -> None:
    """Refuse a policy without effect.

    :raises BadRequest: the instance is in a cluster, or has another guest agent
    """
    why = None
    if row.cluster_id is not None:
        why = 'it is in a cluster'
    elif not controller.version_of(row).has_our_guest_agent:
        why = 'its datastore version has another guest agent'
    if why is not None:
        raise trove_exceptions.BadRequest(
            message=f'instance {row.id}: cannot fail over, since {why}; a failover policy has no '
            'effect'
        )


def _subject(policy_id: str) -> str:
    return f'failover policy {policy_id}'


def _listed(policies: list[FailoverPolicy]) -> wsgi.Result:
    shown = [views.failover_policy(one) for one in policies]
    return wsgi.Result({'failover_policies': shown}, 200)


def _shown(policy: FailoverPolicy, status: int) -> wsgi.Result:
    return wsgi.Result({_KEY: views.failover_policy(policy)}, status)
