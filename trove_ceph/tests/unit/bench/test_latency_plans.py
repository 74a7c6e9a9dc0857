# SPDX-License-Identifier: Apache-2.0
"""Tests of the plans that compare operations with warm guests, without them, and stock's."""

import os
import subprocess
from pathlib import Path

import fixtures
from oslotest import base

from trove_ceph_bench import arguments, plan_file

_STUBS = {'trove-ceph-bench': 'echo "$*" >>"$CALLS"', 'sleep': ''}


class LatencyPlansTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.directory = Path(self.useFixture(fixtures.TempDir()).path)
        for name, body in _STUBS.items():
            stub = self.directory / name
            stub.write_text(f'#!/bin/sh\n{body}\n')
            stub.chmod(0o755)

    def calls(self, name):
        """Return the command lines of all commands of a plan, by contender and command."""
        found = {}
        for contender in plan_file.load(name, {}).contenders:
            for key in ('prepare', 'run', 'check', 'cleanup'):
                found[contender.name, key] = self._run(contender, getattr(contender, key))
        return found

    def _run(self, contender, command):
        log = self.directory / 'calls'
        log.write_text('')
        environ = {
            'PATH': f'{self.directory}:{os.environ["PATH"]}',
            'CALLS': str(log),
            'BENCH_VARIANT': contender.name,
            'BENCH_INSTANCE': 'shop',
        }
        subprocess.run(['sh', '-ec', command], env=environ, check=True)
        lines = log.read_text().splitlines()
        for line in lines:
            # It would exit if it did not know the command.
            arguments.parse(line.split())
        return lines

    def test_create(self):
        calls = self.calls('create-latency')
        begin = ['trove choose-backups shop none', 'guests await']
        self.assertEqual(begin, calls['warm', 'prepare'])
        self.assertEqual(begin, calls['cold', 'prepare'])
        self.assertEqual([*begin, 'trove choose-backups shop stock'], calls['stock', 'prepare'])
        create = 'first-commit create bench-new --like shop'
        self.assertEqual([create], calls['warm', 'run'])
        self.assertEqual([f'{create} --zone nova'], calls['cold', 'run'])
        # The guest image is that of stock, or ours.
        stock = create.replace('shop', 'first-database-stock')
        self.assertEqual([stock], calls['stock', 'run'])
        self.assertEqual([create], calls['our-image', 'run'])
        self.assertEqual(calls['stock', 'prepare'], calls['our-image', 'prepare'])
        starts = {'warm': 'warm', 'cold': 'cold', 'our-image': 'cold', 'stock': 'cold'}
        for name, start in starts.items():
            self.assertEqual(
                [f'guests check bench-new {start}', 'trove await-healthy bench-new'],
                calls[name, 'check'],
            )
            self.assertEqual('trove delete-instance bench-new', calls[name, 'cleanup'][0])

    def test_create_hot(self):
        calls = self.calls('create-hot-latency')
        choose = 'trove choose-backups shop none'
        for name in ('hot', 'larger'):
            self.assertEqual([choose, 'guests await --hot'], calls[name, 'prepare'])
        for name in ('warm', 'cold'):
            self.assertEqual([choose, 'guests await'], calls[name, 'prepare'])
        self.assertEqual(
            [choose, 'guests await', 'trove choose-backups shop stock'], calls['stock', 'prepare']
        )
        create = 'first-commit create bench-new --like'
        self.assertEqual([f'{create} shop'], calls['hot', 'run'])
        self.assertEqual([f'{create} first-database-larger'], calls['larger', 'run'])
        self.assertEqual([f'{create} first-database-configured'], calls['warm', 'run'])
        self.assertEqual([f'{create} shop --zone nova'], calls['cold', 'run'])
        self.assertEqual([f'{create} first-database-stock'], calls['stock', 'run'])
        starts = {'hot': 'warm', 'larger': 'warm', 'warm': 'warm', 'cold': 'cold', 'stock': 'cold'}
        for name, start in starts.items():
            self.assertEqual(
                [f'guests check bench-new {start}', 'trove await-healthy bench-new'],
                calls[name, 'check'],
            )
            self.assertEqual('trove delete-instance bench-new', calls[name, 'cleanup'][0])

    def test_restore(self):
        calls = self.calls('restore-latency')
        keep = 'trove choose-backups shop none --keep bench-backup'
        self.assertEqual([keep, 'guests await'], calls['warm', 'prepare'])
        self.assertEqual([keep, 'guests await'], calls['cold', 'prepare'])
        # Each contender restores a backup of its own target by its own task manager.
        self.assertEqual(
            [
                'trove choose-backups first-database-stock none',
                'guests await',
                'trove choose-backups first-database-stock stock --keep bench-backup',
            ],
            calls['stock', 'prepare'],
        )
        restore = 'first-commit restore bench-backup bench-restored'
        self.assertEqual([restore], calls['warm', 'run'])
        self.assertEqual([f'{restore} --zone nova'], calls['cold', 'run'])
        self.assertEqual([restore], calls['stock', 'run'])
        self.assertEqual('guests check bench-restored cold', calls['stock', 'check'][0])
        targets = {one.name: one.target for one in plan_file.load('restore-latency', {}).contenders}
        self.assertEqual({'instance': 'first-database-stock'}, targets['stock'])

    def test_resize(self):
        calls = self.calls('resize-latency')
        begin = [
            'trove choose-backups shop none',
            'trove resize shop db.large',
            'guests await',
        ]
        self.assertEqual(begin, calls['warm', 'prepare'])
        self.assertEqual([*begin, 'trove choose-backups shop stock'], calls['stock', 'prepare'])
        for name, start in (('warm', 'warm'), ('stock', 'cold')):
            self.assertEqual(['trove resize shop db.small'], calls[name, 'run'])
            self.assertEqual([f'guests check shop {start}', 'mysql probe'], calls[name, 'check'])

    def test_failover(self):
        calls = self.calls('failover-latency')
        create = 'first-commit create bench-victim --like shop'
        healthy = 'trove await-healthy bench-victim'
        ours = 'trove choose-backups shop none'
        self.assertEqual([ours, create, healthy, 'guests await'], calls['warm', 'prepare'])
        self.assertEqual(
            [ours, f'{create} --flavor db.unpooled', healthy, 'guests await'],
            calls['cold', 'prepare'],
        )
        self.assertEqual(
            [
                *(ours, 'guests await', 'trove choose-backups shop stock'),
                *(create.replace('shop', 'first-database-stock'), healthy),
                'trove backup bench-victim bench-last',
            ],
            calls['stock', 'prepare'],
        )
        for name in ('warm', 'cold'):
            self.assertEqual(['first-commit fail-over bench-victim'], calls[name, 'run'])
            self.assertEqual([f'guests check bench-victim {name}', healthy], calls[name, 'check'])
        self.assertEqual(
            ['first-commit recover bench-victim bench-last bench-recovered'], calls['stock', 'run']
        )
