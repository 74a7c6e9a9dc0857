# SPDX-License-Identifier: Apache-2.0
"""Send a signal to the hypervisor process of a server: ``server_signal.py SIGNAL SERVER_ID``."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path


def find(server_id: str, processes: Path = Path('/proc')) -> Iterator[int]:
    """Yield the processes of QEMU that run a server, on any host of this machine."""
    for path in processes.glob('[0-9]*/cmdline'):
        try:
            words = path.read_bytes().decode(errors='replace').split('\0')
        except OSError:
            # The process is gone.
            continue
        if 'qemu-system' in words[0] and f'-uuid\0{server_id}' in '\0'.join(words):
            yield int(path.parent.name)


def main() -> int | str:
    name, server_id = sys.argv[1:]
    # One that continues may be gone meanwhile: Nova has deleted the server.
    found = list(find(server_id))
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.Signals[f'SIG{name}'])
    return 0 if found or name == 'CONT' else f'there is no hypervisor process of server {server_id}'


if __name__ == '__main__':
    sys.exit(main())
