# SPDX-License-Identifier: Apache-2.0
"""Limits that the reconciler sets, measured with fio through librbd, as a hypervisor uses it.

The cap must hold within 5 % for ten seconds, and follow a resize while the client keeps the image
open: one fio writes and reads all the time. The limits are far below the speed of the image, so
that they take effect on a busy machine, too.
"""

import os
import shutil
import signal
import subprocess
import time

import rbd
from oslo_utils import units
from testtools.content import json_content

from trove_ceph.storage import image_types
from trove_ceph.tests.contract import storage as contract
from trove_ceph.tests.functional import base, ceph, storage
from trove_ceph.tests.unit.tiers import fake_cloud
from trove_ceph.tiers import cinder, tiers_file
from trove_ceph.tiers.qos import ownership, reconciler

TOLERANCE = 0.05
# An idle image may do the operations of one second at once, and a change takes effect in a second.
SETTLE_SEC = 3
PLATEAU_SEC = 12
# The marker for no limit, where the rate is much higher.
FREE_SEC = 3
FIO_SEC = 120
SIZE_MIB = 64
TICK = 'conf_rbd_qos_schedule_tick_min'


def tiers(**promise):
    """Return the tiers of the shared cluster, one of them with a promise."""
    promising = ceph.TIERS['tiers']['nvme'] | promise
    return tiers_file.parse({'tiers': ceph.TIERS['tiers'] | {'nvme': promising}})


