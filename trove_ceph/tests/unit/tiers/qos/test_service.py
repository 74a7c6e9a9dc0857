# SPDX-License-Identifier: Apache-2.0
import threading
import time
from pathlib import Path

import fixtures
import oslo_messaging
import yaml
from oslo_config import cfg
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.conf import qos as qos_conf
from trove_ceph.storage import image_types
from trove_ceph.tests.unit.tiers import sample
from trove_ceph.tests.unit.tiers.qos import cloud_server, world
from trove_ceph.tiers.qos import service

TIMEOUT_SEC = 60


class Listener:
    """A bus on which only the test sends."""

    def __init__(self):
        self.calls = []

    def __call__(self, changed):
        self.changed = changed
        return self

    def __getattr__(self, name):
        return lambda: self.calls.append(name)


class ReportingReconciler:
    """A reconciler that signals the end of each call."""

    def __init__(self, reconciler):
        self._reconciler = reconciler
        self.swept, self.limited = threading.Semaphore(0), threading.Semaphore(0)
        self.failure = None

    def sweep(self, stopped):
        try:
            if self.failure:
                raise self.failure
            return self._reconciler.sweep(stopped)
        finally:
            self.swept.release()

    def set_limits(self, volume_id):
        try:
            return self._reconciler.set_limits(volume_id)
        finally:
            self.limited.release()


class QosServiceTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.Timeout(TIMEOUT_SEC, gentle=True))
        self.world = world.World()
        self.reconciler = ReportingReconciler(self.world.reconciler())
        self.listener = Listener()

    def _start(self, interval_sec=3600):
        running = service.QosService(self.reconciler, interval_sec, self.listener)
        running.start()
        self.addCleanup(running.stop, TIMEOUT_SEC)
        return running

    def test_sweeps_at_the_start_and_periodically(self):
        volume, image = self.world.add()
        self._start(interval_sec=0.01)
        self.reconciler.swept.acquire()
        self.assertEqual(world.LIMITS, self.world.limits(image))
        volume['volume_type'] = 'slow'
        while self.reconciler.swept.acquire(blocking=False):
            pass
        # The present sweep may have listed the volumes before.
        self.reconciler.swept.acquire()
        self.reconciler.swept.acquire()
        self.assertEqual(image_types.Qos(), self.world.limits(image))

    def test_volume_that_changed_gets_its_limit_at_once(self):
        self._start()
        self.reconciler.swept.acquire()
        volume, image = self.world.add()
        self.listener.changed(volume['id'])
        self.reconciler.limited.acquire()
        self.assertEqual(world.LIMITS, self.world.limits(image))

    def test_continues_after_failures(self):
        self.reconciler.failure = exceptions.CephUnreachableError('timed out')
        self._start(interval_sec=0.01)
        self.reconciler.swept.acquire()
        self.reconciler.failure = RuntimeError('of the test')
        self.reconciler.swept.acquire()
        self.world.cinder.failure = 503
        for _ in range(2):
            self.listener.changed('any')
            self.reconciler.limited.acquire()
        self.world.cinder.failure = None
        volume, image = self.world.add()
        self.listener.changed(volume['id'])
        self.reconciler.limited.acquire()
        self.assertEqual(world.LIMITS, self.world.limits(image))

    def test_stop_ends_threads_and_listener(self):
        running = self._start()
        self.reconciler.swept.acquire()
        self.assertTrue(running.stop(TIMEOUT_SEC))
        self.assertEqual(['start', 'stop', 'wait'], self.listener.calls[:3])
        self.assertEqual(
            [], [one.name for one in threading.enumerate() if one.name.startswith('qos-')]
        )

    def test_stop_does_not_wait_for_ever(self):
        """Ceph may not answer, for example."""
        hanging = threading.Event()
        self.reconciler.sweep = lambda stopped: hanging.wait()
        running = self._start()
        self.assertFalse(running.stop(0.01))
        hanging.set()
        self.assertTrue(running.stop(TIMEOUT_SEC))

    def test_stop_shortens_a_sweep(self):
        """The sweep stops between two volumes."""
        images = [self.world.add()[1] for _ in range(3)]
        calls = []

        def stopped():
            calls.append(None)
            # Once for each image, and then before the first volume.
            return len(calls) > 4

        self.world.reconciler().sweep(stopped)
        limited = [self.world.limits(image) for image in images]
        self.assertEqual([world.LIMITS, image_types.Qos(), image_types.Qos()], limited)


class ConfigurationTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.conf = cfg.ConfigOpts()
        qos_conf.register(self.conf)
        self.directory = Path(self.useFixture(fixtures.TempDir()).path)

    def _configure(self, *lines):
        path = self.directory / 'service.conf'
        bus = ['[DEFAULT]', 'transport_url = fake://']
        path.write_text('\n'.join([*bus, '[trove_ceph_qos]', *lines]))
        self.conf(['--config-file', str(path)])

    def _of(self, fakes):
        tiers = self.directory / 'tiers.yaml'
        return service.of_configuration(self.conf, str(tiers), fakes.storage)

    def test_configured_service(self):
        """Run the configured service with Keystone and Cinder over HTTP, and a bus."""
        cloud = self.useFixture(cloud_server.CloudServer())
        fakes = world.World()
        fakes.cinder = cloud.cinder
        images = [fakes.add()[1] for _ in range(5)]
        (self.directory / 'tiers.yaml').write_text(yaml.safe_dump(sample.changed(world.TIERS)))
        self._configure(
            *('auth_type = password', f'auth_url = {cloud.url}/v3', 'username = u'),
            *('password = x', 'project_name = p', 'user_domain_id = default'),
            *('project_domain_id = default', 'region_name = east'),
        )
        running = self._of(fakes)
        running.start()
        self.addCleanup(running.stop, TIMEOUT_SEC)
        self._await(lambda: {fakes.limits(image) for image in images} == {world.LIMITS})
        volume, image = fakes.add()
        bus = oslo_messaging.get_notification_transport(self.conf)
        cinder = oslo_messaging.Notifier(
            bus, 'volume.host@fast', driver='messagingv2', topics=['trove-ceph-qos']
        )
        for gone in ('gone', volume['id']):
            cinder.info({}, 'volume.create.end', {'volume_id': gone})
        self._await(lambda: fakes.limits(image) == world.LIMITS)

    def _await(self, condition):
        deadline = time.monotonic() + TIMEOUT_SEC
        while not condition():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def test_invalid_tiers_file_is_reported_at_the_start(self):
        self._configure()
        error = self.assertRaises(exceptions.InvalidTiersError, self._of, world.World())
        self.assertIn('tiers.yaml: cannot be read', str(error))

    def test_credentials_for_cinder_are_required(self):
        (self.directory / 'tiers.yaml').write_text(yaml.safe_dump(sample.CONTENT))
        for lines, missing in (
            ([], 'auth_type'),
            (['auth_type = none at all'], 'none at all'),
            (['auth_type = password'], 'auth'),
        ):
            self._configure(*lines)
            error = self.assertRaises(cfg.Error, self._of, world.World())
            self.assertIn(missing, str(error))

    def test_registering_twice(self):
        qos_conf.register(self.conf)
        self.conf([])
        self.assertFalse(self.conf.trove_ceph_qos.enabled)

    def test_options_for_the_sample(self):
        listed = {opt.name: opt for opt in qos_conf.list_opts()}
        for opt in qos_conf.OPTS:
            self.assertGreater(len(listed[opt.name].help), 60, opt.name)
        self.assertIn('auth_url', ' '.join(listed).replace('-', '_'))
