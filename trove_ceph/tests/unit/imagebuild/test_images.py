# SPDX-License-Identifier: Apache-2.0
"""The image builder: hashes, cache, kernel modules, boot sector, archive."""

import json
import os
import re
import tarfile
import zipfile
from pathlib import Path
from unittest import mock

from oslotest import base

from trove_ceph.imagebuild import (
    cache,
    commands,
    debian,
    docker_archive,
    guest_base,
    guest_kernel,
    inspection_kernel,
    mysql_rootfs,
    test_root,
    wheel,
)
from trove_ceph.imagebuild.errors import BuildError
from trove_ceph.imagebuild.progress import Progress
from trove_ceph.imagebuild.sources import Sources
from trove_ceph.tests.unit.imagebuild.case import ImagesTestCase


class HashTest(ImagesTestCase):
    def test_same_content_elsewhere_has_the_same_hash(self):
        one = self.make_file('a/files/x', '1')
        two = self.make_file('b/files/x', '1')
        os.utime(two, (1, 1))
        self.assertEqual(cache.tree_hashes([one.parent]), cache.tree_hashes([two.parent]))

    def test_hash_depends_on_content_name_and_mode(self):
        tree = self.make_file('files/x', '1').parent
        before = cache.tree_hashes([tree])
        self.make_file('files/x', '2')
        changed = cache.tree_hashes([tree])
        (tree / 'x').chmod(0o755)
        executable = cache.tree_hashes([tree])
        (tree / 'x').rename(tree / 'y')
        renamed = cache.tree_hashes([tree])
        self.assertEqual(4, len({json.dumps(h) for h in (before, changed, executable, renamed)}))

    def test_pins_are_compared_without_comments(self):
        one = self.make_file('one', '# why\nb==2\na==1  # note\n')
        two = self.make_file('two', 'a==1\n\nb==2\n')
        self.assertEqual(guest_base.pinned(one), guest_base.pinned(two))
        self.assertEqual(['a==1', 'b==2'], guest_base.pinned(one))


class CacheTest(ImagesTestCase):
    def test_entry_appears_when_it_is_complete(self):
        store = cache.Cache(self.directory)
        with store.locked(self.fail):
            with store.create('thing', 'k' * 16) as entry:
                (entry / 'file').write_text('content')
                self.assertIsNone(store.find('thing', 'k' * 16))
            self.assertEqual('content', (store.find('thing', 'k' * 16) / 'file').read_text())

    def test_failed_build_leaves_nothing(self):
        store = cache.Cache(self.directory)
        with store.locked(self.fail):
            with self.assertRaisesRegex(BuildError, 'no'), store.create('thing', 'k'):
                raise BuildError('no')
            self.assertIsNone(store.find('thing', 'k'))
            self.assertEqual([], os.listdir(self.directory / 'tmp'))

    def test_removes_remains_of_a_killed_build(self):
        self.make_file('tmp/thing-k/file', 'half')
        store = cache.Cache(self.directory)
        with store.locked(self.fail):
            self.assertEqual([], os.listdir(self.directory / 'tmp'))

    def test_keeps_the_last_three_entries(self):
        store = cache.Cache(self.directory)
        keys = [digit * 16 for digit in 'abcde']
        with store.locked(self.fail):
            for age, key in enumerate(keys):
                with store.create('thing', key):
                    pass
                os.utime(self.directory / f'thing-{key}', (age, age))
            with store.create('thing', 'f' * 16):
                pass
        found = [key for key in (*keys, 'f' * 16) if store.find('thing', key)]
        self.assertEqual(['d' * 16, 'e' * 16, 'f' * 16], found)


