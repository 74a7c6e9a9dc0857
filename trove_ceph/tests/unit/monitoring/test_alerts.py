# SPDX-License-Identifier: Apache-2.0
"""Each alert fires for one series and stays silent for another, as Prometheus evaluates them."""

import re
from pathlib import Path

import fixtures
import yaml
from oslotest import base

from trove_ceph.doctor import backup_checks, ceph_checks
from trove_ceph.metrics import catalog
from trove_ceph.tests.unit.monitoring import promtool

DOCUMENTS = Path(__file__).parents[4] / 'doc' / 'source'
METRIC = re.compile(r'\btrove_ceph_[a-z_]+')

#: By alert: series with the values that make it fire, those with which it must not fire, and the
#: minutes after which this is so. A value is for one minute; ``xN`` repeats it.
CASES = {
    'FiguresMissing': ({'figures_up{source="tables"}': '0x20'}, {'figures_up': '1x10 0x9'}, 20),
    'FiguresOld': (
        {'figures_read_timestamp_seconds{source="tables"}': '0x30'},
        {'figures_read_timestamp_seconds{source="tables"}': '0+60x30'},
        25,
    ),
    'BackupDamaged': ({'backups{state="damaged"}': '0 1'}, {'backups{state="failed"}': '0 1'}, 1),
    'BackupTooOld': (
        {'backup_age_instances{backup="good", policy="yes", hours="48"}': '1x70'},
        {
            'backup_age_instances{backup="good", policy="yes", hours="48"}': '0x70',
            'backup_age_instances{backup="good", policy="yes", hours="24"}': '1x70',
            'backup_age_instances{backup="good", policy="no", hours="48"}': '1x70',
        },
        65,
    ),
    'VerificationTooOld': (
        {'backup_age_instances{backup="verified", policy="yes", hours="168"}': '2x400'},
        {
            'backup_age_instances{backup="verified", policy="yes", hours="48"}': '2x400',
            'backup_age_instances{backup="verified", policy="no", hours="168"}': '2x400',
        },
        370,
    ),
    'PolicyOverdue': ({'policy_runs_overdue': '1x40'}, {'policy_runs_overdue': '1x20 0x20'}, 35),
    'BackupJobsFailing': (
        {'backup_queue_failing{job="copy"}': '1x130'},
        {'backup_queue_failing{job="copy"}': '0x130', 'backup_queue{job="copy"}': '5x130'},
        125,
    ),
    'PoolFull': (
        {'pool_full{tier="t", pool="p"}': '0 1'},
        {'pool_full{tier="t", pool="p"}': '0 0'},
        1,
    ),
    'PoolFilling': (
        {'pool_fill_ratio{tier="t", pool="p"}': '0.7x15'},
        {'pool_fill_ratio{tier="t", pool="p"}': '0.69x15'},
        12,
    ),
    'PoolNearlyFull': (
        {'pool_fill_ratio{tier="t", pool="p"}': '0.8x15'},
        {'pool_fill_ratio{tier="t", pool="p"}': '0.79x15'},
        12,
    ),
    # 10 GiB a day fill 60 GiB within the week, and not 1000.
    'PoolFillsUp': (
        {
            'pool_stored_bytes{tier="t", pool="p"}': '0+7456540x240',
            'pool_max_bytes{tier="t", pool="p"}': '64424509440x240',
        },
        {
            'pool_stored_bytes{tier="t", pool="p"}': '0+7456540x240',
            'pool_max_bytes{tier="t", pool="p"}': '1073741824000x240',
        },
        200,
    ),
    'TrashStays': (
        {'trashed_image_oldest_seconds': '604801x70'},
        {'trashed_image_oldest_seconds': '604000x30 0x40', 'trashed_images': '9x70'},
        65,
    ),
    'OrphanSweepOverdue': (
        {'orphan_sweep_age_seconds': '604801x1450'},
        {'orphan_sweep_age_seconds': '604801x1000 60x450', 'orphans{kind="image"}': '9x1450'},
        1445,
    ),
    'BlocklistGrows': (
        {'blocklist_entries': '51x70'},
        {'blocklist_entries': '50x70'},
        65,
    ),
    'PoolSilent': (
        {'pool_up{tier="t", pool="p"}': '0x20'},
        # One copy of the service that reads it is enough.
        {
            'pool_up{tier="t", pool="p", instance="a"}': '0x20',
            'pool_up{tier="t", pool="p", instance="b"}': '1x20',
        },
        18,
    ),
    'DeepClones': (
        {'clone_depth{tier="t", pool="p"}': '6x70'},
        {'clone_depth{tier="t", pool="p"}': '5x70'},
        65,
    ),
    'StorageJobStuck': (
        {'storage_job_oldest_seconds{task="copy"}': '22000+60x40'},
        {'storage_job_oldest_seconds{task="copy"}': '60+60x40'},
        35,
    ),
    'OperationsFail': (
        {'operation_seconds_count{operation="restore", outcome="error"}': '0x20 5x20'},
        {
            'operation_seconds_count{operation="restore", outcome="error"}': '5x40',
            'operation_seconds_count{operation="restore", outcome="end"}': '0x20 50x20',
        },
        40,
    ),
    'AutomaticFailover': (
        {'replacements{requested_by="automatic", kind="failover", state="moving"}': '0x15 1x5'},
        {'replacements{requested_by="tenant", kind="failover", state="moving"}': '0x15 1x5'},
        18,
    ),
    'ReplacementStuck': (
        {'replacement_oldest_open_seconds{kind="failover"}': '901'},
        {'replacement_oldest_open_seconds{kind="failover"}': '600'},
        0,
    ),
    'FailoverWatchSilent': (
        {'failover_watch_age_seconds': '301+60x10'},
        {'failover_watch_age_seconds': '20x10'},
        8,
    ),
    'FailoverHeld': (
        {'failover_held': '1x10', 'failover_maintenance': '0x10'},
        # An operator knows of most of it.
        {'failover_held': '1x10', 'failover_maintenance': '1x5 0x4'},
        8,
    ),
    'ReplicasBroken': (
        {'replicas_not_replicating': '1x20'},
        {'replicas_not_replicating': '1x10 0 1x9'},
        18,
    ),
    'ReplicaBlocked': (
        {'replicas{state="blocked"}': '1', 'replicas{state="following"}': '5'},
        {'replicas{state="blocked"}': '0', 'replicas{state="returning"}': '5'},
        0,
    ),
    'SemiSyncInactive': (
        {'semi_sync_inactive': '1x20'},
        {'semi_sync_inactive': '1x10 0 1x9'},
        18,
    ),
    'ReprovisioningFailed': (
        {'replica_reprovisionings_failed': '1'},
        {'replica_reprovisionings_failed': '0'},
        0,
    ),
    'ReprovisioningStuck': (
        {'replica_reprovisioning_oldest_open_seconds': '3601'},
        {'replica_reprovisioning_oldest_open_seconds': '3600'},
        0,
    ),
    'GuestPoolEmpty': (
        {
            'guests{pool="p", state="ready"}': '0x20',
            'guests{pool="q", state="ready"}': '3x20',
        },
        {'guests{pool="p", state="ready"}': '1x20', 'guests{pool="p", state="claimed"}': '0x20'},
        18,
    ),
    'TierSlow': (
        {
            'tier_latency_seconds{tier="t", request="write", statistic="mean"}': '0.003x20',
            'tier_latency_objective_seconds{tier="t"}': '0.002x20',
        },
        # The slowest image alone, and a tier without an objective.
        {
            'tier_latency_seconds{tier="t", request="write", statistic="max"}': '0.003x20',
            'tier_latency_seconds{tier="u", request="write", statistic="mean"}': '9x20',
            'tier_latency_objective_seconds{tier="t"}': '0.002x20',
        },
        18,
    ),
    'LimitsDrift': (
        {'qos_drift': '1x130'},
        # The next sweep finds those of new volumes set.
        {'qos_drift': '9x60 0x10 9x60', 'qos_failures': '1x130'},
        125,
    ),
    'LimitsNotSwept': (
        {'qos_sweep_age_seconds': '3601'},
        # Another copy of the service sweeps.
        {
            'qos_sweep_age_seconds{instance="a"}': '7200',
            'qos_sweep_age_seconds{instance="b"}': '60',
        },
        0,
    ),
    'LimitsNotSet': ({'qos_failures': '1x70'}, {'qos_failures': '0x70', 'qos_drift': '5x70'}, 65),
}


