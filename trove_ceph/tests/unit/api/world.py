# SPDX-License-Identifier: Apache-2.0
"""Trove's real API with the extension in it, on Trove's tables and ours in SQLite.

Nova, Neutron, the bus and keystonemiddleware are at its ends: the last one's headers are sent.
"""

import datetime
import json
import types
import uuid

import cinderclient.exceptions
import fixtures
import webob
from trove.common import api, auth, extensions, wsgi
from trove.common import cfg as trove_cfg
from trove.common import context as trove_context
from trove.db import get_db_api
from trove.instance import models as instance_models
from trove.instance.service_status import ServiceStatuses

from trove_ceph.api import extension
from trove_ceph.db import (
    backups,
    claims,
    failover_policies,
    policies,
    replacements,
    replica_record,
    replicas,
    replication_policies,
    transactions,
)
from trove_ceph.db.replacement_states import Event
from trove_ceph.db.replica_states import Event as Replica
from trove_ceph.tests.unit.strategies import world as worlds
from trove_ceph.tests.unit.taskmanager import trove_database

CONF = trove_cfg.CONF
TIERS = """
tiers:
  gold:
    purpose: data
    device_class: nvme
    pool: volumes
    copies: 2
    placement_groups: {count: 32}
    volume_type: {name: nvme, backend: nvme}
  archive:
    purpose: vault
    device_class: hdd
    pool: vault
    copies: 2
    placement_groups: {count: 32}
"""

WORKER = claims.Claimant('worker')


class TiersFile(fixtures.Fixture):
    """A tiers file in Trove's configuration.

    :param content: by default gold has the purpose data, and archive vault
    """

    def __init__(self, content=TIERS):
        super().__init__()
        self._content = content

    def _setUp(self):
        path = self.useFixture(fixtures.TempDir()).join('tiers.yaml')
        with open(path, 'w') as tiers:
            tiers.write(self._content)
        CONF.set_override('tiers_file', path, 'trove_ceph_backup')
        self.addCleanup(CONF.clear_override, 'tiers_file', 'trove_ceph_backup')


