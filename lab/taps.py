# SPDX-License-Identifier: Apache-2.0
"""Repeatedly switch on taps of guests that are off because of a race.

libvirt switches a new tap on while ovs-vswitchd makes it promiscuous. Both read the interface's
flags and write them back, so one may undo the change of the other: the guest then has an interface
on which nothing arrives.
"""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

INTERVAL_SEC = 1

# linux/if.h
_IFF_UP, _IFF_PROMISC = 0x1, 0x100


def switch_on(interfaces: Path, run: Callable[..., object] = subprocess.run) -> list[str]:
    """Switch on each tap that ovs-vswitchd has and that is off; return their names.

    :param interfaces: a directory with one folder for each interface, as ``/sys/class/net``
    """
    switched_on = []
    for path in sorted(interfaces.glob('tap*/flags')):
        try:
            flags = int(path.read_text(), 16)
        except OSError:
            # The interface is gone.
            continue
        if flags & _IFF_PROMISC and not flags & _IFF_UP:
            switched_on.append(path.parent.name)
            run(['ip', 'link', 'set', 'dev', path.parent.name, 'up'], check=False)
    return switched_on


def main() -> None:
    while True:
        for name in switch_on(Path('/sys/class/net')):
            print(f'switched on {name}, which was off', flush=True)
        time.sleep(INTERVAL_SEC)


if __name__ == '__main__':
    main()
