# SPDX-License-Identifier: Apache-2.0
"""Facts of a healthy cloud, and what breaks each check."""

import dataclasses
import datetime
import functools

from trove_ceph import exceptions
from trove_ceph.db.backup_record import BackupRecord, RecordState, TrashedImage
from trove_ceph.db.orphan_sweeps import OrphanSweep
from trove_ceph.db.policy_record import BackupPolicy, PolicyRun, PolicyRunState, Retention, Scope
from trove_ceph.db.replica_record import ReplicaRecord, ReplicaState
from trove_ceph.db.trove_rows import InstanceRow, SettingRow, VersionRow
from trove_ceph.doctor import settings, version_checks
from trove_ceph.doctor.bus import BusFacts
from trove_ceph.doctor.clone_facts import ClonedVolume
from trove_ceph.doctor.cloud_facts import ServiceFacts
from trove_ceph.doctor.cluster import ClusterFacts, HealthCheck, OsdUse
from trove_ceph.doctor.measurement import Measurement
from trove_ceph.doctor.record_facts import Limits, Records, SchemaFacts
from trove_ceph.storage import image_types
from trove_ceph.tests.unit.tiers import fake_ceph, sample, world
from trove_ceph.tiers import resources

NOW = datetime.datetime(2026, 11, 24, 3)
HOUR = datetime.timedelta(hours=1)
INSTANCE = 'd1e8c0f2-0000-4000-8000-000000000001'
POLICY = 'd1e8c0f2-0000-4000-8000-000000000002'
BACKUP = 'd1e8c0f2-0000-4000-8000-000000000003'
PACIFIC = 'ceph version 16.2.15 (618f) pacific (stable)'
#: A file that exists, for options that name one.
FILE = __file__

CONTENT = sample.read(
    {f'tiers/{name}/copies': 3 for name in ('fast', 'vault', 'images')}
    | {f'tiers/{name}/min_size': 2 for name in ('fast', 'vault', 'images')}
)


def osd(fill, groups=150):
    """Return the use of an OSD."""
    return OsdUse(fill, 10**12, groups)


#: Four hosts, with two OSDs of each of two classes.
CLUSTER = ClusterFacts(
    health=(),
    monitors=('a', 'b', 'c'),
    quorum=('a', 'b', 'c'),
    osds={number: osd(0.5) for number in range(16)},
    backfillfull_ratio=0.9,
    versions={PACIFIC: 12},
    blocklist=('10.0.0.1:0/1',),
    min_compat_client='mimic',
    groups={'volumes-fast': {'active+clean': 63, 'active+clean+scrubbing': 1}},
)
SERVICE = ServiceFacts('cinder', 'cinder-volume', 'host1@fast', True, True, NOW)
BUS = BusFacts(None, 'trove-guestagent.conf', True, False)


@functools.cache
def cloud():
    """Return Ceph, Cinder and Trove as the tiers file describes them."""
    found = world.World(hosts=4)
    systems = found.systems(CONTENT)
    found.apply(CONTENT)
    observed = systems.observe()
    backend = resources.RbdBackend('fast', fake_ceph.FSID, 'volumes-fast', 'cinder')
    volumes = {'fast': (100, 100)}
    cinder = dataclasses.replace(observed.cinder, rbd_backends=(backend,), volumes=volumes)
    return dataclasses.replace(observed, cinder=cinder)


def policy(**values):
    return BackupPolicy(
        POLICY, 'daily', Scope.INSTANCE, INSTANCE, 24 * 60, Retention(last=7), NOW - 90 * 24 * HOUR,
        NOW - 90 * 24 * HOUR, verify_every=7, **values,
    )  # fmt: skip


def backup(hours=3, state=RecordState.VERIFIED, **values):
    """Return the record of a backup that was taken, and verified, some hours ago."""
    at = NOW - hours * HOUR
    more = {'snapshot_at': at, 'verified_at': at} | values
    return BackupRecord(BACKUP, INSTANCE, 'project', state, at, at, **more)


def instance(**values):
    fields = {'heartbeat_at': NOW - datetime.timedelta(seconds=20), 'is_settled': True} | values
    row = InstanceRow(
        INSTANCE, 'project', NOW - 90 * 24 * HOUR, True, 'mysql', '9.7.4', True, None, False
    )
    return dataclasses.replace(row, **fields)


