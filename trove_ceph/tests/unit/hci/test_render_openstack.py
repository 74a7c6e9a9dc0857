# SPDX-License-Identifier: Apache-2.0
"""Files for OpenStack, read with the options of Nova itself."""

import configparser
import json
import os
import re
import shlex
import subprocess
import sys
import types
from pathlib import Path

import fixtures
import yaml
from oslotest import base

import trove_ceph
from trove_ceph.hci import affinity
from trove_ceph.hci.render import values
from trove_ceph.hci.workload import RootDisk
from trove_ceph.tests.unit.hci import deployment, sample

CHECKOUT = Path(trove_ceph.__file__).parent.parent
#: The module that runs in a process of its own; it cannot be imported here.
READER = 'trove_ceph.tests.unit.hci.nova_reader'
NOVA = 'hosts/hci-1/etc/nova/nova.conf.d/90-trove-ceph-hci.conf'
KOLLA = 'kolla/config/nova/hci-1/nova.conf'
SECRET = '457eb676-33da-42ec-9a8c-9293d545c337'
#: Answers for ``aggregate show`` as the client does: it fails for an aggregate that is missing.
OPENSTACK = """\
#!/bin/sh
case "$1 $2" in
"aggregate show")
    [ -e "$STATE" ] || exit 1
    cat "$STATE" ;;
*)
    echo "$@" >> "$LOG" ;;
esac
"""


