# SPDX-License-Identifier: Apache-2.0
"""The agent of a waiting guest as it runs in a guest: with the threads of eventlet.

A program of test_waiting_agent. The taskmanager is another thread, on an in-memory bus. Nova
attaches the interface once Trove's agent starts, but not with the argument ``unattached``. The
program prints what Trove's agent found.
"""

import json
import socket
import sys
import threading
from unittest import mock

import psutil
from oslo_messaging import conffixture, get_rpc_transport
from oslo_utils import eventletutils
from trove.cmd import guest as trove_guest
from trove.common import cfg

from trove_ceph.cmd import guest
from trove_ceph.guestagent import interface_wait, network_interface, waiting_guest
from trove_ceph.host import data_volume
from trove_ceph.tests.unit.guestagent import waiting_world

CONF = cfg.CONF
answers = {}
attached = {}
is_unattached = sys.argv[1:] == ['unattached']


def bind(machine):
    conf = machine.conf()
    taskmanager = waiting_world.Taskmanager(machine, get_rpc_transport(conf))
    while not (answer := taskmanager.ping())['can_bind']:
        assert 'preparing' in answer['reason'], answer
    answers['bind'] = taskmanager.bind(machine.arguments())


def attach():
    addresses = ((psutil.AF_LINK, waiting_world.MAC), (socket.AF_INET, '10.0.0.5'))
    attached['ens4'] = [mock.Mock(family=family, address=address) for family, address in addresses]


def be_troves_agent():
    cfg.parse_args(sys.argv)
    if not is_unattached:
        attach()
    interface_wait.finish()
    found = {
        'guest_id': CONF.guest_id,
        'key': CONF.instance_rpc_encr_key,
        'waiting_guest_key': CONF.trove_ceph.waiting_guest_key,
        'data_volume_id': CONF.trove_ceph.data_volume_id,
        'bound': answers['bind']['bound'],
        'green': eventletutils.is_monkey_patched('thread'),
    }
    print(json.dumps(found), flush=True)


def main():
    with waiting_world.Machine() as machine:
        if is_unattached:
            machine.write('timeout.conf', '[trove_ceph]\ninterface_ready_timeout_sec = 1\n')
        thread = threading.Thread(target=bind, args=(machine,))
        sys.argv = ['agent', '--config-dir', machine.directory]
        with (
            mock.patch.object(waiting_guest, 'prepare'),
            mock.patch.object(network_interface, 'find_obstacle', return_value=None),
            mock.patch.object(psutil, 'net_if_addrs', lambda: attached),
            mock.patch.object(data_volume.DataVolume, 'prepare'),
            mock.patch.object(trove_guest, 'main', be_troves_agent),
            conffixture.ConfFixture(CONF),
        ):
            thread.start()
            return guest.main()


if __name__ == '__main__':
    sys.exit(main())