def rules():
    groups = yaml.safe_load(promtool.ALERTS.read_text())['groups']
    return {rule['alert']: rule for group in groups for rule in group['rules']}


class AlertsTest(base.BaseTestCase):
    def test_promtool_accepts_the_rules(self):
        succeeded, text = promtool.run('check', 'rules', promtool.ALERTS)
        self.assertTrue(succeeded, text)

    def test_each_alert_fires_when_it_should_and_not_otherwise(self):
        self.assertEqual(set(rules()), {f'TroveCeph{name}' for name in CASES})
        tests = []
        for name, (firing, silent, minutes) in CASES.items():
            tests += [_test(name, firing, minutes, 1), _test(name, silent, minutes, 0)]
        path = self.useFixture(fixtures.TempDir()).join('tests.yml')
        content = {'rule_files': [str(promtool.ALERTS)], 'tests': tests}
        Path(path).write_text(yaml.safe_dump(content))
        succeeded, text = promtool.run('test', 'rules', path)
        self.assertTrue(succeeded, text)

    def test_a_wrong_expectation_is_noticed(self):
        name = 'PoolFull'
        path = self.useFixture(fixtures.TempDir()).join('tests.yml')
        wrong = _test(name, CASES[name][1], CASES[name][2], 1)
        content = {'rule_files': [str(promtool.ALERTS)], 'tests': [wrong]}
        Path(path).write_text(yaml.safe_dump(content))
        succeeded, text = promtool.run('test', 'rules', path)
        self.assertFalse(succeeded, text)

    def test_rules_name_metrics_that_are_exported(self):
        for name, rule in rules().items():
            found = set(METRIC.findall(rule['expr']))
            self.assertTrue(found, name)
            self.assertEqual(set(), found - catalog.series(), name)

    def test_thresholds_are_those_of_the_doctor(self):
        thresholds = {
            'PoolFilling': f'>= {ceph_checks.FILL_WARNING}',
            'PoolNearlyFull': f'>= {ceph_checks.FILL_ERROR}',
            'BlocklistGrows': f'> {ceph_checks.MOST_BLOCKED}',
            'OrphanSweepOverdue': f'> {backup_checks.ORPHAN_SWEEP_AGE.total_seconds():.0f}',
            'TrashStays': f'> {backup_checks.TRASH_AGE.total_seconds():.0f}',
        }
        for name, threshold in thresholds.items():
            rule = rules()[f'TroveCeph{name}']
            self.assertEqual(threshold, rule['expr'].rpartition(') ')[2], name)

    def test_each_alert_names_the_runbook_that_names_it(self):
        page = DOCUMENTS / 'admin' / 'runbooks.rst'
        _, *sections = re.split(r'(?m)^(.+)\n-{5,}$', page.read_text())
        bodies = {
            f'admin/runbooks.html#{_anchor(name)}': body
            for name, body in zip(sections[::2], sections[1::2], strict=True)
        }
        # The second one of the same title would have another anchor.
        self.assertEqual(len(sections) // 2, len(bodies))
        for name, rule in rules().items():
            self.assertIn(rule['labels']['severity'], ('warning', 'critical'), name)
            runbook = rule['annotations']['runbook']
            self.assertIn(runbook, bodies, name)
            self.assertIn(f'``{name}``', bodies[runbook])


def _anchor(title):
    """Return the anchor that docutils gives a section."""
    return re.sub('[^a-z0-9]+', '-', title.lower()).strip('-')


def _test(name, series, minutes, count):
    """Return a test for promtool: whether so many alerts of a name fire after some minutes."""
    firing = f'count(ALERTS{{alertname="TroveCeph{name}", alertstate="firing"}})'
    samples = [{'labels': '{}', 'value': count}] if count else []
    return {
        'name': f'{name}, {count} fires',
        'interval': '1m',
        'input_series': [
            {'series': f'trove_ceph_{one}', 'values': _values(values)}
            for one, values in series.items()
        ],
        'promql_expr_test': [{'expr': firing, 'eval_time': f'{minutes}m', 'exp_samples': samples}],
    }


def _values(text):
    # promtool repeats a value N times after the first one, by "a+0xN".
    return re.sub(r'(?<!\S)([\d.]+)x(\d+)', r'\1+0x\2', text)
