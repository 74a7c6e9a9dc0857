# SPDX-License-Identifier: Apache-2.0
"""cephx keys and keyring files."""

import subprocess

from cephcluster.errors import ClusterError

ADMIN_CAPS = {'mon': 'allow *', 'mgr': 'allow *', 'osd': 'allow *', 'mds': 'allow *'}
MGR_CAPS = {'mon': 'allow profile mgr', 'osd': 'allow *', 'mds': 'allow *'}
OSD_CAPS = {'mon': 'allow profile osd', 'mgr': 'allow profile osd', 'osd': 'allow *'}


def generate():
    """Return a new cephx secret of the type that the installed Ceph prefers.

    A new cluster of Ceph 20.2.4 refuses keys of the type that Ceph 16 has.

    :raises ClusterError: ceph-authtool fails
    """
    done = subprocess.run(
        ['ceph-authtool', '--gen-print-key'], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise ClusterError(f'ceph-authtool cannot make a key: {done.stderr.strip()}')
    return done.stdout.strip()


def section(entity, key, caps=None):
    """Render one entity of a keyring file."""
    lines = [f'[{entity}]', f'\tkey = {key}']
    lines += [f'\tcaps {service} = "{text}"' for service, text in (caps or {}).items()]
    return '\n'.join(lines) + '\n'
