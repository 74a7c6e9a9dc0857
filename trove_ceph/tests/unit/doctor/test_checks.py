# SPDX-License-Identifier: Apache-2.0
"""Each check on a healthy cloud, on a broken one, and on one that does not answer."""

import dataclasses
import datetime
import tomllib
from pathlib import Path

from oslotest import base

from trove_ceph.db.backup_record import RecordState
from trove_ceph.db.policy_record import PolicyRunState
from trove_ceph.doctor import check, checks, cloud_facts
from trove_ceph.doctor.bus import BusFacts
from trove_ceph.doctor.finding import Finding, Level, worst, worst_first
from trove_ceph.doctor.golden_facts import HotGuests
from trove_ceph.doctor.measurement import Measurement
from trove_ceph.doctor.record_facts import SchemaFacts
from trove_ceph.storage import golden
from trove_ceph.tests.unit.doctor import facts, version_facts
from trove_ceph.tests.unit.doctor.changed_facts import (
    GOLDEN,
    backend,
    backups,
    caps,
    ceph,
    cloned_volumes,
    cluster,
    coded,
    golden_volumes,
    groups,
    hot_guests,
    last_backups,
    limits,
    osds,
    pool,
    records,
    rule,
    service,
    used,
)
from trove_ceph.tests.unit.tiers import sample, world

CHECKOUT = Path(__file__).parents[4]
E, W, U = Level.ERROR, Level.WARNING, Level.UNKNOWN
HOUR = facts.HOUR
HOT_VOLUME = 'trove-taskmanager [trove_ceph_guests] hot_volume'


def empty():
    """Return the systems before the tiers were applied."""
    return world.World().systems(facts.CONTENT).observe()


