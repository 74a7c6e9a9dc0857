# SPDX-License-Identifier: Apache-2.0
"""Tests of the plans that measure replicas: each command runs, with the programs recorded."""

import json
import os
import subprocess
from pathlib import Path

import fixtures
from oslotest import base

from trove_ceph_bench import arguments, plan_file

_STUB = '#!/bin/sh\necho "$(basename "$0") $*" >>"$CALLS"\n'
#: Each question finds 10 bytes more in use. The image has one clone.
_RBD = """
case "$*" in
*children*) echo replicas-nvme/volume-copy ;;
*du*)
  count="$(grep -c " du " "$CALLS")"
  echo "{\\"total_used_size\\": $((count * 10))}" ;;
esac
"""
_SAME = {'BENCH_SAME_POOL_INSTANCE': 'plain', 'BENCH_SAME_POOL_IMAGE': 'volumes-nvme/volume-plain'}
_IMAGE = {'BENCH_INSTANCE_IMAGE': 'volumes-nvme/volume-shop'}
_STOCK = {'BENCH_STOCK_INSTANCE': 'old', 'BENCH_STOCK_IMAGE': 'volumes-nvme/volume-old'}


class ReplicaPlansTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.directory = Path(self.useFixture(fixtures.TempDir()).path)
        self.install('trove-ceph-bench', '')
        self.install('rbd', _RBD)
        self.install('openstack', 'exit 1')
        self.log = self.directory / 'calls'

    def install(self, name, then):
        stub = self.directory / name
        stub.write_text(_STUB + then)
        stub.chmod(0o755)

    def load(self, name, **environ):
        self.contenders = {
            (one.operation, one.name): one for one in plan_file.load(name, environ).contenders
        }

    def calls(self, operation, name, key):
        """Run a command of a contender; return the command lines of the benchmark and others."""
        self.log.write_text('')
        self.output = self._run(operation, name, getattr(self.contenders[operation, name], key))
        lines = self.log.read_text().splitlines()
        for line in lines:
            program, *words = line.split()
            if program == 'trove-ceph-bench':
                # It would exit if it did not know the command.
                arguments.parse(words)
        return [line.removeprefix('trove-ceph-bench ') for line in lines]

    def _run(self, operation, name, command):
        environ = {
            'PATH': f'{self.directory}:{os.environ["PATH"]}',
            'CALLS': str(self.log),
            'BENCH_OPERATION': operation,
            'BENCH_VARIANT': name,
            'BENCH_INSTANCE': 'shop',
            'BENCH_POOL': 'volumes-nvme',
            'BENCH_IMAGE': 'volume-shop',
            'BENCH_CEPH_CONF': 'ceph.conf',
            'BENCH_DIRECTORY': str(self.directory),
            'BENCH_LOCAL_DIRECTORY': str(self.directory),
            **_SAME,
            **_STOCK,
        }
        return subprocess.run(
            ['sh', '-ec', command], env=environ, check=True, stdout=subprocess.PIPE, text=True
        ).stdout

    def test_every_plan_repeats_each_contender_five_times(self):
        environ = {**_IMAGE, **_SAME, **_STOCK}
        for name in ('replica-latency', 'replica-reads', 'replica-scaling', 'semi-sync'):
            loaded = plan_file.load(name, environ)
            self.assertEqual(5, loaded.repeats, name)
            self.assertEqual([], [one.name for one in loaded.contenders if one.repeats], name)
            self.assertIn('subject', {one.role for one in loaded.contenders}, name)

    def test_creation(self):
        self.load('replica-latency', **_IMAGE, **_STOCK)
        used = [
            f'rbd --conf ceph.conf du --pool {pool} --format json'
            for pool in ('volumes-nvme', 'replicas-nvme')
        ]
        for name, source, choice, zone, start in (
            ('warm', 'shop', [], '', 'warm'),
            ('cold', 'shop', [], ' --zone nova', 'cold'),
            ('stock', 'old', ['trove choose-backups old stock'], '', 'cold'),
        ):
            begin = [f'trove choose-backups {source} none', 'guests await']
            self.assertEqual([*begin, *choice, *used], self.calls('replica', name, 'prepare'))
            self.assertEqual(
                [f'replicas create {source} bench-replica{zone}'],
                self.calls('replica', name, 'run'),
            )
            self.assertEqual(
                f'guests check bench-replica {start}', self.calls('replica', name, 'check')[0]
            )
            self.assertEqual(
                'trove delete-instance bench-replica', self.calls('replica', name, 'cleanup')[0]
            )
        self.assertEqual('old', self.contenders['replica', 'stock'].target['instance'])

    def test_space_is_the_growth_of_both_pools(self):
        self.load('replica-latency', **_IMAGE, **_STOCK)
        (self.directory / 'used.json').write_text(
            ''.join(f'{json.dumps({"total_used_size": size})}\n' for size in (3, 4))
        )
        self.log.write_text('')
        found = self._run('replica', 'warm', self.contenders['replica', 'warm'].cost['space_bytes'])
        self.assertEqual(10 + 20 - 3 - 4, int(found))

    def test_copies_by_tools_of_mysql(self):
        self.load('replica-latency', **_IMAGE, **_STOCK)
        place = self.directory
        self.assertEqual(
            [f'mysql clone {place}/bench-clone', f'mysql start {place}/bench-clone'],
            self.calls('replica', 'clone', 'run'),
        )
        self.assertEqual(
            [
                f'mysql dump {place}/bench-dump.sql',
                f'mysql load {place}/bench-dump.sql {place}/bench-loaded',
            ],
            self.calls('replica', 'dump', 'run'),
        )

    def test_bare_snapshot(self):
        self.load('replica-latency', **_IMAGE, **_STOCK)
        for key, verb in (('run', 'create'), ('cleanup', 'rm')):
            self.assertEqual(
                [f'rbd --conf ceph.conf snap {verb} --no-progress volumes-nvme/volume-shop@bench'],
                self.calls('replica', 'snapshot', key),
            )

    def test_reprovisioning(self):
        self.load('replica-latency', **_IMAGE, **_STOCK)
        self.assertEqual(
            [
                'trove choose-backups shop none',
                'replicas create shop bench-replica',
                'trove await-healthy bench-replica',
            ],
            self.calls('reprovision', 'ours', 'prepare'),
        )
        self.assertEqual(
            ['replicas reprovision bench-replica'], self.calls('reprovision', 'ours', 'run')
        )

    def test_reads_of_clones(self):
        self.load('replica-reads', **_IMAGE, **_SAME)
        flatten = [
            'rbd --conf ceph.conf children volumes-nvme/volume-shop',
            'rbd --conf ceph.conf flatten --no-progress replicas-nvme/volume-copy',
        ]
        read = 'replicas read bench-replica --transactions 20000'
        for pool, source in (('other', 'shop'), ('same', 'plain')):
            begin = [
                f'replicas create {source} bench-replica',
                'trove await-healthy bench-replica',
            ]
            for heat, warming in (('cold', []), ('warm', [read])):
                operation = f'read-{heat}-{pool}-pool'
                for name, flattening in (('clone', []), ('flattened', flatten)):
                    self.assertEqual(
                        begin + flattening + warming, self.calls(operation, name, 'prepare')
                    )
                    self.assertEqual([read], self.calls(operation, name, 'run'))
        self.assertEqual(8, len(self.contenders))

    def test_scaling(self):
        self.load('replica-scaling')
        end = '--transactions 60000 --threads 8'
        for name, servers in (
            ('source', 'shop'),
            ('one-replica', 'bench-replica-1'),
            ('two-replicas', 'bench-replica-1 bench-replica-2'),
            ('three-replicas', 'bench-replica-1 bench-replica-2 bench-replica-3'),
        ):
            self.assertEqual([f'replicas read {servers} {end}'], self.calls('read', name, 'run'))
        self.assertEqual(
            [
                'openstack database instance show bench-replica-1',
                'replicas create shop bench-replica --count 3',
            ],
            self.calls('read', 'source', 'prepare'),
        )

    def test_replicas_are_created_once(self):
        self.install('openstack', '')
        self.load('replica-scaling')
        self.assertEqual(1, len(self.calls('read', 'source', 'prepare')))

    def test_semi_sync(self):
        self.load('semi-sync')
        for operation, more in (('commit-1', ''), ('commit-8', ' --connections 8')):
            for name in ('on', 'off'):
                self.assertEqual(
                    f'replicas semi-sync shop {name}', self.calls(operation, name, 'prepare')[-1]
                )
                self.assertEqual(
                    [f'replicas commit shop --rows 2000{more}'],
                    self.calls(operation, name, 'run'),
                )
                self.assertEqual(
                    ['replicas semi-sync shop off'], self.calls(operation, name, 'cleanup')
                )
