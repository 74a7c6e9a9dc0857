# SPDX-License-Identifier: Apache-2.0
"""``backup_details``: what Trove does not show of backups, and what it cannot be asked for."""

from collections.abc import Sequence
from typing import Any

import webob.exc
from oslo_config import cfg
from oslo_utils import strutils
from trove.backup import models as backup_models
from trove.common import exception as trove_exceptions
from trove.common import pagination, policy, wsgi

from trove_ceph.api import controller, schemas, views
from trove_ceph.db import backup_record, backups, policies
from trove_ceph.enums import QuiesceLevel
from trove_ceph.strategies.backup.options import BackupOptions
from trove_ceph.trove_adapter import backup_api, notify

CONF = cfg.CONF
_KEY = 'backup_detail'


class DetailsController(controller.Controller):
    """Backups as Trove lists them, with what is known of them besides.

    :param kept: what is known of backups
    """

    def __init__(self, kept: backups.BackupStore, known: policies.PolicyStore):
        self._records = kept
        self._policies = known

    def index(self, req: Any, tenant_id: str) -> wsgi.Result:
        """List backups, the latest first."""
        context = self.context_of(req)
        policy.authorize_on_tenant(context, 'backup_detail:index')
        everybody = strutils.bool_from_string(req.GET.get('all_projects'))
        if everybody:
            policy.authorize_on_tenant(context, 'backup_detail:index:all_projects')
        filters = {'deleted': False} | ({} if everybody else {'tenant_id': context.project_id})
        if req.GET.get('instance_id'):
            filters['instance_id'] = req.GET['instance_id']
        rows: Sequence[Any] = sorted(
            backup_models.DBBackup.find_all(**filters),
            key=lambda row: (row.created, row.id),
            reverse=True,
        )
        with controller.translated():
            found = self._records.all() if everybody else self._of(context, filters)
            known = {one.backup_id: one for one in found}
            if state := req.GET.get('state'):
                rows = [row for row in rows if row.id in known and known[row.id].state == state]
            rows, marker = _page(rows, context)
            taken_by = self._policies.policies_of(row.id for row in rows)
        shown = [
            views.detail(row, known.get(row.id), taken_by.get(row.id), with_places=False)
            for row in rows
        ]
        listed = _View({f'{_KEY}s': shown})
        paged = pagination.SimplePaginatedDataView(req.url, f'{_KEY}s', listed, marker)
        return wsgi.Result(paged.data(), 200)

    def show(self, req: Any, tenant_id: str, id: str) -> wsgi.Result:
        """Show one backup."""
        context = self.context_of(req)
        row = _find(context, 'backup_detail:show', id)
        return wsgi.Result({_KEY: self._shown(context, row)}, 200)

    def create(self, req: Any, tenant_id: str, body: Any = None) -> wsgi.Result:
        """Take a backup as Trove does, in a way that it cannot be asked for."""
        context = self.context_of(req)
        policy.authorize_on_tenant(context, 'backup_detail:create')
        wanted = self.content_of(body, _KEY, schemas.BACKUP)
        quiesce = wanted.get('quiesce')
        asked = BackupOptions(
            QuiesceLevel(quiesce) if quiesce else None,
            copy=wanted.get('copy', False),
            verify=wanted.get('verify', False),
        )
        row = backup_api.create(
            context,
            wanted['instance'],
            wanted['name'],
            wanted.get('description'),
            asked,
            request=req,
        )
        return wsgi.Result({_KEY: views.detail(row, None, None, with_places=False)}, 202)

    def copy(self, req: Any, tenant_id: str, id: str, body: Any = None) -> wsgi.Result:
        """Have a backup be copied to the vault, soon."""
        context = self.context_of(req)
        row = _find(context, 'backup_detail:copy', id)
        # Of one that is suspected or damaged, a copy is made once it is found sound.
        self._check(
            id, {state for state in backup_record.RecordState if state.can_be_restored}, 'copied'
        )
        with controller.translated():
            self._records.queue.request_copy(id)
        notify.backup_work(context)
        return wsgi.Result({_KEY: self._shown(context, row)}, 202)

    def verify(self, req: Any, tenant_id: str, id: str, body: Any = None) -> wsgi.Result:
        """Have a backup be verified, soon, whether it was before or not."""
        context = self.context_of(req)
        row = _find(context, 'backup_detail:verify', id)
        able = {state for state in backup_record.RecordState if state.can_be_verified}
        self._check(id, able, 'verified')
        with controller.translated():
            self._records.queue.request_verification(id)
        notify.backup_work(context)
        return wsgi.Result({_KEY: self._shown(context, row)}, 202)

    def _of(self, context: Any, filters: dict[str, Any]) -> list[backup_record.BackupRecord]:
        if 'instance_id' in filters:
            return self._records.of_instance(filters['instance_id'])
        return self._records.of_project(context.project_id)

    def _check(self, backup_id: str, able: set[backup_record.RecordState], what: str) -> None:
        with controller.translated():
            record = self._records.find(backup_id)
        if record is None:
            raise webob.exc.HTTPConflict(
                f'backup {backup_id} cannot be {what}: it is not begun, or not on Ceph'
            )
        if record.state not in able:
            reason = f': {record.error}' if record.error else ''
            raise webob.exc.HTTPConflict(
                f'backup {backup_id} cannot be {what}: it is {record.state}{reason}'
            )

    def _shown(self, context: Any, row: Any) -> dict[str, Any]:
        with controller.translated():
            record = self._records.find(row.id)
            policy_id = self._policies.policies_of([row.id]).get(row.id)
        with_places = controller.is_allowed(context, 'backup_detail:show:places')
        return views.detail(row, record, policy_id, with_places)


class _View:
    """A list as Trove's pagination takes it."""

    def __init__(self, content: dict[str, Any]):
        self._content = content

    def data(self) -> dict[str, Any]:
        return self._content


def _find(context: Any, rule: str, backup_id: str) -> Any:
    what = f'backup {backup_id}'
    found = backup_models.DBBackup.find_all(id=backup_id, deleted=False)
    row = next(iter(found), None)
    if row is None:
        raise controller.absent(what)
    controller.authorize(context, rule, what, row.tenant_id)
    return row


def _page(rows: Sequence[Any], context: Any) -> tuple[Sequence[Any], str | None]:
    """Return one page, and what the next one is asked for with."""
    try:
        limit = min(int(context.limit or CONF.backups_page_size), CONF.backups_page_size)
    except ValueError:
        limit = 0
    if limit < 1:
        raise trove_exceptions.BadRequest(message='limit: must be a number from 1 on')
    begin = 0
    if context.marker:
        numbers = [number for number, row in enumerate(rows) if row.id == context.marker]
        if not numbers:
            raise trove_exceptions.BadRequest(message='marker: must be the id of a listed backup')
        begin = numbers[0] + 1
    page = rows[begin : begin + limit]
    return page, page[-1].id if begin + limit < len(rows) else None
