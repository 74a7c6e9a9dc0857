# SPDX-License-Identifier: Apache-2.0
import json

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.host import rbd_pool


class FakeRbd:
    """A fake ``rbd`` command of a cluster with one pool.

    :param watched: how many removals are refused because a killed client counts as a watcher
    """

    def __init__(self, *images, watched=0):
        self.images = list(images)
        self.watched = watched
        self.commands = []

    def __call__(self, *words, timeout_sec=None):
        assert words[:5] == ('rbd', '--conf', '/c', '--id', 'bench'), words
        words = words[5:]
        self.commands.append(words)
        if words[0] == 'create':
            self.images.append(words[-1].partition('/')[2])
        elif words[0] == 'ls':
            if words[-1] != 'pool':
                raise exceptions.StorageCommandError(
                    'rbd failed with exit code 2: rbd: listing images failed: '
                    '(2) No such file or directory'
                )
            return json.dumps(self.images)
        elif words[0] == 'remove':
            if self.watched:
                self.watched -= 1
                raise exceptions.StorageCommandError('rbd: error: image still has watchers')
            self.images.remove(words[-1].partition('/')[2])
        elif words[:3] == ('config', 'image', 'list'):
            return json.dumps(
                [
                    {'name': 'rbd_cache', 'value': 'true', 'source': 'config'},
                    {'name': 'rbd_qos_iops_limit', 'value': '100', 'source': 'image'},
                ]
            )
        return ''


class RbdPoolTest(base.BaseTestCase):
    def pool(self, rbd, name='pool'):
        self.slept = []
        return rbd_pool.RbdPool('/c', 'bench', name, run=rbd, sleep=self.slept.append)

    def test_resizes_to_a_smaller_size_as_well(self):
        rbd = FakeRbd('one')
        self.pool(rbd).resize_image('one', 512)
        ((verb, *options, name),) = rbd.commands
        self.assertEqual(('resize', 'pool/one'), (verb, name))
        self.assertEqual(['--no-progress', '--allow-shrink', '--size', '512M'], options)

    def test_the_size_is_in_mib(self):
        rbd = FakeRbd()

        self.pool(rbd).create_image('one', 1.5)

        self.assertEqual([('create', '--size', '1536M', 'pool/one')], rbd.commands)

    def test_removing_a_missing_image_succeeds(self):
        rbd = FakeRbd('other')

        self.pool(rbd).ensure_no_image('one')

        self.assertEqual(['other'], rbd.images)

    def test_a_missing_pool_has_no_image(self):
        self.assertFalse(self.pool(FakeRbd(), 'nope').has_image('one'))

    def test_waits_until_the_watch_of_a_killed_client_expires(self):
        rbd = FakeRbd('one', watched=3)

        self.pool(rbd).ensure_no_image('one')

        self.assertEqual([], rbd.images)
        self.assertEqual(3, len(self.slept))

    def test_gives_up_on_a_live_client(self):
        rbd = FakeRbd('one', watched=1000)
        pool = self.pool(rbd)

        self.assertRaises(exceptions.StorageCommandError, pool.ensure_no_image, 'one')

        self.assertLessEqual(sum(self.slept), rbd_pool.WATCHER_TIMEOUT_SEC)

    def test_another_failure_is_not_retried(self):
        def broken(*words, **options):
            if 'ls' in words:
                return '["one"]'
            raise exceptions.StorageCommandError('rbd: permission denied')

        self.assertRaises(exceptions.StorageCommandError, self.pool(broken).ensure_no_image, 'one')

        self.assertEqual([], self.slept)

    def test_options_of_the_image(self):
        self.assertEqual({'rbd_qos_iops_limit': '100'}, self.pool(FakeRbd()).image_options('one'))
