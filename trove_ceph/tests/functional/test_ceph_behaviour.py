# SPDX-License-Identifier: Apache-2.0
"""What Ceph itself does in the situations for which trove_ceph takes care, on the running version.

``doc/source/reference/ceph-behaviour.csv``, a table of the documents, has the expected answer for
each version. The tests compare Ceph's answer with it, so the table cannot be wrong unnoticed. They
ask Ceph's libraries, not the back end.
"""

import collections
import contextlib
import csv
import errno
import json
import signal
import subprocess
import time
from concurrent import futures

import rados
import rbd
from oslo_utils import units
from testtools.content import text_content

from trove_ceph.storage import image_types
from trove_ceph.storage.ceph import object_map
from trove_ceph.tests.contract import storage as contract
from trove_ceph.tests.functional import base, storage

TABLE = base.CHECKOUT / 'doc' / 'source' / 'reference' / 'ceph-behaviour.csv'
MIB = units.Mi
OBJECT_BYTES = 4 * MIB
PAGE_BYTES = 16 * units.Ki
RIGHT, WRONG = 'right data', '**wrong data**'
# A watch expires 30 s after its client died; the break of its lock may blocklist it just then.
WATCHED_IMAGES = 6


def expected(version, situation):
    """Return what the table says of a situation, for a version such as 16.2.15."""
    with TABLE.open(newline='') as stream:
        rows = {row['Situation']: row for row in csv.DictReader(stream)}
    release = '.'.join(version.split('.')[:2])
    answers = {
        column: text
        for column, text in rows[situation].items()
        if column.startswith(f'Ceph {release}.')
    }
    if len(answers) != 1:
        raise AssertionError(f'{TABLE.name} needs one column for Ceph {version}: {list(answers)}')
    return next(iter(answers.values()))