class KernelModulesTest(ImagesTestCase):
    DEPENDENCIES = guest_kernel.parse_dependencies(
        'kernel/drivers/scsi/sr_mod.ko.xz: kernel/drivers/cdrom/cdrom.ko.xz'
        ' kernel/drivers/scsi/scsi_mod.ko.xz kernel/drivers/scsi/scsi_common.ko.xz\n'
        'kernel/drivers/cdrom/cdrom.ko.xz:\n'
        'kernel/drivers/scsi/scsi_mod.ko.xz: kernel/drivers/scsi/scsi_common.ko.xz\n'
        'kernel/drivers/scsi/scsi_common.ko.xz:\n'
        'kernel/drivers/scsi/sr_modern.ko.xz:\n'
        'kernel/fs/xfs/xfs.ko.xz:\n'
    )

    def test_selection_by_file_and_directory(self):
        found = guest_kernel.selected(self.DEPENDENCIES, ['drivers/scsi/sr_mod', 'fs/xfs'])
        self.assertEqual({'kernel/drivers/scsi/sr_mod.ko.xz', 'kernel/fs/xfs/xfs.ko.xz'}, found)

    def test_selection_includes_dependencies(self):
        kept = guest_kernel.with_dependencies(
            {'kernel/drivers/scsi/sr_mod.ko.xz'}, self.DEPENDENCIES
        )
        names = {guest_kernel.module_name(path) for path in kept}
        self.assertEqual({'sr_mod', 'cdrom', 'scsi_mod', 'scsi_common'}, names)

    def test_load_order(self):
        order = guest_kernel.load_order(['sr_mod', 'ext4'], self.DEPENDENCIES, builtin={'ext4'})
        names = [guest_kernel.module_name(path) for path in order]
        self.assertEqual(['scsi_common', 'scsi_mod', 'cdrom', 'sr_mod'], names)

    def test_refuses_a_missing_module(self):
        error = self.assertRaises(
            BuildError, guest_kernel.load_order, ['isofs'], self.DEPENDENCIES, builtin=set()
        )
        self.assertIn('isofs', str(error))


class InspectionKernelTest(ImagesTestCase):
    def test_release_of_the_metapackage(self):
        told = 'linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-56-cloud-amd64\n'
        self.assertEqual('6.1.0-56-cloud-amd64', inspection_kernel.release_of(told))

    def test_refuses_a_metapackage_that_apt_does_not_know(self):
        self.assertRaises(BuildError, inspection_kernel.release_of, '')


class MysqlTest(ImagesTestCase):
    def test_upstream_version(self):
        for text in ('9.7.4-1', '1:9.7.4+ds-2', '9.7.4-2+b1'):
            self.assertEqual('9.7.4', mysql_rootfs.upstream_version(text))
        self.assertRaises(BuildError, mysql_rootfs.upstream_version, '9.7-1')

    def test_archive_is_reproducible_and_consistent(self):
        layer = self.make_file('layer.tar', 'not really a tar file')
        archives = [self.directory / name for name in ('one.tar', 'two.tar')]
        for archive in archives:
            image_id = docker_archive.write_archive(archive, layer, '9.7.4')
            os.utime(layer, (1, 1))
        self.assertEqual(archives[0].read_bytes(), archives[1].read_bytes())
        with tarfile.open(archives[0]) as archive:
            manifest = json.load(archive.extractfile('manifest.json'))[0]
            config = archive.extractfile(manifest['Config']).read()
            content = archive.extractfile(manifest['Layers'][0]).read()
        self.assertEqual(['mysql:9.7.4'], manifest['RepoTags'])
        self.assertEqual(image_id, f'sha256:{cache.content_digest(config)}')
        diff_ids = json.loads(config)['rootfs']['diff_ids']
        self.assertEqual([f'sha256:{cache.content_digest(content)}'], diff_ids)


class TestRootTest(ImagesTestCase):
    def find(self, packages):
        """Return the root with Ceph 18 from the cache, which this test fills."""
        store = cache.Cache(self.directory / 'cache')
        with store.locked(self.fail):
            return test_root.ensure_test_root(
                store,
                Progress(quiet=True),
                ceph=18,
                packages=packages,
                sources=Sources(mirror='http://none'),
            )

    def test_root_is_built_once_for_a_set_of_packages(self):
        built = []

        def bootstrap(root, progress, *, suite, packages, **others):
            built.append((suite, packages))
            root.mkdir()

        with (
            mock.patch.object(debian, 'ensure_host_packages'),
            mock.patch.object(debian, 'bootstrap', bootstrap),
            mock.patch.object(debian, 'installed_versions', return_value={}),
            mock.patch.object(commands, 'capture', return_value='ceph version 18.2.7 (6b) reef'),
        ):
            first = self.find(['git', 'ceph-mon'])
            self.assertEqual([('trixie', ['git', 'ceph-mon'])], built)
            self.assertEqual(('18.2.7', False), (first.ceph_version, first.cached))
            self.assertEqual(b'', (first.path / 'etc/resolv.conf').read_bytes())
            again = self.find(['ceph-mon', 'git'])
            self.assertEqual(('18.2.7', True), (again.ceph_version, again.cached))
            self.assertEqual(first.path, again.path)
            self.find(['ceph-mon'])
            self.assertEqual(2, len(built))

    def test_refuses_a_distribution_with_another_ceph(self):
        with mock.patch.object(commands, 'capture', return_value='ceph version 19.2.3 (c9)'):
            error = self.assertRaises(BuildError, test_root._ceph_version, self.directory, 18)
        self.assertIn('expected Ceph 18', str(error))

    def test_refuses_a_ceph_without_a_distribution(self):
        error = self.assertRaises(BuildError, test_root.suite_of, 17)
        self.assertIn('choose one of 16, 18, 20', str(error))

    def test_finds_the_distribution_of_the_machine(self):
        release = self.make_file('os-release', 'ID=debian\nVERSION_CODENAME=bookworm\n')
        self.assertEqual(test_root.suite_of(16), test_root.host_codename(release))
        self.assertEqual('', test_root.host_codename(self.make_file('other', 'ID=arch\n')))


