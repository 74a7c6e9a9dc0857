# SPDX-License-Identifier: Apache-2.0
"""Real Ceph clusters for tests: one shared by the whole run, and private ones to break."""

import contextlib
import functools
import json
import os
import subprocess
import sys

import rados
import rbd
import yaml

from trove_ceph.host import processes
from trove_ceph.tests.functional import base, ports, workspace

TOOL = base.CHECKOUT / 'lab' / 'bin' / 'ceph-cluster'
# For hanging commands. A change takes a few commands of seconds each on a busy machine.
TOOL_TIMEOUT_SEC = 600
START_TIMEOUT_SEC = 300
COMMAND_TIMEOUT_SEC = 60

MANAGE = 'import sys; from trove_ceph.cmd.manage import app; sys.exit(app.main())'


def tier(purpose, device_class, pool, copies, pg_num, **more):
    """Return the description of a tier on one host."""
    description = {
        'purpose': purpose,
        'device_class': device_class,
        'failure_domain': 'osd',
        'pool': pool,
        'copies': copies,
        'placement_groups': {'count': pg_num},
    }
    if purpose == 'data':
        description['volume_type'] = {'name': pool, 'backend': pool}
    return description | more


TIERS = {
    'tiers': {
        'nvme': tier('data', 'nvme', 'volumes-nvme', 2, 16),
        'hdd': tier('data', 'hdd', 'volumes-hdd', 2, 8),
        'vault': tier('vault', 'hdd', 'vault', 2, 8, erasure={'k': 2, 'm': 1}),
    },
    'users': {
        'client.nvme-only': {'role': 'cinder', 'tiers': ['nvme']},
        'client.trove-ceph-storage': {'role': 'storage'},
    },
}


class Cluster:
    """A cluster created by lab/bin/ceph-cluster.

    :param root: its directory.
    :param osds: the device class and number of its OSDs, such as {'nvme': 2}.
    :param osd_gib: the size of an OSD in GiB.
    """

    def __init__(self, root, osds, osd_gib=4):
        self.root = root
        self.conf = root / 'etc' / 'ceph.conf'
        v2, v1 = ports.free_ports(2)
        self.create_arguments = ['create', '--osd-gib', str(osd_gib), '--mon-ports', f'{v2},{v1}']
        for device_class, count in osds.items():
            self.create_arguments += ['--osd', f'{device_class}={count}']

    def command(self, *arguments):
        """Return the command line of the tool for this cluster."""
        return [sys.executable, str(TOOL), '--root', str(self.root), *map(str, arguments)]

    def tool(self, *arguments):
        """Run the tool and return its standard output.

        :raises AssertionError: the tool failed; the message has its standard error.
        """
        result = self.try_tool(*arguments)
        if result.returncode != 0:
            raise AssertionError(f'ceph-cluster {arguments}: {result.returncode} {result.stderr}')
        return result.stdout

    def try_tool(self, *arguments):
        return subprocess.run(
            self.command(*arguments),
            capture_output=True,
            text=True,
            timeout=TOOL_TIMEOUT_SEC,
            check=False,
        )

    def create(self):
        self.tool(*self.create_arguments)

    def start(self):
        self.tool('start', '--timeout', START_TIMEOUT_SEC)

    def tiers(self, verb, content, *arguments):
        """Run ``trove-ceph-manage tiers`` for Ceph only.

        :param content: the tiers file.
        :returns: the ended process.
        """
        path = self.root.with_name(self.root.name + '-tiers.yaml')
        path.write_text(yaml.safe_dump(content))
        command = [sys.executable, '-W', 'ignore', '-c', MANAGE, 'tiers', verb, '--only', 'ceph']
        command += ['--file', path, '--ceph-conf', self.conf, '--format', 'json', *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=TOOL_TIMEOUT_SEC, check=False
        )

    def apply(self, content, *arguments):
        """Apply tiers, write their users' keyrings, and return the command's output.

        :raises AssertionError: the command failed; the message has its standard error.
        """
        result = self.tiers('apply', content, *arguments)
        if result.returncode != 0:
            raise AssertionError(f'tiers apply: {result.returncode} {result.stderr}')
        for user in content.get('users', ()):
            (found,) = self.mon_command('auth get', entity=user)
            keyring = self.conf.with_name(f'ceph.{user}.keyring')
            keyring.write_text(f'[{user}]\n\tkey = {found["key"]}\n')
        return json.loads(result.stdout)

    def status(self):
        return json.loads(self.try_tool('status', '--format', 'json').stdout)

    def pids(self):
        """Return the pid of each running daemon by its name."""
        return {d['name']: d['pid'] for d in self.status()['daemons'] if d['pid']}

    @contextlib.contextmanager
    def connection(self, user='client.admin'):
        """Yield a librados connection; a user without a keyring is refused."""
        handle = rados.Rados(conffile=str(self.conf), name=user)
        handle.connect(timeout=COMMAND_TIMEOUT_SEC)
        try:
            yield handle
        finally:
            handle.shutdown()

    @contextlib.contextmanager
    def pool(self, name, user='client.admin'):
        with self.connection(user) as handle, handle.open_ioctx(name) as context:
            yield context

    def mon_command(self, prefix, **arguments):
        """Run a monitor command and return the decoded reply."""
        with self.connection() as handle:
            request = json.dumps({'prefix': prefix, 'format': 'json', **arguments})
            code, output, message = handle.mon_command(request, b'', timeout=COMMAND_TIMEOUT_SEC)
        if code != 0:
            raise AssertionError(f'{prefix} {arguments}: {code} {message}')
        return json.loads(output) if output else None

    def lacks_manager_modules(self):
        """Tell whether the manager cannot load its modules.

        That of Debian 13 loads few of them: its Python has a PyO3 that refuses subinterpreters.
        """
        return 'MGR_MODULE_DEPENDENCY' in self.mon_command('health')['checks']

    def repeer(self, *pools):
        """Have all placement groups of pools check the watchers of their objects again."""
        for pool in self.mon_command('osd dump')['pools']:
            if pool['pool_name'] in pools:
                for number in range(pool['pg_num']):
                    self.mon_command('pg repeer', pgid=f'{pool["pool"]}.{number:x}')

    def create_image(self, pool, name, size_mib):
        with self.pool(pool) as context:
            rbd.RBD().create(context, name, size_mib * 1024**2)


@functools.cache
def _shared():
    """Return the shared cluster before its creation: the same one for repeated attempts."""
    return Cluster(workspace.shared() / 'ceph', {'nvme': 2, 'hdd': 3}, osd_gib=8)


@functools.cache
def shared_cluster():
    """Return the cluster of this run with the tiers of TIERS, created at its first use.

    It is removed with the workspace, at the end of the process.
    """
    cluster = _shared()
    cluster.create()
    cluster.start()
    cluster.apply(TIERS)
    return cluster


def kill_all(pids):
    """Kill processes with SIGKILL and wait until they are gone."""
    for pid in pids:
        os.kill(pid, 9)
    for pid in pids:
        processes.wait_until_gone(pid, workspace.KILL_TIMEOUT_SEC)
