# SPDX-License-Identifier: Apache-2.0
"""Inspections of a sound backup while a process below them dies or is stopped."""

import contextlib
import functools
import os
import signal
import threading
import time
import uuid

import rbd

from trove_ceph import exceptions
from trove_ceph.host import rbd_device, workspace
from trove_ceph.storage import image_types, tasks
from trove_ceph.tests.functional import base, inspecting, mysqld, storage, test_storage_disruptions
from trove_ceph.tests.functional import workspace as test_workspace
from trove_ceph.verification import inspection, report

POOL = test_storage_disruptions.POOL
IMAGE, IMAGE_MIB, SNAPSHOT = 'inspected-database', 1024, 'backup'
#: A process stays stopped for this time after the limit.
LONGER_SEC = 5
#: The inspection's own requests to Ceph end sooner than the inspection.
OPERATION_TIMEOUT_SEC = 20
SIGNALS = {'stops': signal.SIGSTOP, 'dies': signal.SIGKILL}
TARGETS = ('storage daemon', 'OSDs', 'monitor')


@functools.cache
def backup():
    """Create a database on the cluster that tests break, once, and return its snapshot."""
    cluster = test_storage_disruptions.cluster()
    cluster.create_image(POOL, IMAGE, IMAGE_MIB)
    directory = test_workspace.shared() / IMAGE
    with (
        rbd_device.RbdDevice(cluster.conf, 'admin', POOL, IMAGE, directory / 'export') as disk,
        rbd_device.Filesystem(disk.device, directory / 'volume', make=True) as filesystem,
        mysqld.durable_server(filesystem.path, directory / 'run') as server,
    ):
        server.query('CREATE DATABASE shop')
        server.query('CREATE TABLE shop.orders (id INT PRIMARY KEY, note VARCHAR(200))')
        for number in range(100):
            server.query('INSERT INTO shop.orders VALUES (%s, REPEAT(\'x\', 200))', number)
    with cluster.pool(POOL) as pool, rbd.Image(pool, IMAGE) as image:
        image.create_snap(SNAPSHOT)
    return image_types.ImageRef(POOL, IMAGE).snapshot(SNAPSHOT)


class Fault(threading.Thread):
    """A fault that strikes at the beginning of a phase, and ends after the inspection's limit.

    :param target: one of TARGETS
    :param how: one of SIGNALS
    :param limit_sec: the time limit of the inspection
    """

    def __init__(self, cluster, directory, phase, target, how, limit_sec):
        super().__init__(daemon=True)
        self._limit_sec = limit_sec
        self._cluster, self._directory = cluster, directory
        self._phase, self._target, self._how = phase, target, how
        self._begun, self._ended = threading.Event(), threading.Event()
        self._struck = []
        self.error = None

    @property
    def has_struck(self):
        return bool(self._struck)

    def note(self, phase, *_):
        if phase == self._phase and not self._begun.is_set():
            # Existing processes are struck before the phase begins, new ones as soon as they exist.
            self._strike()
            self._begun.set()

    def end(self):
        """End the fault after the inspection: strike no more, and restore the processes."""
        self._ended.set()
        self._begun.set()
        self.join()
        if self.error:
            raise self.error

    def run(self):
        try:
            self._begun.wait()
            while not self._struck and not self._ended.wait(0.01):
                self._strike()
            if self._target != 'storage daemon' and self._struck:
                self._ended.wait(self._limit_sec + LONGER_SEC)
                self._restore()
        except Exception as error:
            self.error = error

    def _strike(self):
        for pid in self._pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, SIGNALS[self._how])
                self._struck.append(pid)

    def _pids(self):
        if self._target == 'storage daemon':
            found = self._directory.glob(f'*/export/{rbd_device.PID_FILE}')
            texts = [path.read_text().strip() for path in found]
            return [int(text) for text in texts if text] + self._hypervisors()
        prefix = 'osd.' if self._target == 'OSDs' else 'mon.'
        return [pid for name, pid in self._cluster.pids().items() if name.startswith(prefix)]

    def _hypervisors(self):
        """Return the processes of QEMU, which open the clone for a virtual machine."""
        found = workspace.members(self._directory) if self._directory.exists() else []
        return [pid for pid, name in found if name.startswith('qemu-system')]

    def _restore(self):
        if self._how == 'stops':
            for pid in self._struck:
                os.kill(pid, signal.SIGCONT)
        else:
            self._cluster.start()


class InspectionFaultsTestCase(base.FunctionalTestCase):
    mode = report.NAMESPACES
    #: The time limit of an inspection with a fault. On a busy machine an inspection without a fault
    #: may exceed it, which is no verdict either.
    limit_sec = 20
    #: The same for single phases that come late.
    phase_limits_sec = {}

    def setUp(self):
        super().setUp()
        self.cluster = test_storage_disruptions.cluster()
        self.backup = backup()
        self.storage = storage.connect(self, self.cluster)
        self.inspections = self.directory / 'i'
        self.inspector = inspecting.inspector(
            self.cluster.conf,
            self.inspections,
            mode=self.mode,
            operation_timeout_sec=OPERATION_TIMEOUT_SEC,
        )

    def work(self, **options):
        return tasks.InspectTask(self.backup, str(uuid.uuid4()), inspecting.VERSION, **options)

    def strike(self, phase, target, how):
        """Inspect the backup with a fault; return both, None for a failed inspection."""
        limit_sec = self.phase_limits_sec.get(phase, self.limit_sec)
        work = self.work(time_limit_sec=limit_sec)
        fault = Fault(self.cluster, self.inspections, phase, target, how, limit_sec)
        fault.start()
        found = None
        try:
            found = self.inspector.inspect(work, image_types.ImageOptions(), note=fault.note)
        except exceptions.TroveCephError as error:
            self.addDetail(
                f'{target} {how} at {phase}', base.text_content(f'{type(error).__name__}: {error}')
            )
        finally:
            fault.end()
        self._clear(work)
        # The storage daemon cannot be struck before its start or after its end.
        self.assertTrue(fault.has_struck or target == 'storage daemon')
        return fault, found

    def _clear(self, work):
        """Remove the remains of an inspection that Ceph's silence left behind."""
        self.inspector.clear_killed()
        deadline = time.monotonic() + base.TIMEOUT_SEC
        while True:
            try:
                inspection.fencing.fence(self.storage, work.clone)
                self.storage.remove(work.clone)
            except exceptions.NotFoundError:
                break
            except exceptions.StorageError as error:
                self.assertLess(time.monotonic(), deadline, error)
                time.sleep(1)
        self.assertEqual([], workspace.mounts(self.inspections))
        self.assertEqual([], workspace.loop_devices(self.inspections))

    def assert_no_verdict(self, phase, target, how):
        fault, found = self.strike(phase, target, how)
        message = f'{target} {how} at {phase}: {found}'
        self.assertTrue(found is None or not found.is_against, message)
        return fault, found

    def assert_sound(self):
        found = self.inspector.inspect(self.work(), image_types.ImageOptions())
        self.assertTrue(found.ok, found)
