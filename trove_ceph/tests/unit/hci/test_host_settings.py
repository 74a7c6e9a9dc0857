# SPDX-License-Identifier: Apache-2.0
"""The table of settings: it is whole, and a wrong entry is refused."""

import copy

from oslotest import base

from trove_ceph.hci import host_settings
from trove_ceph.hci.host_settings import Area, Verdict
from trove_ceph.yaml_file import Problem

#: What the reference architectures of 2016 and 2017 set, by the names that they print.
OF_ARCHITECTURES = (
    'net.ipv4.ip_forward',
    'net.core.wmem_max',
    'net.core.rmem_max',
    'net.ipv4.tcp_rmem',
    'net.ipv4.tcp_wmem',
    'net.ipv4.tcp_window_scaling',
    'net.ipv4.tcp_timestamps',
    'net.ipv4.tcp_sack',
    'net.core.netdev_max_backlog',
    'vm.swappiness',
    'scheduler',
    'rq_affinity',
    'rotational',
    'add_random',
    'nomerges',
    'fifo_batch',
    'front_merges',
    'writes_starved',
    'use_blk_mq',
    'setenforce',
    'filestore_',
    'journal_',
    'osd_mount_options_xfs',
    'osd_mkfs_options_xfs',
    'osd_enable_op_tracker',
    'osd_client_message_size_cap',
    'osd_client_message_cap',
    'objecter_inflight_ops',
    'objecter_inflight_op_bytes',
    'ms_dispatch_throttle_bytes',
    'osd_op_threads',
    'osd_op_num_shards',
    'osd_op_num_threads_per_shard',
)
ENTRY = {
    'area': 'sysctl',
    'name': 'vm.swappiness',
    'value': '1',
    'purpose': 'Swap late.',
    'verdict': 'kept',
    'reason': 'Right.',
    'sources': ['Linux'],
    'seeds': [{'document': 'one', 'where': 'there', 'value': '1'}],
}


class TableTestCase(base.BaseTestCase):
    """The table of the package."""

    def test_has_every_setting_of_the_architectures(self):
        names = ' '.join(one.name for one in host_settings.load() if one.seeds)
        self.assertEqual([], [name for name in OF_ARCHITECTURES if name not in names])

    def test_each_verdict_is_argued(self):
        for one in host_settings.load():
            self.assertTrue(one.sources, one.name)
            self.assertRegex(one.reason, r'[.]$', one.name)
            self.assertRegex(one.purpose, r'[.]$', one.name)

    def test_what_is_dropped_is_not_written(self):
        written = {one.name for one in host_settings.load() if one.value is not None}
        self.assertNotIn('osd_enable_op_tracker', written)
        self.assertNotIn('net.core.rmem_max', written)
        self.assertIn('osd_mclock_profile', written)


class RulesTestCase(base.BaseTestCase):
    """What the table may not say."""

    def _refused(self, path, **changes):
        entry = {key: value for key, value in (ENTRY | changes).items() if value is not None}
        content = {'documents': {'one': 'Title'}, 'settings': [copy.deepcopy(entry)]}
        problem = self.assertRaises(Problem, host_settings.parse, content)
        self.assertEqual(path, schema_path(problem))

    def test_valid_entry(self):
        content = {'documents': {'one': 'Title'}, 'settings': [ENTRY]}
        (setting,) = host_settings.parse(content)
        self.assertEqual((Area.SYSCTL, Verdict.KEPT), (setting.area, setting.verdict))
        self.assertEqual('Title', setting.seeds[0].document)

    def test_a_value_is_written_or_dropped(self):
        self._refused('value', value=None)
        self._refused('value', verdict='dropped')

    def test_origins(self):
        self._refused('seeds', seeds=None)
        self._refused('seeds', verdict='added')
        self._refused('document', seeds=[{'document': 'two', 'where': 'x', 'value': '1'}])

    def test_sections_and_owners(self):
        self._refused('section', section='DEFAULT')
        self._refused('section', area='nova')
        self._refused('who', who='osd')
        self._refused('who', area='ceph')

    def test_names_are_unique(self):
        content = {'documents': {'one': 'Title'}, 'settings': [ENTRY, ENTRY]}
        problem = self.assertRaises(Problem, host_settings.parse, content)
        self.assertIn('given twice', str(problem))


def schema_path(problem):
    """Return the key that a problem is about."""
    return problem.path[-1]
