# SPDX-License-Identifier: Apache-2.0
"""``backup_details``: the details of backups and the requests that Trove's API lacks."""

from collections.abc import Sequence
from typing import Any

import webob.exc
from oslo_config import cfg
from trove.backup import models as backup_models
from trove.common import policy, wsgi

from trove_ceph.api import controller, pages, schemas, views
from trove_ceph.db import backup_record, backups, policies
from trove_ceph.enums import QuiesceLevel
from trove_ceph.strategies.backup.options import BackupOptions
from trove_ceph.trove_adapter import backup_api, notify

CONF = cfg.CONF
_KEY = 'backup_detail'


class DetailsController(controller.Controller):
    """Backups as Trove lists them, with the details in our records.

    :param records: the records of backups
    :param policy_store: the policies, which know the backups they took
    """

    def __init__(self, records: backups.BackupStore, policy_store: policies.PolicyStore):
        self._records = records
        self._policies = policy_store

    def index(self, req: Any, tenant_id: str) -> wsgi.Result:
        """List backups, the latest first."""
        context = self.context_of(req)
        project_id = controller.authorize_list(req, context, _KEY, 'instance_id')
        filters = {'deleted': False} | ({'tenant_id': project_id} if project_id else {})
        if req.GET.get('instance_id'):
            filters['instance_id'] = req.GET['instance_id']
        with controller.translated():
            rows: Sequence[Any] = list(backup_models.DBBackup.find_all(**filters))
            by_id = {one.backup_id: one for one in self._of(filters)}
            if state := req.GET.get('state'):
                rows = [row for row in rows if row.id in by_id and by_id[row.id].state == state]
            find = pages.found_in(backup_models.DBBackup, project_id)
            rows, marker = pages.of(rows, context, CONF.backups_page_size, pages.row_position, find)
            policy_ids = self._policies.policies_of(row.id for row in rows)
            now = self._policies.database_time()
        shown = [
            views.detail(row, by_id.get(row.id), policy_ids.get(row.id), False, now) for row in rows
        ]
        return pages.answer(req, f'{_KEY}s', shown, marker)

    def show(self, req: Any, tenant_id: str, id: str) -> wsgi.Result:
        """Show one backup."""
        context = self.context_of(req)
        row = _find(context, 'backup_detail:show', id)
        return wsgi.Result({_KEY: self._shown(context, row)}, 200)

    def create(self, req: Any, tenant_id: str, body: Any = None) -> wsgi.Result:
        """Take a backup as Trove does, with options that Trove's API lacks.

        :raises BadRequest: it has such options, and the instance another guest agent
        """
        context = self.context_of(req)
        policy.authorize_on_tenant(context, 'backup_detail:create')
        content = self.content_of(body, _KEY, schemas.BACKUP)
        quiesce = content.get('quiesce')
        options = BackupOptions(
            QuiesceLevel(quiesce) if quiesce else None,
            copy=content.get('copy', False),
            verify=content.get('verify', False),
        )
        found = controller.find_instance(context, 'backup_detail:create', content['instance'])
        if options != BackupOptions():
            controller.check_guest_agent(
                found, 'Trove takes its backups by itself, without quiesce, copy and verify'
            )
        with controller.translated():
            row = backup_api.create(
                context,
                found.id,
                content['name'],
                content.get('description'),
                options,
                request=req,
            )
        shown = views.detail(row, None, None, with_locations=False, now=row.created)
        return wsgi.Result({_KEY: shown}, 202)

    def copy(self, req: Any, tenant_id: str, id: str, body: Any = None) -> wsgi.Result:
        """Request a copy of a backup in the vault."""
        context = self.context_of(req)
        row = _find(context, 'backup_detail:copy', id)
        # A suspected or damaged backup is copied once a verification finds it sound.
        self._check(
            id, {state for state in backup_record.RecordState if state.can_be_restored}, 'copied'
        )
        with controller.translated():
            self._records.queue.request_copy(id)
        notify.backup_work(context)
        return wsgi.Result({_KEY: self._shown(context, row)}, 202)

    def verify(self, req: Any, tenant_id: str, id: str, body: Any = None) -> wsgi.Result:
        """Request a verification of a backup, even if it was verified before."""
        context = self.context_of(req)
        row = _find(context, 'backup_detail:verify', id)
        allowed = {state for state in backup_record.RecordState if state.can_be_verified}
        self._check(id, allowed, 'verified')
        with controller.translated():
            self._records.queue.request_verification(id)
        notify.backup_work(context)
        return wsgi.Result({_KEY: self._shown(context, row)}, 202)

    def _of(self, filters: dict[str, Any]) -> list[backup_record.BackupRecord]:
        if 'instance_id' in filters:
            return self._records.of_instance(filters['instance_id'])
        if 'tenant_id' in filters:
            return self._records.of_project(filters['tenant_id'])
        return self._records.all()

    def _check(
        self, backup_id: str, allowed: set[backup_record.RecordState], participle: str
    ) -> None:
        with controller.translated():
            record = self._records.find(backup_id)
        if record is None:
            raise webob.exc.HTTPConflict(
                f'backup {backup_id} cannot be {participle}: it has not begun, or is not on Ceph'
            )
        if record.state not in allowed:
            reason = f': {record.error}' if record.error else ''
            raise webob.exc.HTTPConflict(
                f'backup {backup_id} cannot be {participle}: it is {record.state}{reason}'
            )

    def _shown(self, context: Any, row: Any) -> dict[str, Any]:
        with controller.translated():
            record = self._records.find(row.id)
            policy_id = self._policies.policies_of([row.id]).get(row.id)
            now = self._policies.database_time()
        with_locations = controller.is_allowed(context, 'backup_detail:show:places')
        return views.detail(row, record, policy_id, with_locations, now)


def _find(context: Any, rule: str, backup_id: str) -> Any:
    subject = f'backup {backup_id}'
    with controller.translated():
        found = list(backup_models.DBBackup.find_all(id=backup_id, deleted=False))
    row = next(iter(found), None)
    if row is None:
        raise controller.absent(subject)
    controller.authorize(context, rule, subject, row.tenant_id)
    return row
