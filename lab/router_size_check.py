# SPDX-License-Identifier: Apache-2.0
"""Exempt TCP from the size check of OVN's routers, whenever Neutron has written a router's port.

Neutron has OVN answer packets above the networks' MTU with "fragmentation needed". On the userspace
datapath that check sees whole segments of TCP offload and drops them, so that only one packet per
time-out gets through. TCP finds its segment size by itself. Neutron replaces all options of a port,
also when it only repairs it, as it does every five minutes where it finds a difference.

Usage: router_size_check.py NORTHBOUND
"""

import json
import subprocess
import sys
from collections.abc import Callable

TIMEOUT_SEC = 30
_MTU, _BYPASS = 'gateway_mtu', 'gateway_mtu_bypass'


def exempt_tcp(northbound: str, run: Callable[..., str] = subprocess.check_output) -> list[str]:
    """Exempt TCP at each router port with a size check; return the names of changed ports.

    :param northbound: address of OVN's northbound database, such as ``tcp:127.0.0.1:6641``
    """
    command = ['ovn-nbctl', f'--db={northbound}', f'--timeout={TIMEOUT_SEC}']
    columns = ['--format=json', '--columns=_uuid,name,options']
    listed = run([*command, *columns, 'list', 'Logical_Router_Port'], text=True)
    changed = []
    for (_, uuid), name, (_, pairs) in json.loads(listed)['data']:
        options = dict(pairs)
        if _MTU in options and options.get(_BYPASS) != 'tcp':
            setting = f'options:{_BYPASS}=tcp'
            run([*command, '--if-exists', 'set', 'Logical_Router_Port', uuid, setting], text=True)
            changed.append(name)
    return changed


def main(northbound: str) -> int:
    watched = ['OVN_Northbound', 'Logical_Router_Port', 'options']
    command = ['ovsdb-client', 'monitor', northbound, *watched]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        # It prints the present ports, too.
        for _ in watching.stdout:
            for name in exempt_tcp(northbound):
                print(f'exempted TCP at {name}', flush=True)
    return watching.returncode


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