BY_OSD = rule('volumes-fast', failure_domain='osd')['ceph']
FAILED = {'state': RecordState.FAILED, 'error': 'gtid_mode=OFF (remedy: set gtid_mode = ON)'}
RAISED = {'raised_from': 'none', 'raised_because': 'sync_binlog=0 (remedy: set sync_binlog = 1)'}
IN_TIER = {'pool': 'volumes-fast', 'image': 'i', 'snapshot': 's'}
IN_NO_TIER = IN_TIER | {'pool': 'former'}
COPIED = {'vault_pool': 'v', 'vault_image': 'i', 'vault_snapshot': 's'}
# Conductors refuse the reports of other agents, too.
NO_KEY = (facts.instance(has_key=False, has_our_guest_agent=False),)
UNSAFE = (facts.setting(value='2'),)
#: Each check with facts that break it, and the level and object of the worst finding.
BROKEN = {
    'health': [
        ({'cluster': facts.health('OSD_DOWN')}, W, 'OSD_DOWN'),
        ({'cluster': facts.health('PG_AVAILABILITY', True)}, E, 'PG_AVAILABILITY'),
    ],
    'monitors': [
        (cluster(monitors=('a',), quorum=('a',)), W, 'monitors'),
        (cluster(monitors=tuple('abcd'), quorum=tuple('abcd')), W, 'monitors'),
        (cluster(quorum=('a', 'b')), E, 'monitor c'),
    ],
    'monitor-clocks': [({'cluster': facts.health('MON_CLOCK_SKEW')}, E, 'clocks of the monitors')],
    'ceph-version': [
        (cluster(versions={'ceph version 15.2.17 (8a82) octopus': 1}), E, '1 daemons of Ceph'),
        (cluster(versions={'ceph version 16.1.0 (8a82) pacific': 2}), E, '2 daemons of Ceph'),
        (
            cluster(versions={facts.PACIFIC: 1, 'ceph version 18.2.4 (e7ad)': 1}),
            W,
            'daemons of Ceph',
        ),
    ],
    'clone-format': [
        (cluster(min_compat_client='luminous'), W, 'require_min_compat_client'),
        *(
            (cluster(min_compat_client=name), W, 'require_min_compat_client')
            for name in ('', 'unknown', 'unspecified')
        ),
    ],
    'redundancy': [
        (pool('vault', size=1, min_size=1), E, 'pool vault'),
        (pool('volumes-fast', min_size=1), W, 'pool volumes-fast'),
        (coded(k=4, m=2), W, 'pool vault-data'),
        (cluster(groups={'vault': {'active+undersized+degraded': 2}}), W, 'pool vault'),
        (cluster(groups={'vault': {'down': 1}}), E, 'pool vault'),
        (cluster(groups={'vault': {'peering': 1}}), E, 'pool vault'),
        (cluster(groups={'vault': {'active+clean+inconsistent': 1}}), E, 'pool vault'),
    ],
    'fill': [
        (used('volumes-fast', 0.7), W, 'pool volumes-fast'),
        (used('volumes-fast', 0.8), E, 'pool volumes-fast'),
        (osds({3: facts.osd(0.75)}), W, 'osd.3'),
        (osds({4: facts.osd(0.9)}), E, 'osd.4'),
    ],
    'blocklist': [(cluster(blocklist=tuple(map(str, range(51)))), W, 'blocklist')],
    'blocklist-expiry': [
        ({'blocklist_expiries': {'a': 604800.0, 'b': 3600.0}}, E, 'monitor b'),
        ({'blocklist_expiries': {'a': 604799.0}}, E, 'monitor a'),
    ],
    'healing': [
        # Of the four hosts that three copies need, each has two.
        (ceph(osds=facts.cloud().ceph.osds[:12]), W, 'pool volumes-fast'),
        (pool('volumes-fast', size=4), W, 'pool volumes-fast'),
        # The others have 3/4 of the space.
        (osds(dict.fromkeys(range(16), facts.osd(0.68))), W, 'pool volumes-fast'),
    ],
    'failure-domains': [(rule('volumes-fast', failure_domain='osd'), W, 'pool volumes-fast')],
    'device-classes': [(rule('volumes-fast', device_class=None), W, 'pool volumes-fast')],
    'placement-groups': [
        (osds(dict.fromkeys(range(16), facts.osd(0.1, 201))), W, 'device class hdd'),
        # The autoscaler chooses those of the class hdd.
        (osds(dict.fromkeys(range(16), facts.osd(0.1, 74))), W, 'device class nvme'),
        # The power of two below, or above, is nearer.
        (groups(66, share=0.9), W, 'device class nvme'),
        (groups(301, share=1, per_osd=200), W, 'device class nvme'),
    ],
    'pools': [
        ({'ceph': empty().ceph}, E, 'erasure code profile vault-data'),
        (pool('volumes-fast', size=2), W, 'pool volumes-fast'),
        (ceph(osds=()), W, 'tiers'),
    ],
    'caps': [
        (ceph(users={}), E, 'cephx user client.cinder'),
        (caps('client.cinder', osd='profile rbd pool=other'), E, 'cephx user client.cinder'),
        (caps('client.storage', mgr='allow *'), E, 'cephx user client.storage'),
    ],
    'volume-types': [({'cinder': empty().cinder}, E, 'QoS specs fast')],
    'back-ends': [
        (backend(pool='other'), E, 'back end fast'),
        (backend(fsid='other'), E, 'back end fast'),
    ],
    'datastore-versions': [
        ({'associations': empty().trove}, W, 'datastore version mysql/9.7.4'),
    ],
    'tiers-of-backups': [
        (backups(facts.backup(**IN_NO_TIER)), W, 'pool former'),
        (backups(facts.backup(state=RecordState.DELETING, **IN_NO_TIER)), E, 'pool former'),
        (backups(facts.backup(**IN_TIER | COPIED)), W, 'pool v'),
    ],
    'promised-iops': [
        ({'measurements': {}}, W, 'pool volumes-fast'),
        (
            {'measurements': {'volumes-fast': Measurement('2026', 5999, 9000, 6)}},
            E,
            'pool volumes-fast',
        ),
        (
            {'measurements': {'volumes-fast': Measurement('2026', 9000, 5999, 6)}},
            W,
            'pool volumes-fast',
        ),
        (
            {'measurements': {'volumes-fast': Measurement('2026', 9000, 9000, 9)}},
            W,
            'pool volumes-fast',
        ),
    ],
    'services': [
        (service(is_up=False), E, 'cinder-volume on host1@fast'),
        (service(is_up=False, updated_at=None), E, 'cinder-volume on host1@fast'),
    ],
    'service-clocks': [
        (service(updated_at=facts.NOW + datetime.timedelta(seconds=31)), E, 'clock of host1@fast'),
    ],
    'configuration': [
        (
            {'settings': facts.values(taskmanager_manager='trove.taskmanager.manager.Manager')},
            E,
            'trove-taskmanager [DEFAULT] taskmanager_manager',
        ),
        (
            {'settings': facts.values(conductor_manager='trove.conductor.manager.Manager')},
            E,
            'trove-conductor [DEFAULT] conductor_manager',
        ),
        (
            {'settings': facts.values(report_discard_supported=False)},
            W,
            'cinder-volume [fast] report_discard_supported',
        ),
        (
            {'settings': facts.settings.Settings((), {facts.settings.Service.NOVA: 'no file'})},
            U,
            'configuration of nova-compute',
        ),
    ],
    'trove-version': [
        ({'trove_version': '24.0.1'}, E, 'Trove'),
        ({'trove_version': '27.0.0.0rc1'}, E, 'Trove'),
    ],
    'api-extensions': [
        (
            {'missing_extensions': (missing,)},
            E,
            f'API extension {missing}',
        )
        for missing in cloud_facts.API_LISTS
    ],
    'message-bus': [
        ({'bus': BusFacts('no url', 'f', True, False)}, E, 'message bus of the storage service'),
        ({'bus': BusFacts(None, 'f', True, True)}, E, "the guests' user of RabbitMQ"),
        ({'bus': BusFacts(None, 'f', True, None, 'down')}, U, "the guests' user of RabbitMQ"),
        ({'bus': BusFacts(None, 'f', False, False)}, W, "the guests' user of RabbitMQ"),
    ],
    'database-schema': [
        ({'schema': SchemaFacts('0011', '0012')}, E, 'tables of trove_ceph'),
        ({'schema': SchemaFacts(None, '0012')}, E, 'tables of trove_ceph'),
    ],
    **version_facts.BROKEN,
    'agents': [
        (
            records(instances=(facts.instance(heartbeat_at=facts.NOW - HOUR),)),
            E,
            f'agent of {facts.INSTANCE}',
        ),
        (records(instances=(facts.instance(heartbeat_at=None),)), E, f'agent of {facts.INSTANCE}'),
    ],
    'agent-keys': [(records(instances=NO_KEY), E, f'agent of {facts.INSTANCE}')],
    'clone-depth': [
        (records(replicas=(facts.replica(7),)), W, f'replica {facts.INSTANCE}'),
        (records(replicas=(facts.replica(8),)), E, f'replica {facts.INSTANCE}'),
    ],
    'source-depth': [
        (cloned_volumes(7), W, f'instance {facts.INSTANCE}'),
        (cloned_volumes(1, 8), E, f'instance {facts.INSTANCE}'),
    ],
    'flatten-room': [
        (cloned_volumes(1, why_waiting='no room'), W, f'instance {facts.INSTANCE}'),
    ],
    'mysql-settings': [
        (records(settings=UNSAFE), E, 'configuration group group'),
        (
            records(settings=UNSAFE, limits=limits(unsafe_action='raise')),
            W,
            'configuration group group',
        ),
        (
            records(settings=(facts.setting('innodb_doublewrite', 'OFF'),)),
            E,
            'configuration group group',
        ),
    ],
    'backups': [
        (backups(facts.backup(50)), W, f'instance {facts.INSTANCE}'),
        (backups(facts.backup(100)), E, f'instance {facts.INSTANCE}'),
        (backups(), E, f'instance {facts.INSTANCE}'),
        (backups(facts.backup(state=RecordState.DAMAGED)), E, f'instance {facts.INSTANCE}'),
        (version_facts.lost(policies=(facts.policy(),)), E, f'instance {facts.INSTANCE}'),
    ],
    'verified-backups': [
        (version_facts.lost(policies=(facts.policy(),)), E, f'instance {facts.INSTANCE}'),
        (backups(facts.backup(24 * 15)), W, f'instance {facts.INSTANCE}'),
        (backups(facts.backup(24 * 15, verified_at=facts.NOW)), W, f'instance {facts.INSTANCE}'),
        *(
            (backups(facts.backup(state=state)), E, f'instance {facts.INSTANCE}')
            for state in (RecordState.TAKEN, RecordState.SUSPECTED, RecordState.DAMAGED)
        ),
    ],
    'unprotected-instances': [
        (records(policies=(), backups=()), W, 'instances'),
        (version_facts.lost(replicas=(facts.replica(1, 'other', facts.INSTANCE),)), W, 'instances'),
        (
            records(policies=(), backups=(facts.backup(state=RecordState.DAMAGED),)),
            W,
            'instances',
        ),
    ],
    'last-backups': [
        (last_backups((2, FAILED), (3, {})), W, f'instance {facts.INSTANCE}'),
        (last_backups((3, {}), (2, RAISED)), W, f'instance {facts.INSTANCE}'),
    ],
    'policies': [
        (
            records(runs={'i': facts.run(state=PolicyRunState.FAILED, attempts=3, error='full')}),
            E,
            f'policy {facts.POLICY} for instance {facts.INSTANCE}',
        ),
    ],
    'backup-jobs': [
        (backups(facts.backup(copy_failures=3, copy_error='full')), W, f'backup {facts.BACKUP}'),
        (backups(facts.backup(verify_failures=3)), W, f'backup {facts.BACKUP}'),
    ],
    'damaged-backups': [
        (backups(facts.backup(state=RecordState.DAMAGED)), E, f'backup {facts.BACKUP}'),
        (backups(facts.backup(state=RecordState.SUSPECTED)), W, f'backup {facts.BACKUP}'),
    ],
    'trash': [(records(trashed=(facts.trashed(24 * 8),)), W, 'pool volumes-fast')],
    'golden-volumes': [
        (golden_volumes(None), W, str(GOLDEN)),
        (golden_volumes(golden.State.OUTDATED), W, str(GOLDEN)),
        (golden_volumes(golden.State.BUILT), W, str(GOLDEN)),
    ],
    'hot-guests': [
        ({'hot_guests': HotGuests(problem="'x' is no volume")}, E, HOT_VOLUME),
        (hot_guests(tier=None), W, HOT_VOLUME),
        ({**hot_guests(), 'cinder': empty().cinder}, W, HOT_VOLUME),
        (hot_guests(None), W, str(GOLDEN)),
        (hot_guests(golden.State.RETIRED), W, str(GOLDEN)),
        (hot_guests(version='9.7'), W, 'pool of warm guests mysql/9.7.4:small'),
        (hot_guests(version=None), W, 'pool of warm guests mysql/9.7.4:small'),
    ],
    'orphans': [({'orphans': ('image', 'volume', 'image')}, W, 'orphans: image')],
    'orphan-sweep': [
        (records(orphan_sweep=None), W, 'sweep for orphans'),
        (records(orphan_sweep=facts.orphan_sweep(days=8)), W, 'sweep for orphans'),
    ],
}
#: What looks like a defect and is none.
WELL = {
    'golden-volumes': [golden_volumes(golden.State.READY)],
    'hot-guests': [
        hot_guests(),
        hot_guests(pools=()),
        # The systems are not asked for what is not used.
        {'cinder': ValueError('not asked'), 'tiers': ValueError('not asked')},
    ],
    'health': [{'cluster': facts.health('POOL_NO_REDUNDANCY')}],
    'redundancy': [cluster(groups={'vault': {'active+clean+snaptrim_wait': 1}})],
    'healing': [
        osds(dict.fromkeys(range(16), facts.osd(0.67))),
        # One copy is not moved.
        ceph(pools={'replicas': facts.cloud().ceph.pools['replicas']}, osds=()),
    ],
    'failure-domains': [
        {'ceph': dataclasses.replace(BY_OSD, osds=BY_OSD.osds[:4])},
        {'ceph': dataclasses.replace(BY_OSD, pools={'replicas': BY_OSD.pools['replicas']})},
    ],
    'placement-groups': [groups(67, share=0.9), groups(300, share=1, per_osd=200)],
    # A pool that --measure leaves out.
    'promised-iops': [
        {'tiers': sample.read({'tiers/fast/erasure': {'k': 2, 'm': 1}}), 'measurements': {}}
    ],
    'services': [service(is_up=False, is_enabled=False)],
    'agents': [
        records(instances=(facts.instance(heartbeat_at=None, is_settled=False),)),
        records(instances=(facts.instance(heartbeat_at=None, created_at=facts.NOW),)),
    ],
    'agent-keys': [records(instances=NO_KEY, limits=limits(needs_keys=False))],
    **version_facts.WELL,
    'mysql-settings': [
        records(settings=UNSAFE, limits=limits(quiesce='freeze')),
        records(settings=(facts.setting('max_connections', '7'),)),
    ],
    'backups': [records(backups=(), policies=()), backups(facts.backup(48))],
    'unprotected-instances': [
        records(backups=()),
        records(policies=()),
        *(
            records(policies=(), backups=(), replicas=(), instances=(facts.instance(**values),))
            for values in (
                {'is_replica': True},
                {'has_our_guest_agent': False},
                {'created_at': facts.NOW - HOUR},
                # Its creation has failed.
                {'heartbeat_at': None, 'is_settled': False},
            )
        ),
        # Somebody has decided that it needs none.
        records(policies=(facts.policy(enabled=False),), backups=()),
    ],
    'clone-depth': [records(replicas=(facts.replica(None),))],
    'source-depth': [cloned_volumes(), cloned_volumes(6)],
    'last-backups': [
        records(backups=()),
        last_backups((3, FAILED), (2, {})),
        last_backups((3, {}), (2, {'state': RecordState.TAKING, 'error': 'x'})),
        last_backups((3, {}), (2, {'state': RecordState.DELETING, **RAISED})),
        # Of an instance that is deleted.
        records(backups=(facts.backup(**FAILED),), instances=()),
    ],
    'tiers-of-backups': [
        backups(facts.backup(**IN_TIER)),
        # Nothing of it is left there.
        backups(facts.backup(state=RecordState.FAILED, pool='former', image='i')),
    ],
    'policies': [
        records(runs={'i': facts.run(state=PolicyRunState.FAILED, attempts=2, error='x')})
    ],
}


