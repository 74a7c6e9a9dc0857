# SPDX-License-Identifier: Apache-2.0
"""Switch on the taps of guests that lost that by chance, as long as this runs.

libvirt switches a tap on while ovs-vswitchd, which has just been given it, makes it promiscuous.
Both read the interface's flags and write them back, so one may undo what the other did: a guest
then has an interface of which nothing ever arrives.
"""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

INTERVAL_SEC = 1

# linux/if.h
_IFF_UP, _IFF_PROMISC = 0x1, 0x100


def switch_on(interfaces: Path, run: Callable[..., object] = subprocess.run) -> list[str]:
    """Switch on each tap that ovs-vswitchd has and nobody switched on; return their names.

    :param interfaces: a folder for each, as ``/sys/class/net``
    """
    lost = []
    for path in sorted(interfaces.glob('tap*/flags')):
        try:
            flags = int(path.read_text(), 16)
        except OSError:
            # It is gone.
            continue
        if flags & _IFF_PROMISC and not flags & _IFF_UP:
            lost.append(path.parent.name)
            run(['ip', 'link', 'set', 'dev', path.parent.name, 'up'], check=False)
    return lost


def main() -> None:
    while True:
        for name in switch_on(Path('/sys/class/net')):
            print(f'{name} was off', flush=True)
        time.sleep(INTERVAL_SEC)


if __name__ == '__main__':
    main()