class WheelTest(ImagesTestCase):
    def make_wheel(self, name, members, year=2025):
        path = self.directory / name
        with zipfile.ZipFile(path, 'w') as archive:
            for member, content in members.items():
                archive.writestr(zipfile.ZipInfo(member, (year, 1, 1, 0, 0, 0)), content)
        return path

    def test_hash_ignores_times_and_tests(self):
        one = self.make_wheel('one.whl', {'trove_ceph/a.py': 'x', 'trove_ceph/tests/t.py': '1'})
        two = self.make_wheel('two.whl', {'trove_ceph/a.py': 'x'}, year=2026)
        three = self.make_wheel('three.whl', {'trove_ceph/a.py': 'y'})
        self.assertEqual(wheel.contents_hash(one), wheel.contents_hash(two))
        self.assertNotEqual(wheel.contents_hash(one), wheel.contents_hash(three))

    def test_hash_ignores_parts_that_guests_never_import(self):
        def contents(version, **parts):
            info, data = f'trove_ceph-{version}.dist-info', f'trove_ceph-{version}.data'
            return self.make_wheel(
                f'{version}.whl',
                {
                    'trove_ceph/guestagent/a.py': 'x',
                    f'{data}/data/share/trove-ceph/t.cnf': parts.get('template', 'y'),
                    f'{info}/entry_points.txt': parts.get('entry_points', 'z'),
                    f'{info}/METADATA': version,
                    'trove_ceph_bench/run.py': version,
                    'trove_ceph_tempest_plugin/plugin.py': version,
                },
            )

        one = wheel.contents_hash(contents('0.1'))
        self.assertEqual(one, wheel.contents_hash(contents('0.2')))
        self.assertNotEqual(one, wheel.contents_hash(contents('0.3', template='other')))
        self.assertNotEqual(one, wheel.contents_hash(contents('0.4', entry_points='other')))

    def test_refuses_other_files(self):
        for path in (
            self.make_file('text.whl', 'no archive'),
            self.make_wheel('other.whl', {'other/a.py': 'x'}),
            self.directory / 'missing.whl',
        ):
            self.assertRaises(BuildError, wheel.contents_hash, path)


class AgentUnitTest(base.BaseTestCase):
    """The unit of the guest agent."""

    ROOT = Path(__file__).resolve().parents[4]
    UNIT = ROOT / 'trove_ceph/imagebuild/files/guest/etc/systemd/system/guest-agent.service'
    # systemd.exec(5): these give a service a mount namespace.  Docker would not see the volume.
    NAMESPACES = re.compile(
        r'^(Private|Protect|ReadOnlyPaths|ReadWritePaths|InaccessiblePaths|TemporaryFileSystem|'
        r'Bind|MountFlags|RootDirectory|RootImage|DynamicUser)',
        re.MULTILINE,
    )

    @staticmethod
    def capabilities(text):
        found = re.search(r'CapabilityBoundingSet=~((?:.*\\\n)*.*)', text)
        return set(found[1].replace('\\', ' ').split())

    def test_agent_shares_its_mounts_with_docker(self):
        self.assertNotRegex(self.UNIT.read_text(), self.NAMESPACES)

    def test_guide_drops_the_same_capabilities(self):
        guide = self.ROOT / 'doc/source/configuration/guest-manager.rst'
        dropped = self.capabilities(self.UNIT.read_text())
        self.assertIn('CAP_SYS_MODULE', dropped)
        self.assertEqual(dropped, self.capabilities(guide.read_text()))
        # Mounting, growing, freezing and trimming the data volume, and its files of any owner.
        needed = {'CAP_SYS_ADMIN', 'CAP_CHOWN', 'CAP_DAC_OVERRIDE', 'CAP_FOWNER', 'CAP_NET_ADMIN'}
        self.assertEqual(set(), needed & dropped)