class CephBehaviourTest(contract.StorageContract, storage.CephStorageTestCase):
    def assert_table_says(self, situation, observed):
        version = self.cluster.mon_command('version')['version'].split()[2]
        version = version.partition('-')[0]
        self.addDetail(f'{situation} (Ceph {version})', text_content(observed))
        self.assertEqual(expected(version, situation), observed, f'Ceph {version}, {situation}')

    @contextlib.contextmanager
    def opened(self, image, snapshot=None, user='client.admin'):
        with (
            self.cluster.pool(image.pool, user) as pool,
            rbd.Image(pool, image.name, snapshot=snapshot, read_only=bool(snapshot)) as handle,
        ):
            yield handle

    def read(self, image, snapshot=None):
        with self.opened(image, snapshot) as handle:
            return handle.read(0, handle.size())

    def same(self, contents, image):
        """Return whether the image's snapshots have these contents."""
        right = all(content == self.read(image, name) for name, content in contents.items())
        return RIGHT if right else WRONG

    # Copies of an image one of whose snapshots was removed, and is not trimmed yet.

    def make_untrimmed(self, name):
        """Return an image with a removed snapshot, and the contents by snapshot."""
        image = self.make(name, size_mib=64)
        with self.opened(image) as handle:
            self._overwrite(handle)
            handle.create_snap('s0')
            handle.create_snap('a')
            self._overwrite(handle)
            handle.create_snap('b')
            handle.remove_snap('a')
        return image, {snapshot: self.read(image, snapshot) for snapshot in ('s0', 'b')}

    def _overwrite(self, handle):
        for number in range(12):
            handle.write(self.data(OBJECT_BYTES), number * OBJECT_BYTES)
        for _ in range(100):
            handle.write(self.data(PAGE_BYTES), self.random.randrange(63 * MIB))

    def stop_trimming(self):
        self._set_flag('osd set')
        self.addCleanup(self._set_flag, 'osd unset')

    def _set_flag(self, command):
        with self.cluster.connection() as handle:
            request = json.dumps({'prefix': command, 'key': 'nosnaptrim'})
            code, _, message = handle.mon_command(request, b'')
        self.assertEqual(0, code, message)

    def test_deep_copy(self):
        self.stop_trimming()
        image, contents = self.make_untrimmed('source')
        target = self.ref('target')
        with self.cluster.pool(image.pool) as pool:
            with rbd.Image(pool, image.name, read_only=True) as source:
                source.deep_copy(pool, target.name)
        self.assert_table_says('deep copy', self.same(contents, target))

    def test_migration(self):
        self.stop_trimming()
        image, contents = self.make_untrimmed('source')
        target = self.ref('target', self.second_pool)
        with self.cluster.pool(image.pool) as pool, self.cluster.pool(target.pool) as target_pool:
            features = rbd.RBD().features_from_string(','.join(image_types.DEFAULT_FEATURES))
            rbd.RBD().migration_prepare(
                pool, image.name, target_pool, target.name, features=features
            )
            rbd.RBD().migration_execute(target_pool, target.name)
            rbd.RBD().migration_commit(target_pool, target.name)
        self.assert_table_says('migration', self.same(contents, target))

    def test_export_of_differences(self):
        self.stop_trimming()
        image, contents = self.make_untrimmed('source')
        target = self.ref('target', self.second_pool)
        self._rbd('create', '--size', '64M', self._spec(target))
        for since, name in ((None, 's0'), ('s0', 'b')):
            export = ['export-diff', f'{self._spec(image)}@{name}', '-']
            export += ['--from-snap', since] if since else []
            with subprocess.Popen(self._command(*export), stdout=subprocess.PIPE) as exporting:
                self._rbd('import-diff', '-', self._spec(target), stdin=exporting.stdout)
            self.assertEqual(0, exporting.returncode)
        self.assert_table_says('export-diff and import-diff', self.same(contents, target))

    @staticmethod
    def _spec(image):
        return f'{image.pool}/{image.name}'

    def _command(self, *arguments):
        return ['rbd', '--conf', str(self.cluster.conf), '--no-progress', *arguments]

    def _rbd(self, *arguments, **options):
        subprocess.run(self._command(*arguments), check=True, timeout=120, **options)

    # Object maps.

    def test_fast_diff(self):
        """Writes, discards and zeros between two snapshots, also over data of a removed one."""
        self.stop_trimming()
        image, _ = self.make_untrimmed('image')
        with self.opened(image) as handle:
            for _ in range(40):
                change = self.random.choice(('write', 'discard', 'zero'))
                offset = self.random.randrange(63 * MIB)
                if change == 'write':
                    handle.write(self.data(PAGE_BYTES), offset)
                else:
                    handle.discard(offset, self.random.randrange(PAGE_BYTES, MIB))
            handle.create_snap('c')
        missed = collections.Counter()
        for since, name in ((None, 's0'), ('s0', 'b'), ('s0', 'c'), ('b', 'c')):
            before = self.read(image, since) if since else bytes(64 * MIB)
            after = self.read(image, name)
            marked = self._marked_objects(image, since, name)
            for number in range(64 * MIB // OBJECT_BYTES):
                part = slice(number * OBJECT_BYTES, (number + 1) * OBJECT_BYTES)
                if before[part] != after[part] and number not in marked:
                    missed[f'{since} to {name}'] += 1
        self.addDetail('objects that fast-diff misses', text_content(str(missed)))
        self.assert_table_says('fast-diff', '**misses changes**' if missed else 'complete')

    def _marked_objects(self, image, since, name):
        marked = set()
        with self.opened(image, name) as handle:
            handle.diff_iterate(
                *(0, handle.size(), since),
                lambda offset, length, exists: marked.update(
                    range(offset // OBJECT_BYTES, (offset + length - 1) // OBJECT_BYTES + 1)
                ),
                whole_object=True,
            )
        return marked

    def test_flatten_after_an_interrupted_one(self):
        """An object that is marked as copied, but was not written."""
        parent = self.make_written('parent')
        clone = self.ref('clone')
        self.storage.clone(parent.snapshot('s'), clone, image_types.ImageOptions())
        content = self.read(parent, 's')
        with self.opened(clone) as handle:
            handle.write(content[OBJECT_BYTES : OBJECT_BYTES + 512], OBJECT_BYTES)
            prefix = handle.stat()['block_name_prefix']
        with self.cluster.pool(self.pool) as pool:
            pool.remove_object(f'{prefix}.{1:016x}')
        with self.opened(clone) as handle:
            handle.flatten()
        observed = RIGHT if self.read(clone) == content else WRONG
        self.assert_table_says('flatten after an interrupted one', observed)

    def test_metadata_of_a_clone(self):
        parent = self.make_written('parent')
        clone = self.ref('clone')
        with self.opened(parent) as handle:
            handle.metadata_set('conf_rbd_qos_iops_limit', '100')
        with self.cluster.pool(self.pool) as pool:
            rbd.RBD().clone(pool, parent.name, 's', pool, clone.name)
        with self.opened(clone) as handle:
            inherited = dict(handle.metadata_list())
        observed = 'inherited' if 'conf_rbd_qos_iops_limit' in inherited else 'not inherited'
        self.assert_table_says('limits of a clone', observed)

    def test_interrupted_creation_of_a_snapshot(self):
        """The snapshot is in the header, and its object map is not written."""
        image = self.make_written()
        with self.opened(image) as handle:
            (snapshot,) = handle.list_snaps()
            name = object_map.object_name(handle.id(), snapshot['id'])
        with self.cluster.pool(self.pool) as pool:
            pool.remove_object(name)
        try:
            self.read(image, 's')
            observed = RIGHT
        except rbd.ImageNotFound:
            observed = '**ENOENT**'
        self.assert_table_says('interrupted creation of a snapshot', observed)

    # Clients.

    @base.long
    def test_break_of_a_lock_with_rbd_blocklist_expire_seconds(self):
        image = self.make(size_mib=8)
        victim = self.start_writing(image)
        options = {'rbd_blocklist_expire_seconds': '3600'}
        breaker = rados.Rados(conffile=str(self.cluster.conf), name=storage.USER, conf=options)
        breaker.connect()
        self.addCleanup(breaker.shutdown)
        with breaker.open_ioctx(image.pool) as pool, rbd.Image(pool, image.name) as handle:
            (owner,) = handle.lock_get_owners()
            try:
                handle.lock_break(owner['mode'], owner['owner'])
                observed = 'breaks the lock'
            except rbd.Error as error:
                self.assertEqual(errno.EINVAL, abs(error.errno))
                observed = '**EINVAL**'
        if observed == 'breaks the lock':
            self.assertEqual('ConnectionShutdown', victim.stdout.readline().split()[0])
            self._unblock_all()
        self.assert_table_says('rbd_blocklist_expire_seconds', observed)

    @base.long
    def test_snapshot_of_an_image_whose_client_is_paused(self):
        image = self.make(size_mib=8)
        victim = self.start_writing(image)
        address = self.storage.find_clients(image).lock_owner
        victim.send_signal(signal.SIGSTOP)
        self.await_watch(image, address, False)
        with self.opened(image) as handle:
            handle.create_snap('t')
        is_blocked = address in self._blocklist()
        victim.send_signal(signal.SIGCONT)
        if is_blocked:
            self.assertEqual('ConnectionShutdown', victim.stdout.readline().split()[0])
            self._unblock_all()
        observed = '**blocklists it**' if is_blocked else 'waits for it'
        self.assert_table_says('snapshot of an image whose client is paused', observed)

    def _blocklist(self):
        listed = storage.link(self, self.cluster).mon_command('osd blocklist ls')
        return {entry['addr']: entry['until'] for entry in listed}

    def _unblock_all(self):
        for address in self._blocklist():
            self._block('rm', address)

    def _block(self, operation, address, **arguments):
        request = {'prefix': 'osd blocklist', 'blocklistop': operation, 'addr': address}
        with self.cluster.connection() as handle:
            code, _, message = handle.mon_command(json.dumps(request | arguments), b'')
        self.assertEqual(0, code, message)

    def test_second_entry_in_the_blocklist(self):
        address = '127.0.0.1:0/3141592653'
        self.addCleanup(self._block, 'rm', address)
        self._block('add', address, expire=600.0)
        first = self._blocklist()[address]
        self._block('add', address, expire=86400.0)
        second = self._blocklist()[address]
        observed = 'the older one stays' if first == second else 'the newer one replaces it'
        self.assert_table_says('second entry in the blocklist', observed)

    def test_profile_rbd_and_the_blocklist(self):
        """The profile allows adding an entry; removing it needs a capability of its own."""
        user, address = f'client.{self.prefix}', '127.0.0.1:0/2718281828'
        caps = ['mon', 'profile rbd', 'osd', 'profile rbd']
        (found,) = self.cluster.mon_command('auth get-or-create', entity=user, caps=caps)
        self.addCleanup(self._forget, user)
        client = rados.Rados(conffile=str(self.cluster.conf), name=user, conf={'key': found['key']})
        client.connect()
        self.addCleanup(client.shutdown)
        codes = {}
        for operation in ('add', 'rm'):
            request = {'prefix': 'osd blocklist', 'blocklistop': operation, 'addr': address}
            codes[operation] = client.mon_command(json.dumps(request), b'')[0]
        self.assertEqual(0, codes['add'])
        if codes['rm']:
            self.assertEqual(-errno.EACCES, codes['rm'])
            self._block('rm', address)
        observed = 'refused' if codes['rm'] else 'allowed'
        self.assert_table_says('profile rbd removes from the blocklist', observed)

    def _forget(self, user):
        with self.cluster.connection() as handle:
            handle.mon_command(json.dumps({'prefix': 'auth rm', 'entity': user}), b'')

    @base.long
    def test_watchers_of_killed_clients(self):
        """Whether one stays listed is a matter of milliseconds; repeering always removes it."""
        images = [self.make(f'image-{number}', size_mib=8) for number in range(WATCHED_IMAGES)]
        victims = [self.start_writing(image) for image in images]
        for victim in victims:
            victim.kill()
            victim.wait()
        # Each waits for the lock of a dead client, and blocklists it once its watch has expired.
        with futures.ThreadPoolExecutor(len(images)) as pool:
            list(pool.map(lambda image: self.write(image, 0, b'mine'), images))
        watched = [image.name for image in images if self.storage.find_clients(image).watchers]
        self.addDetail(
            f'of {len(images)} images a blocklisted client still watched',
            text_content(str(watched)),
        )
        if watched:
            self.cluster.repeer(self.pool)
        deadline = time.monotonic() + storage.EXPIRY_TIMEOUT_SEC
        while any(self.storage.find_clients(image).watchers for image in images):
            self.assertLess(time.monotonic(), deadline, 'a watcher outlived the repeering')
            time.sleep(1)