class World(fixtures.Fixture):
    """The API, with two projects."""

    def _setUp(self):
        trove_database.path()
        # Trove reads its policy file from the directory of its configuration.
        CONF([], project='trove', default_config_files=[])
        self.addCleanup(CONF.clear)
        facade = worlds.emptied()
        self.records = backups.BackupStore(facade)
        #: The worker that takes backups.
        self.claims = {}
        self.policies = policies.PolicyStore(self.records._transactions)
        #: The time by the clock of the database, for replacements and replicas.
        self.now = datetime.datetime(2026, 1, 1, 12)
        timed = transactions.Transactions(facade, clock=lambda: self.now)
        self.replacements = replacements.ReplacementStore(timed)
        self.replicas = replicas.ReplicaStore(timed)
        self.replication_policies = replication_policies.ReplicationPolicyStore(timed)
        self.failover_policies = failover_policies.FailoverPolicyStore(self.records._transactions)
        self.project, self.other = (f'project-{uuid.uuid4()}' for _ in range(2))
        # The calls to the taskmanager, and the notifications.
        self.casts, self.notifications = [], []
        self._fake_clouds()
        for name, store in (
            ('backups.BackupStore', self.records),
            ('policies.PolicyStore', self.policies),
            ('replacements.ReplacementStore', self.replacements),
            ('failover_policies.FailoverPolicyStore', self.failover_policies),
            ('replicas.ReplicaStore', self.replicas),
            ('replication_policies.ReplicationPolicyStore', self.replication_policies),
        ):
            self.useFixture(
                fixtures.MonkeyPatch(f'trove_ceph.db.{name}', lambda store=store: store)
            )
        self.app = _app()

    def restart(self):
        """Restart the API, which reads some options when it starts."""
        self.app = _app()

    def _fake_clouds(self):
        self.server = types.SimpleNamespace(status='ACTIVE')
        nova = types.SimpleNamespace(servers=types.SimpleNamespace(get=lambda _: self.server))
        neutron = types.SimpleNamespace(list_ports=lambda **_: {'ports': []})
        self.volume_type = 'nvme'
        cinder = types.SimpleNamespace(volumes=types.SimpleNamespace(get=self._volume))
        notifier = types.SimpleNamespace(
            info=lambda context, event, payload: self.notifications.append((event, dict(payload)))
        )
        for name, value in (
            ('trove.common.clients.create_nova_client', lambda *_, **__: nova),
            ('trove.common.clients.create_cinder_client', lambda *_, **__: cinder),
            ('trove.common.clients.create_neutron_client', lambda *_, **__: neutron),
            ('trove.rpc.get_notifier', lambda **_: notifier),
            ('trove.taskmanager.api.API.get_client', lambda *_, **__: Bus(self.casts)),
        ):
            self.useFixture(fixtures.MonkeyPatch(name, value))

    def _volume(self, volume_id):
        """Return a volume of Cinder; None as its type: Cinder does not know the volume."""
        if self.volume_type is None:
            raise cinderclient.exceptions.NotFound(404, f'volume {volume_id}')
        return types.SimpleNamespace(id=volume_id, volume_type=self.volume_type)

    def add_instance(self, project=None, **facts):
        return trove_database.add_instance(project or self.project, str(uuid.uuid4()), **facts)

    def report(self, instance, status=ServiceStatuses.HEALTHY):
        """Let the guest agent of an instance report now."""
        row = instance_models.InstanceServiceStatus.find_by(instance_id=instance.id)
        row.set_status(status)
        row.updated_at = self.now
        # Not by the model, which would set the time of the host.
        get_db_api().save(row)

    def add_backup(self, instance, state=None, **facts):
        """Return a backup in one of our states."""
        row = trove_database.add_backup(instance, **facts)
        if state is not None:
            claim = self.records.begin_taking(row.id, instance.id, instance.tenant_id, WORKER)
            self.claims[row.id] = claim
        if state == 'taken':
            self.records.record_taken(claim, 'snapshot', 'cinder-id', 1.5)
            row.update(state='COMPLETED')
        return row

    def add_replica(self, source, is_clone=True, **observed):
        """Return a replica that was cloned now, and what the watch has found of it.

        :param is_clone: whether its volume is a clone, unlike that of a former source
        """
        replica = self.add_instance(project=source.tenant_id, slave_of_id=source.id)
        self.replicas.register(
            *(replica.id, replica.tenant_id, source.id, replica.volume_id),
            cloned_at=self.now if is_clone else None,
        )
        if observed:
            found = replica_record.Observation(**observed)
            self.replicas.observe(self.replicas.find(replica.id), found)
        return replica

    def reprovision(self, replica, *events, **values):
        """Let a worker take a requested re-provisioning through some events, and set columns."""
        claim = self.replicas.claim(replica.id, WORKER)
        for event in events:
            self.replicas.advance(claim, event)
        self.replicas.note(claim, **values)
        return claim

    def end_reprovisioning(self, replica, error=None):
        """Let a worker complete a re-provisioning, or fail it before anything was changed."""
        if error is None:
            events = (Replica.CLONE, Replica.EXCHANGE, Replica.EXCHANGED)
            self.replicas.complete(self.reprovision(replica, *events))
        else:
            self.replicas.fail(self.reprovision(replica), error)

    def fail_over(self, failover_id, **values):
        """Let a worker do what a failover does up to the new server, and set columns."""
        claim = self.replacements.claim(failover_id, WORKER)
        self.replacements.advance(claim, Event.FENCE)
        self.replacements.advance(claim, Event.MOVE, fenced_at=self.now, **values)
        self.replacements.claims.release(claim)

    def end(self, failover_id, error=None):
        """Let a worker complete a failover, or fail it for a reason."""
        if error is None and self.replacements.find(failover_id).fenced_at is None:
            self.fail_over(failover_id)
        claim = self.replacements.claim(failover_id, WORKER)
        if error is None:
            self.replacements.advance(claim, Event.SHOW)
            self.replacements.complete(claim)
        else:
            self.replacements.fail(claim, error)

    def cancel(self, failover_id):
        """Let a worker see that the instance of a failover is being deleted."""
        self.replacements.cancel(self.replacements.claim(failover_id, WORKER))

    def ask(self, method, path, body=None, project=None, role='member'):
        """Make a request, and return the status and content of the answer."""
        project = project or self.project
        request = webob.Request.blank(f'/v1.0/{project}{path}', method=method)
        request.headers.update(headers(project, role))
        if body is not None:
            request.content_type = 'application/json'
            request.body = json.dumps(body).encode()
        response = self.serve(request)
        return response.status_int, response.json if response.body else None

    def serve(self, request):
        # As Trove's URL map passes it on.
        assert request.path_info_pop() == 'v1.0'
        return request.get_response(self.app)


class Bus:
    """The message bus to the taskmanager, which carries JSON."""

    def __init__(self, casts):
        self._casts = casts

    def prepare(self, **_options):
        return self

    def cast(self, context, method, **arguments):
        crossed = trove_context.TroveContext.from_dict(json.loads(json.dumps(context.to_dict())))
        self._casts.append((method, crossed, json.loads(json.dumps(arguments))))


def headers(project, role):
    """Return the headers that keystonemiddleware adds for a token."""
    return {
        'X-Auth-Token': 'token',
        'X-Tenant-Id': project,
        'X-User-Id': 'user',
        'X-Role': role,
        'X-Roles': role,
    }


def _app():
    manager = extensions.ExtensionManager()
    for ours in (
        extension.BackupsOnCeph(),
        extension.Failovers(),
        extension.InstanceDetails(),
        extension.Replication(),
    ):
        # Not by the entry point, which may belong to an earlier installation.
        manager.extensions[ours.get_alias()] = ours
    app = extensions.TroveExtensionMiddleware(api.API(), manager)
    app = wsgi.ContextMiddleware(app)
    app = auth.AuthorizationMiddleware.factory({})(app)
    return wsgi.FaultWrapper.factory({})(app)