def version(**values):
    row = VersionRow(
        'mysql', '9.7.4', '9.7.4', True, version_checks.GUEST_MANAGER, version_checks.REPLICATION
    )
    return dataclasses.replace(row, **values)


def run(**values):
    fields = {'state': PolicyRunState.DONE} | values
    return PolicyRun(INSTANCE, POLICY, due_at=NOW - 3 * HOUR, backup_name='b', **fields)


def replica(clone_depth, instance_id=INSTANCE, source_id='source'):
    return ReplicaRecord(
        instance_id=instance_id,
        project_id='project',
        source_id=source_id,
        state=ReplicaState.FOLLOWING,
        created_at=NOW,
        updated_at=NOW,
        clone_depth=clone_depth,
    )


def cloned_volume(clone_depth, why_waiting=None):
    return ClonedVolume(
        INSTANCE, image_types.ImageRef('volumes-fast', 'volume-1'), clone_depth, why_waiting
    )


def setting(name='innodb_flush_log_at_trx_commit', value='1'):
    return SettingRow('group', name, value, (INSTANCE,))


def trashed(hours):
    return TrashedImage('volumes-fast', 'id', 'name', NOW - hours * HOUR)


def orphan_sweep(days):
    return OrphanSweep(NOW - days * 24 * HOUR, {'image': 1}, {})


RECORDS = Records(
    now=NOW,
    limits=Limits(heartbeat_sec=180, clone_depth=8, quiesce='none', unsafe_action='refuse'),
    instances=(instance(),),
    versions=(version(),),
    settings=(setting(),),
    backups=(backup(),),
    policies=(policy(),),
    runs={INSTANCE: run()},
    replicas=(replica(1),),
    trashed=(trashed(1),),
    orphan_sweep=orphan_sweep(1),
)


def records(**values):
    return dataclasses.replace(RECORDS, **values)


def values(**other):
    """Return the options of all services, good ones unless others are given."""
    good = {
        'taskmanager_manager': 'trove_ceph.taskmanager.manager.Manager',
        'conductor_manager': 'trove_ceph.conductor.manager.Manager',
        'storage_strategy': 'cinder',
        'trove_volume_support': True,
        'template_path': '/templates',
        'use_nova_server_config_drive': True,
        'taskmanager_rpc_encr_key': 'own',
        'inst_rpc_key_encr_key': 'own',
        'network_isolation': False,
        'tiers_file': FILE,
        'remote_cinder_client': 'trove_ceph.trove_adapter.cinder_client.cinder_client',
        'volume_driver': 'cinder.volume.drivers.rbd.RBDDriver',
        'report_discard_supported': True,
        'send_service_user_token': True,
    } | other
    found = []
    for one in settings.REQUIREMENTS:
        name = one.option.name
        if name == 'template_path':
            one = dataclasses.replace(one, holds=lambda value: value == '/templates')
        found.append(settings.Value(one, one.group or 'fast', good.get(name, one.option.default)))
    return settings.Settings(tuple(found), {})


class FakeSources:
    """Facts in memory.

    :param facts: those that are not healthy, by the name of their source; an exception is raised
    """

    def __init__(self, **facts):
        observed = cloud()
        self._facts = {
            'tiers': CONTENT,
            'fsid': fake_ceph.FSID,
            'ceph': observed.ceph,
            'cluster': CLUSTER,
            'blocklist_expiries': {'a': 604800.0, 'b': 604800.0, 'c': 604800.0},
            'measurements': {'volumes-fast': Measurement('2026-11-01', 90000, 30000, 6)},
            'cinder': observed.cinder,
            'services': (SERVICE,),
            'agent_images': (),
            'associations': observed.trove,
            'settings': values(),
            'bus': BUS,
            'missing_extensions': (),
            'trove_version': '26.0.0',
            'records': RECORDS,
            'schema': SchemaFacts('0012', '0012'),
            'now': NOW,
            'orphans': (),
            'golden_volumes': (),
            'hot_guests': None,
            'cloned_volumes': (cloned_volume(1),),
        } | facts

    def __getattr__(self, name):
        def answer():
            found = self._facts[name]
            if isinstance(found, Exception):
                raise found
            return found

        return answer


def silent():
    """Return sources of which none answers."""
    error = exceptions.ServiceUnavailableError('no answer\nat all')
    return FakeSources(**dict.fromkeys(FakeSources()._facts, error))


def health(code, is_error=False):
    return dataclasses.replace(CLUSTER, health=(HealthCheck(code, is_error, f'{code}!'),))
