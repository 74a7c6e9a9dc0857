# SPDX-License-Identifier: Apache-2.0
"""cephx keys and keyring files."""

import base64
import os
import struct
import time

ADMIN_CAPS = {'mon': 'allow *', 'mgr': 'allow *', 'osd': 'allow *', 'mds': 'allow *'}
MGR_CAPS = {'mon': 'allow profile mgr', 'osd': 'allow *', 'mds': 'allow *'}
OSD_CAPS = {'mon': 'allow profile osd', 'mgr': 'allow profile osd', 'osd': 'allow *'}

AES = 1
KEY_BYTES = 16


def generate():
    """Return a new cephx secret: type, creation time, length and 128 random bits, in base64.

    The layout is CryptoKey::encode of Ceph (src/auth/Crypto.cc).
    """
    header = struct.pack('<HIIH', AES, int(time.time()), 0, KEY_BYTES)
    return base64.b64encode(header + os.urandom(KEY_BYTES)).decode()


def section(entity, key, caps=None):
    """Render one entity of a keyring file."""
    lines = [f'[{entity}]', f'\tkey = {key}']
    lines += [f'\tcaps {service} = "{text}"' for service, text in (caps or {}).items()]
    return '\n'.join(lines) + '\n'
