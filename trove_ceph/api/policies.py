# SPDX-License-Identifier: Apache-2.0
"""``backup_policies``: schedules and retention of backups.

Owners set the policies of their instances, operators those of tiers and datastores.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import webob.exc
from oslo_log import log as logging
from oslo_utils import strutils
from trove.common import exception as trove_exceptions
from trove.common import policy, wsgi

from trove_ceph import exceptions
from trove_ceph.api import controller, datastore_targets, schemas, views
from trove_ceph.db import policies
from trove_ceph.db.policy_record import BackupPolicy, Retention, Scope
from trove_ceph.strategies.policies import schedule
from trove_ceph.tiers import tiers_file
from trove_ceph.trove_adapter import notify

LOG = logging.getLogger(__name__)

_KEY = 'backup_policy'
_OPERATE = 'backup_policy:operate'


class PoliciesController(controller.Controller):
    """Backup policies.

    :param tiers_file: the path of the file with the names of the tiers; it may be missing
    :param least_interval_min: in minutes; shorter intervals are refused
    """

    def __init__(self, store: policies.PolicyStore, tiers_file: str, least_interval_min: int):
        self._policies = store
        self._tiers_file = tiers_file
        self._least_interval_min = least_interval_min

    def index(self, req: Any, tenant_id: str) -> wsgi.Result:
        """List the policies of a project, and for operators those of tiers and datastores.

        With ``instance_id`` list those that concern the instance, including an operator's.
        """
        context = self.context_of(req)
        policy.authorize_on_tenant(context, 'backup_policy:index')
        if instance_id := req.GET.get('instance_id'):
            return wsgi.Result({'backup_policies': self._of_instance(context, instance_id)}, 200)
        all_projects = strutils.bool_from_string(req.GET.get('all_projects'))
        if all_projects:
            policy.authorize_on_tenant(context, 'backup_policy:index:all_projects')
        projects = {context.project_id}
        if controller.is_allowed(context, _OPERATE):
            projects.add(None)
        with controller.translated():
            found = self._policies.all()
        shown = [views.policy(one) for one in found if all_projects or one.project_id in projects]
        return wsgi.Result({'backup_policies': shown}, 200)

    def show(self, req: Any, tenant_id: str, id: str) -> wsgi.Result:
        """Show a policy and its last runs."""
        found = self._find(self.context_of(req), 'show', id)
        with controller.translated():
            runs = self._policies.runs_of(id)
        shown = views.policy(found) | {'runs': [views.run(one) for one in runs]}
        return wsgi.Result({_KEY: shown}, 200)

    def create(self, req: Any, tenant_id: str, body: Any = None) -> wsgi.Result:
        """Create a policy.

        :raises BadRequest: the instance has another guest agent, or there is no such target
        """
        context = self.context_of(req)
        content = dict(self.content_of(body, _KEY, schemas.POLICY))
        scope, target = Scope(content.pop('scope')), content.pop('target')
        if scope is Scope.INSTANCE:
            found = controller.find_instance(context, 'backup_policy:create', target)
            controller.check_guest_agent(found, 'a backup policy has no effect')
            target, project_id = found.id, found.tenant_id
        else:
            policy.authorize_on_tenant(context, _OPERATE)
            project_id = None
        if scope is Scope.DATASTORE:
            datastore_targets.check(_KEY, target)
        if scope is Scope.TIER:
            _check_tier(self._tiers_file, target)
        self._check_interval(content)
        name, keep = content.pop('name'), Retention(**content.pop('keep'))
        _check(content, keep)
        with controller.translated():
            created = self._policies.add(
                name, scope, target, project_id=project_id, keep=keep, **content
            )
        return wsgi.Result({_KEY: views.policy(created)}, 201)

    def edit(self, req: Any, tenant_id: str, id: str, body: Any = None) -> wsgi.Result:
        """Change the given settings of a policy. The extensions' router maps PATCH to edit."""
        self.check_patch(req)
        context = self.context_of(req)
        before = self._find(context, 'update', id)
        changes = dict(self.content_of(body, _KEY, schemas.POLICY_CHANGES))
        self._check_interval(changes)
        if 'keep' in changes:
            changes['keep'] = dataclasses.replace(before.keep, **changes['keep'])
        after = dataclasses.replace(before, **changes)
        _check(dataclasses.asdict(after), after.keep)
        with controller.translated():
            self._policies.change(id, **changes)
            found = self._policies.find(id)
        if found is None:
            raise controller.absent(f'backup policy {id}')
        return wsgi.Result({_KEY: views.policy(found)}, 200)

    def delete(self, req: Any, tenant_id: str, id: str) -> wsgi.Result:
        """Delete a policy; its backups stay."""
        self._find(self.context_of(req), 'delete', id)
        with controller.translated():
            self._policies.remove(id)
        return wsgi.Result(None, 202)

    def run(self, req: Any, tenant_id: str, id: str, body: Any = None) -> wsgi.Result:
        """Request a backup of each instance that a policy applies to."""
        context = self.context_of(req)
        found = self._find(context, 'run', id)
        if not found.enabled:
            raise webob.exc.HTTPConflict(f'backup policy {id} is disabled')
        with controller.translated():
            self._policies.request_run(id)
            shown = self._policies.find(id) or found
        notify.policies(context)
        return wsgi.Result({_KEY: views.policy(shown)}, 202)

    def _check_interval(self, values: Mapping[str, Any]) -> None:
        """Refuse an interval below this cloud's least one."""
        interval = values.get('interval_min', self._least_interval_min)
        if interval < self._least_interval_min:
            raise _bad(
                'interval_min',
                f'{interval} minutes are too short; the least interval of this cloud is '
                f'{self._least_interval_min} minutes',
            )

    def _of_instance(self, context: Any, instance_id: str) -> list[dict[str, Any]]:
        """Return an instance's own policy and the one that ran last, with its last run."""
        row = controller.find_instance(context, 'backup_policy:index', instance_id)
        with controller.translated():
            run, found = self._policies.find_run(row.id), self._policies.all()
        last = {run.policy_id: [views.run(run)]} if run else {}
        return [
            views.policy(one) | {'runs': last.get(one.policy_id, [])}
            for one in found
            if one.policy_id in last or (one.scope, one.target) == (Scope.INSTANCE, row.id)
        ]

    def _find(self, context: Any, verb: str, policy_id: str) -> BackupPolicy:
        """Return a policy, if the caller may do something with it.

        :raises HTTPNotFound: the policy does not exist, or the caller must not see it
        """
        subject = f'backup policy {policy_id}'
        with controller.translated():
            found = self._policies.find(policy_id)
        if found is None:
            raise controller.absent(subject)
        rule = f'{_KEY}:{verb}'
        controller.authorize_policy(context, rule, _OPERATE, subject, found.project_id)
        return found


