# SPDX-License-Identifier: Apache-2.0
"""Create user namespaces that serve only as a table of ids."""

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
    """Yield the descriptor of a user namespace that maps one user and one group. Needs root.

    :param inside: uid and gid in the namespace
    :param outside: uid and gid on this host
    :raises StorageCommandError: this host cannot create a user namespace
    """
    # The shell that unshare(1) starts reports that it is in the namespace, and then waits for the
    # end of its standard input.
    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                ['unshare', '--user', 'sh', '-c', 'echo; read -r _ || :'],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        except OSError as error:
            raise exceptions.StorageCommandError(f'unshare cannot be run: {error}') from error
        with process:
            assert process.stdin and process.stdout
            try:
                if not process.stdout.readline():
                    errors.seek(0)
                    reason = errors.read(500).decode(errors='replace').strip()
                    raise exceptions.StorageCommandError(
                        f'cannot create a user namespace: {reason}'
                    )
                entry = Path('/proc') / str(process.pid)
                for name, inner, outer in zip(('uid', 'gid'), inside, outside, strict=True):
                    (entry / f'{name}_map').write_text(f'{inner} {outer} 1\n')
                descriptor = os.open(entry / 'ns' / 'user', os.O_RDONLY | os.O_CLOEXEC)
            finally:
                process.stdin.close()
                process.wait(_TIMEOUT_SEC)
        try:
            yield descriptor
        finally:
            os.close(descriptor)