class NovaTestCase(base.BaseTestCase):
    """The configuration of nova-compute."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.reader = subprocess.Popen(
            [sys.executable, '-W', 'ignore', '-m', READER],
            cwd=CHECKOUT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        # It ends at the end of its input.
        cls.addClassCleanup(cls.reader.communicate)

    def setUp(self):
        super().setUp()
        self.directory = Path(self.useFixture(fixtures.TempDir()).path)

    def _read(self, text):
        """Return the configuration as Nova reads it, and its sections."""
        path = self.directory / 'nova.conf'
        path.write_text(text)
        print(path, file=self.reader.stdin, flush=True)
        line = self.reader.stdout.readline()
        if not line:
            self.fail(self.reader.communicate()[1])
        sections = json.loads(line)
        groups = {name: types.SimpleNamespace(**found) for name, found in sections.items()}
        return types.SimpleNamespace(**sections['DEFAULT'], **groups), sections

    def test_reservations(self):
        made = deployment.make()
        profile = made.plan.hosts[0]
        conf, _ = self._read(deployment.rendered(made)[NOVA])
        self.assertEqual(profile.reservation.reserved_host_memory_mb, conf.reserved_host_memory_mb)
        self.assertEqual(0, conf.reserved_host_disk_mb)
        self.assertEqual(0.04425293, conf.disk_allocation_ratio)
        self.assertEqual(
            profile.reservation.cpu_shared_set_allocation_ratio, conf.cpu_allocation_ratio
        )
        self.assertEqual(1.0, conf.ram_allocation_ratio)

    def test_the_file_says_how_it_wins_over_nova_conf(self):
        """oslo.config reads a directory that it finds by itself before a --config-file."""
        texts = deployment.rendered(deployment.make())
        self.assertIn('--config-dir=/etc/nova/nova.conf.d', texts[NOVA])
        for name in (KOLLA, 'devstack/hci-1/local.conf'):
            self.assertNotIn('--config-dir', texts[name])

    def test_cpus_of_guests(self):
        made = deployment.make()
        conf, _ = self._read(deployment.rendered(made)[NOVA])
        cpus = set(conf.compute.cpu_shared_set)
        profile = made.plan.hosts[0]
        self.assertEqual(set(profile.guest_cpus), cpus)
        self.assertFalse(cpus & (set(profile.osd_cpus) | set(profile.host_cpus)))

    def test_memory_of_osds_is_kept_from_guests_on_each_node(self):
        made = deployment.make()
        conf, _ = self._read(deployment.rendered(made)[NOVA])
        nodes = made.plan.hosts[0].nodes
        self.assertEqual(
            [
                {
                    'node': str(node.number),
                    'size': '4',
                    'count': str((node.osd_memory_mib + node.overhead_memory_mib) * 256),
                }
                for node in nodes
            ],
            conf.reserved_huge_pages,
        )

    def test_root_disks_in_ceph(self):
        client = values.CephClient('nova', 'roots', SECRET)
        conf, _ = self._read(deployment.rendered(deployment.make(client=client))[NOVA])
        libvirt_ = conf.libvirt
        self.assertEqual(('rbd', 'roots'), (libvirt_.images_type, libvirt_.images_rbd_pool))
        self.assertEqual(('nova', SECRET), (libvirt_.rbd_user, libvirt_.rbd_secret_uuid))
        self.assertEqual('unmap', libvirt_.hw_disk_discard)

    def test_root_disks_on_the_host(self):
        workload = sample.workload(root_disk=RootDisk.LOCAL)
        made = deployment.make(workload=workload)
        _, sections = self._read(deployment.rendered(made)[NOVA])
        self.assertNotIn('images_type', sections['libvirt'])
        self.assertNotIn('rbd_secret_uuid', sections['libvirt'])
        # Nova keeps the last ratio of a host whose configuration has none.
        self.assertEqual(1.0, sections['DEFAULT']['disk_allocation_ratio'])

    def test_cache_of_librbd(self):
        conf, _ = self._read(deployment.rendered(deployment.make())[NOVA])
        self.assertEqual(['network=none'], conf.libvirt.disk_cachemodes)
        made = deployment.make(deployment.disks())
        conf, _ = self._read(deployment.rendered(made)[NOVA])
        self.assertEqual(['network=writeback'], conf.libvirt.disk_cachemodes)

    def test_kolla_keeps_its_own_options(self):
        texts = deployment.rendered(deployment.make())
        conf, sections = self._read(texts[KOLLA])
        self.assertEqual(['disk_cachemodes', 'hw_disk_discard'], list(sections['libvirt']))
        self.assertTrue(conf.compute.cpu_shared_set)
        self.assertEqual(
            {
                'cinder_backend_ceph': 'yes',
                'nova_backend_ceph': 'yes',
                'ceph_nova_user': 'cinder',
                'ceph_nova_pool_name': 'vms',
            },
            yaml.safe_load(texts['kolla/globals.d/trove-ceph-hci.yml']),
        )

    def test_devstack(self):
        text = deployment.rendered(deployment.make())['devstack/hci-1/local.conf']
        # As DevStack's get_meta_section_files() finds them.
        heads = re.findall(r'^\[\[(.+)\|(.*)\]\]$', text, re.MULTILINE)
        self.assertEqual([('local', 'localrc'), ('post-config', '$NOVA_CONF')], heads)
        localrc, nova = re.split(r'^\[\[.*\]\]$', text, flags=re.MULTILINE)[1:]
        done = subprocess.run(
            ['sh', '-eu', '-c', f'enable_plugin() {{ :; }}\n{localrc}\necho $ENABLE_CEPH_NOVA'],
            capture_output=True,
            text=True,
            check=True,
        )
        self.assertEqual('True\n', done.stdout)
        conf, _ = self._read(nova)
        self.assertEqual(2, len(conf.reserved_huge_pages))

    def test_devstack_with_root_disks_on_the_host(self):
        made = deployment.make(workload=sample.workload(root_disk=RootDisk.LOCAL))
        text = deployment.rendered(made)['devstack/hci-1/local.conf']
        self.assertIn('ENABLE_CEPH_NOVA=True\n', text)
        conf, _ = self._read(text.rpartition('|$NOVA_CONF]]\n')[2])
        self.assertEqual('default', conf.libvirt.images_type)
        self.assertNotIn('images_type', deployment.rendered(made)[NOVA])


class SchedulerTestCase(base.BaseTestCase):
    """The filters that the aggregate and huge pages need; Nova enables neither by itself."""

    def test_filters(self):
        texts = deployment.rendered(deployment.make())
        for name in ('openstack/nova-scheduler.conf', 'kolla/config/nova/nova-scheduler.conf'):
            parser = configparser.ConfigParser()
            parser.read_string(texts[name])
            found = parser['filter_scheduler']['enabled_filters'].split(',')
            self.assertEqual(7, len(set(found)))
            self.assertIn('AggregateInstanceExtraSpecsFilter', found)
            self.assertIn('NUMATopologyFilter', found)
            # One of those that Nova enables by itself: the list replaces them.
            self.assertIn('ServerGroupAntiAffinityFilter', found)

    def test_filters_of_devstack(self):
        """DevStack sets its list whatever localrc has, and local.conf changes it after that."""
        texts = deployment.rendered(deployment.make())
        nova = texts['devstack/hci-1/local.conf'].rpartition('|$NOVA_CONF]]\n')[2]
        parser = configparser.ConfigParser(strict=False)
        parser.read_string(nova)
        found = parser['filter_scheduler']['enabled_filters'].split(',')
        self.assertLessEqual({'SameHostFilter', 'DifferentHostFilter'}, set(found))
        self.assertLessEqual(set(affinity.FILTERS), set(found))

    def test_commands_name_the_filters(self):
        texts = deployment.rendered(deployment.make())
        self.assertIn('nova-scheduler.conf', texts['openstack/hosts.sh'])


class CommandsTestCase(base.BaseTestCase):
    """The script of commands, run with a client that notes them."""

    def setUp(self):
        super().setUp()
        self.directory = Path(self.useFixture(fixtures.TempDir()).path)
        program = self.directory / 'openstack'
        program.write_text(OPENSTACK)
        program.chmod(0o755)

    def _run(self, made, *arguments, members=None, errors=''):
        state, log = self.directory / 'state', self.directory / 'log'
        if members is not None:
            state.write_text(json.dumps({'hosts': members}))
        environment = {
            'PATH': f'{self.directory}:{os.environ["PATH"]}',
            'STATE': str(state),
            'LOG': str(log),
        }
        text = deployment.rendered(made)['openstack/hosts.sh']
        done = subprocess.run(
            ['sh', '-c', text, 'hosts.sh', *arguments],
            env=environment,
            check=True,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.assertEqual(errors, done.stderr)
        return [shlex.split(line) for line in log.read_text().splitlines()]

    def test_creates_the_aggregate(self):
        ran = self._run(deployment.make())
        aggregate = 'trove-ceph-hci'
        self.assertEqual(['aggregate', 'create', aggregate], ran[0])
        added = [words[4] for words in ran if words[:3] == ['aggregate', 'add', 'host']]
        self.assertEqual(['hci-1', 'hci-2', 'hci-3', 'hci-4', 'hci-5'], added)

    def test_second_run_adds_what_is_missing(self):
        members = ['hci-1', 'hci-2', 'hci-3', 'hci-4']
        ran = self._run(deployment.make(), members=members)
        self.assertNotIn('create', [words[1] for words in ran])
        self.assertEqual(['hci-5'], [words[4] for words in ran if words[1] == 'add'])

    def test_members_that_are_not_planned_are_named(self):
        """A host that has left the plan may have no OSDs, and no memory reserved for them."""
        members = ['hci-1', 'hci-2', 'old', 'hci-3', 'hci-4', 'hci-5', 'hci']
        warnings = ''.join(
            f'warning: {name} is in the aggregate, and not in the plan; to remove it: openstack '
            f'aggregate remove host trove-ceph-hci {name}\n'
            for name in ('old', 'hci')
        )
        ran = self._run(deployment.make(), members=members, errors=warnings)
        self.assertNotIn('remove', [words[1] for words in ran])

    def test_properties_of_image_and_flavor(self):
        ran = self._run(deployment.make(huge_pages=True), 'image', 'flavor')
        given = {words[-1]: words[3] for words in ran if words[:2] == ['flavor', 'set']}
        self.assertEqual({'flavor': 'hw:mem_page_size=large'}, given)
        images = [words[3] for words in ran if words[:2] == ['image', 'set']]
        self.assertEqual(['hw_disk_bus=virtio', 'hw_vif_multiqueue_enabled=true'], images)

    def test_no_page_size_without_huge_pages(self):
        ran = self._run(deployment.make(), 'image', 'flavor')
        self.assertNotIn('mem_page_size', str(ran))
