# SPDX-License-Identifier: Apache-2.0
"""User namespaces that only serve as a table of ids."""

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from trove_ceph import exceptions

_TIMEOUT_SEC = 20


@contextlib.contextmanager
def mapping(inside: tuple[int, int], outside: tuple[int, int]) -> Iterator[int]:
    """Give the descriptor of a user namespace that knows one user and one group. Needs root.

    :param inside: uid and gid in the namespace
    :param outside: uid and gid that these are on this host
    :raises StorageCommandError: no user namespace can be made here
    """
    # unshare(1) says when it is in its namespace by what it starts, which then waits for the end of
    # its standard input.
    with tempfile.TemporaryFile() as told:
        try:
            process = subprocess.Popen(
                ['unshare', '--user', 'sh', '-c', 'echo; read -r _ || :'],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=told,
            )
        except OSError as error:
            raise exceptions.StorageCommandError(f'unshare cannot be run: {error}') from error
        with process:
            assert process.stdin and process.stdout
            try:
                if not process.stdout.readline():
                    told.seek(0)
                    reason = told.read(500).decode(errors='replace').strip()
                    raise exceptions.StorageCommandError(f'no user namespace: {reason}')
                place = Path('/proc') / str(process.pid)
                for name, inner, outer in zip(('uid', 'gid'), inside, outside, strict=True):
                    (place / f'{name}_map').write_text(f'{inner} {outer} 1\n')
                descriptor = os.open(place / 'ns' / 'user', os.O_RDONLY | os.O_CLOEXEC)
            finally:
                process.stdin.close()
                process.wait(_TIMEOUT_SEC)
        try:
            yield descriptor
        finally:
            os.close(descriptor)