class ChecksTest(base.BaseTestCase):
    def test_each_check_is_tested(self):
        self.assertEqual(
            [one.name for one in checks.ALL], list(dict.fromkeys(x.name for x in checks.ALL))
        )
        self.assertEqual({one.name for one in checks.ALL}, set(BROKEN))

    def test_extensions_are_those_of_the_package(self):
        project = tomllib.loads((CHECKOUT / 'pyproject.toml').read_text())['project']
        extensions = project['entry-points']['trove.api.extensions']
        self.assertEqual(sorted(extensions), list(cloud_facts.API_LISTS))

    def test_healthy(self):
        for one in checks.ALL:
            (found,) = one.run(facts.FakeSources())
            expected = Finding(Level.OK, one.system, 'as expected', one.promise, '', one.name)
            self.assertEqual(expected, found)

    def test_broken(self):
        for one in checks.ALL:
            for broken, level, thing in BROKEN[one.name]:
                found = worst_first(one.run(facts.FakeSources(**broken)))
                self.assertEqual((level, thing), (found[0].level, found[0].object), found)
                for each in found:
                    shown = dataclasses.replace(each, details=({'some': 'details'},))
                    self.assertTrue(all(dataclasses.astuple(shown)), each)

    def test_unprotected_instances_are_one_finding(self):
        (one,) = (each for each in checks.ALL if each.name == 'unprotected-instances')
        rows = tuple(
            facts.instance(instance_id=f'i{number}', project_id=f'p{number % 2}')
            for number in range(9)
        )
        broken = records(policies=(), backups=(), instances=rows)
        (found,) = one.run(facts.FakeSources(**broken))
        self.assertEqual(
            '9, of 2 projects, have no policy and no good backup: i0, i2, i4 and 6 more',
            found.observed,
        )
        self.assertEqual(
            [('p0', f'i{number}') for number in (0, 2, 4, 6, 8)]
            + [('p1', f'i{number}') for number in (1, 3, 5, 7)],
            [(each['project_id'], each['instance_id']) for each in found.details],
        )
        (found,) = one.run(facts.FakeSources(**records(policies=(), backups=())))
        self.assertTrue(found.observed.endswith(f': {facts.INSTANCE}'), found.observed)

    def test_depth_of_an_instance_names_what_to_flatten(self):
        (one,) = (each for each in checks.ALL if each.name == 'source-depth')
        (found,) = one.run(facts.FakeSources(**cloned_volumes(8)))
        expected = Finding(
            E,
            f'instance {facts.INSTANCE}',
            '8 images above volumes-fast/volume-1',
            'less than most_clone_depth = 8, or it cannot have replicas',
            'trove-ceph-manage storage flatten volumes-fast/volume-1',
            'source-depth',
        )
        self.assertEqual(expected, found)

    def test_the_last_backup_tells_what_was_set_by_sql(self):
        (one,) = (each for each in checks.ALL if each.name == 'last-backups')
        (found,) = one.run(facts.FakeSources(**last_backups((2, RAISED))))
        self.assertEqual(
            (f'its last backup froze the file system: {RAISED["raised_because"]}', 'none'),
            (found.observed, found.expected.split()[-1]),
        )
        (found,) = one.run(facts.FakeSources(**last_backups((2, FAILED))))
        self.assertEqual(f'its last backup failed: {FAILED["error"]}', found.observed)
        self.assertEqual(f'openstack database backup detail show {facts.BACKUP}', found.command)

    def test_no_false_alarm(self):
        for one in checks.ALL:
            for well in WELL.get(one.name, ()):
                self.assertEqual(Level.OK, worst(one.run(facts.FakeSources(**well))), well)

    def test_silent(self):
        for one in checks.ALL:
            (found,) = one.run(facts.silent())
            self.assertEqual((U, 'no answer at all'), (found.level, found.observed))
            self.assertEqual(one.name, found.check)
            self.assertNotEqual('', found.command)

    def test_one_silent_system_hides_no_other(self):
        sources = facts.FakeSources(cluster=ValueError('a form that nobody foresaw'))
        found = {one.check: one for one in check.run_all(checks.ALL, sources)}
        self.assertEqual(U, found['health'].level)
        self.assertIn('a form that nobody foresaw', found['health'].observed)
        self.assertEqual(Level.OK, found['services'].level)

    def test_secret_is_not_shown(self):
        key = 'bzH6y0SGmjuoY0FNSTptrhgieGXNDX6PIhvz'
        sources = facts.FakeSources(settings=facts.values(taskmanager_rpc_encr_key=key))
        (configuration,) = (one for one in checks.ALL if one.name == 'configuration')
        (found,) = configuration.run(sources)
        self.assertEqual('(hidden)', found.observed)
        self.assertNotIn(key, str(found))

    def test_exclusive_user_and_unlimited_caps(self):
        (caps_check,) = (one for one in checks.ALL if one.name == 'caps')
        users = dict(facts.cloud().ceph.users)
        cinder = users['client.cinder']
        more = {**cinder.caps, 'osd': cinder.caps['osd'] + ', allow *'}
        users['client.cinder'] = dataclasses.replace(cinder, caps=more)
        (found,) = caps_check.run(facts.FakeSources(**ceph(users=users)))
        self.assertEqual((W, 'has osd allow *'), (found.level, found.observed))