class Fio:
    """fio on an image, which logs the end of each request."""

    def __init__(self, directory, conf, image, *options):
        self._log = directory / 'fio_lat.1.log'
        command = ['fio', '--name=client', '--ioengine=rbd', f'--pool={image.pool}']
        command += [f'--clientname={storage.USER.removeprefix("client.")}']
        command += [f'--rbdname={image.name}', f'--size={SIZE_MIB}M', '--time_based']
        command += [f'--runtime={FIO_SEC}', '--rw=randrw', *options]
        command += [f'--write_lat_log={directory / "fio"}', '--log_unix_epoch=1']
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=(directory / 'fio-output.log').open('wb'),
            stderr=subprocess.STDOUT,
            env=os.environ | {'CEPH_CONF': str(conf)},
            cwd=directory,
        )

    def still_runs(self):
        return self._process.poll() is None

    def ended(self):
        """Stop fio and return the completion time of each request, in seconds of the clock."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait(timeout=60)
        lines = self._log.read_text().splitlines()
        # Too long to be attached to a failure.
        for log in self._log.parent.glob('fio_*.1.log'):
            log.unlink()
        return [int(line.split(',')[0]) / 1000 for line in lines]

    def kill(self):
        self._process.kill()
        self._process.wait()


@base.serial
class QosTest(contract.StorageContract, storage.CephStorageTestCase):
    def setUp(self):
        super().setUp()
        self.cloud = fake_cloud.FakeCinder()
        self.volume = self.cloud.add_volume(self.pool, 10, backend=self.pool, id=self.prefix)
        self.image = image_types.ImageRef(self.pool, f'volume-{self.prefix}')
        self.storage.create_image(self.image, SIZE_MIB * units.Mi, image_types.ImageOptions())
        self.addCleanup(self.storage.remove, self.image)
        with self.storage.open_writer(self.image) as writer:
            writer.write(0, self.data(SIZE_MIB * units.Mi)).result()

    def test_reads_foreign_limits_as_librbd_does(self):
        theirs = {'iops_limit': '4K', 'iops_burst': '10'}
        entries = {f'conf_rbd_qos_{key}': value for key, value in theirs.items()}
        self.storage.set_image_metadata(self.image, entries)
        facts = self.storage.describe(self.image)
        self.assertEqual((image_types.Qos(iops=4096), False), (facts.qos, facts.qos_is_whole))

    def test_restores_a_lost_tick(self):
        qos_reconciler = self._reconciler(iops={'per_gib': 4, 'floor': 25, 'cap': 100}, qos='image')
        qos_reconciler.sweep()
        self.assertEqual('10', self._tick())
        self.storage.set_image_metadata(self.image, {TICK: None})
        self.assertEqual(1, len(qos_reconciler.plan().changes))
        qos_reconciler.sweep()
        self.assertEqual('10', self._tick())
        self.assertEqual((), qos_reconciler.plan().changes)
        self.volume['volume_type'] = 'of no tier'
        qos_reconciler.sweep()
        self.assertIsNone(self._tick())

    def _tick(self):
        """Return the tick that librbd in a hypervisor would use."""
        with (
            self.cluster.pool(self.image.pool) as pool,
            rbd.Image(pool, self.image.name, read_only=True) as handle,
        ):
            return dict(handle.metadata_list()).get(TICK)

    def _reconciler(self, **promise):
        return reconciler.Reconciler(
            lambda: tiers(**promise), cinder.Cinder(self.cloud.client()), self.storage
        )

    def _fio(self, *options):
        if shutil.which('fio') is None:
            self.skipTest('needs fio')
        fio = Fio(self.directory, self.cluster.conf, self.image, *options)
        self.addCleanup(fio.kill)
        return fio

    def _plateau(self, fio, change=None, seconds=PLATEAU_SEC):
        """Make a change, wait, and return the time range in which it must hold."""
        if change:
            change()
        began = time.time() + SETTLE_SEC
        time.sleep(SETTLE_SEC + seconds)
        self.assertTrue(fio.still_runs(), 'fio ended by itself')
        return began, began + seconds

    def _rates(self, fio, *plateaus):
        done = fio.ended()
        rates = [
            round(sum(begin <= at < end for at in done) / (end - begin), 1)
            for begin, end in plateaus
        ]
        self.addDetail('rates', json_content(rates))
        return rates

    def assert_held(self, limit, rate):
        self.assertLess(abs(rate - limit), limit * TOLERANCE, f'{rate} per second, not {limit}')

    @base.long
    def test_iops_hold_and_follow_a_resize(self):
        qos_reconciler = self._reconciler(iops={'per_gib': 2, 'floor': 12, 'cap': 50}, qos='image')
        fio = self._fio('--bs=4k', '--iodepth=16')
        free = self._plateau(fio, seconds=FREE_SEC)
        limited = self._plateau(fio, qos_reconciler.sweep)

        def resize():
            self.volume['size'] = 20
            qos_reconciler.set_limits(self.volume['id'])

        resized = self._plateau(fio, resize)

        def outgrow():
            self.volume['size'] = 1000
            qos_reconciler.set_limits(self.volume['id'])

        capped = self._plateau(fio, outgrow)

        def retype():
            self.volume['volume_type'] = 'of no tier'
            qos_reconciler.set_limits(self.volume['id'])

        freed = self._plateau(fio, retype, FREE_SEC)
        rates = self._rates(fio, free, limited, resized, capped, freed)
        self.assertGreater(rates[0], 75, 'this machine is too slow for limits to be seen')
        for limit, rate in zip((20, 40, 50), rates[1:4], strict=True):
            self.assert_held(limit, rate)
        self.assertGreater(rates[4], 75)
        facts = self.storage.describe(self.image)
        self.assertEqual((image_types.Qos(), {}), (facts.qos, facts.metadata))

    def test_throughput_holds(self):
        qos_reconciler = self._reconciler(throughput_mib_per_sec=1, qos='image')
        fio = self._fio('--bs=32k', '--iodepth=16')
        limited = self._plateau(fio, qos_reconciler.sweep)
        self.assert_held(32, self._rates(fio, limited)[0])

    def test_clone_by_cinder_gets_its_own_limits(self):
        """In librbd it inherits those of its parent, with the mark; Cinder does not change that."""
        qos_reconciler = self._reconciler(iops={'per_gib': 4, 'floor': 25, 'cap': 100}, qos='image')
        qos_reconciler.sweep()
        self.storage.create_snapshot(self.image.snapshot('s'))
        clone = image_types.ImageRef(self.pool, f'volume-{self.prefix}-clone')
        self.addCleanup(self.storage.remove_snapshot, self.image.snapshot('s'))
        self.addCleanup(self.storage.remove, clone)
        rbd = ['rbd', '--conf', self.cluster.conf, '--rbd-default-clone-format', '2', 'clone']
        subprocess.run([*rbd, self.image.snapshot('s').__str__(), str(clone)], check=True)
        inherited = self.storage.describe(clone)
        self.assertEqual(40, inherited.qos.iops)
        self.assertEqual(40, ownership.read(inherited.metadata).limits.iops)
        volume = self.cloud.add_volume(self.pool, 5, self.pool, id=f'{self.prefix}-clone')
        qos_reconciler.sweep()
        self.assertEqual(25, self.storage.describe(clone).qos.iops)
        volume['volume_type'] = 'of no tier'
        qos_reconciler.sweep()
        facts = self.storage.describe(clone)
        self.assertEqual((image_types.Qos(), {}), (facts.qos, facts.metadata))
        self.assertEqual(40, self.storage.describe(self.image).qos.iops)
