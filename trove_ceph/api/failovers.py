# SPDX-License-Identifier: Apache-2.0
"""``failovers``: another server for an instance, with its volume and its addresses."""

import datetime
from typing import Any

from oslo_config import cfg
from trove.common import exception as trove_exceptions
from trove.common import wsgi

from trove_ceph.api import controller, pages, schemas, views
from trove_ceph.db import replacements
from trove_ceph.db.replacement_record import (
    FailoverCause,
    ReplacementKind,
    ReplacementRecord,
    RequestedBy,
)
from trove_ceph.strategies.replacement import requests
from trove_ceph.trove_adapter import notify, replaced_instance

CONF = cfg.CONF
_KEY = 'failover'
#: A forced failover interrupts a server that works.
_MOST_FORCED = 3
_WINDOW = datetime.timedelta(hours=1)


class FailoversController(controller.Controller):
    """The failovers of instances; replacements for a resize are not among them.

    :param store: the replacements of servers
    """

    def __init__(self, store: replacements.ReplacementStore):
        self._store = store

    def index(self, req: Any, tenant_id: str) -> wsgi.Result:
        """List failovers, the latest first."""
        context = self.context_of(req)
        project_id = controller.authorize_list(req, context, _KEY, 'instance_id')
        with controller.translated():
            found = self._store.list(
                instance_id=req.GET.get('instance_id'),
                project_id=project_id,
            )
            failovers = [one for one in found if one.kind is ReplacementKind.FAILOVER]
            page, marker = pages.of(
                failovers,
                context,
                CONF.instances_page_size,
                lambda one: (one.created_at, one.replacement_id),
                lambda one: self._find_of(one, project_id),
            )
        shown = [views.failover(one, with_servers=False) for one in page]
        return pages.answer(req, f'{_KEY}s', shown, marker)

    def show(self, req: Any, tenant_id: str, id: str) -> wsgi.Result:
        """Show one failover."""
        context = self.context_of(req)
        subject = f'failover {id}'
        with controller.translated():
            found = self._store.find(id)
        if found is None or found.kind is not ReplacementKind.FAILOVER:
            raise controller.absent(subject)
        controller.authorize(context, 'failover:show', subject, found.project_id)
        return self._answer(context, found, 200)

    def create(self, req: Any, tenant_id: str, body: Any = None) -> wsgi.Result:
        """Request a failover of an instance.

        :raises HTTPConflict: the instance cannot fail over now, or it is healthy and the request
            is not forced
        :raises OverLimit: too many failovers of the instance were forced within an hour
        """
        context = self.context_of(req)
        content = self.content_of(body, _KEY, schemas.FAILOVER)
        is_forced = content.get('force', False)
        row = controller.find_instance(context, 'failover:create', content['instance'])
        subject = f'instance {row.id}'
        if is_forced:
            controller.authorize(context, 'failover:create:force', subject, row.tenant_id)
        is_own = context.project_id == row.tenant_id
        with controller.translated():
            now = self._store.now()
            facts = replaced_instance.find_facts(row.id)
            if facts is None:
                raise controller.absent(subject)
            record = requests.new_failover(
                facts,
                RequestedBy.TENANT if is_own else RequestedBy.OPERATOR,
                content.get('reason') or '',
                is_forced,
                FailoverCause.REQUEST,
                now,
            )
            if is_forced:
                self._check_rate(row.id, now)
            requested = self._store.request(record, expected_task=facts.task)
        notify.failovers(context)
        return self._answer(context, requested, 202)

    def _find_of(self, failover_id: str, project_id: str | None) -> ReplacementRecord | None:
        """Return a failover of a project; None: of any."""
        found = self._store.find(failover_id)
        return found if found and project_id in (None, found.project_id) else None

    def _check_rate(self, instance_id: str, now: datetime.datetime) -> None:
        """Refuse a forced failover of an instance that had too many within the last hour."""
        forced = sorted(
            one.created_at
            for one in self._store.list(instance_id=instance_id)
            if one.is_forced
            # Resizes and the moves of a host are forced as well.
            and one.kind is ReplacementKind.FAILOVER
            and one.cause in (None, FailoverCause.REQUEST)
            # The clock of the database may have been ahead.
            and now - _WINDOW < one.created_at <= now
        )
        if len(forced) >= _MOST_FORCED:
            again_at = (forced[-_MOST_FORCED] + _WINDOW).replace(microsecond=0)
            raise trove_exceptions.OverLimit(
                message=f'instance {instance_id}: {len(forced)} failovers were forced within an '
                f'hour; force the next one after {views.timestamp(again_at)}'
            )

    @staticmethod
    def _answer(context: Any, record: ReplacementRecord, status: int) -> wsgi.Result:
        with_servers = controller.is_allowed(context, 'failover:show:servers')
        return wsgi.Result({_KEY: views.failover(record, with_servers)}, status)