def _check_tier(path: str, target: str) -> None:
    """Refuse a target that is not a tier of volumes, if the tiers file can be read."""
    try:
        tiers = tiers_file.load(path).tiers.values()
    except exceptions.InvalidTiersError as error:
        LOG.warning('A policy for tier %s is accepted without a check: %s', target, error)
        return
    names = [one.name for one in tiers if one.volume_type]
    if target not in names:
        raise _bad('target', f'{target!r} is not a tier of volumes; those are {", ".join(names)}')


def _check(values: Mapping[str, Any], keep: Retention) -> None:
    """Refuse settings that contradict each other."""
    if not any(dataclasses.astuple(keep)):
        raise _bad('keep', 'no backup would be kept; set a number, for example {"last": 7}')
    try:
        schedule.zone(values.get('timezone', 'UTC'))
    except ValueError as error:
        raise _bad('timezone', f'{error}') from error
    interval = values['interval_min']
    if values.get('at') and interval > schedule.MINUTES_OF_DAY:
        if interval % schedule.MINUTES_OF_DAY:
            raise _bad(
                'interval_min',
                f'{interval} minutes are not a number of whole days, which a time of day requires',
            )


def _bad(key: str, problem: str) -> trove_exceptions.BadRequest:
    return trove_exceptions.BadRequest(message=f'{_KEY}.{key}: {problem}')
