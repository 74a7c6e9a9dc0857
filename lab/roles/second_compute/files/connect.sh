#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Connect the second compute host to the first. Prints "changed" after a change.
#
# One link carries tunnels and the guests' management network, from switch to switch. The other
# carries what the host's own processes need: the first host's addresses in the management network
# and 127.0.0.1, where Ceph and OVN's database listen. The second host has no 127.0.0.1 of its own.
set -eu

parent=$($SUPERVISORCTL pid "$HOST_NAME")
first_process=$(cat "/proc/$parent/task/$parent/children")
inside() { nsenter --target "${first_process% }" --mount --uts --ipc --net --pid -- "$@"; }

link() { # END PEER
    inside ip link show "$2" > /dev/null 2>&1 && return
    # The peer of an earlier one was in namespaces that are gone.
    ip link delete "$1" 2> /dev/null || true
    ip link add "$1" type veth peer name "$2" netns "${first_process% }"
    echo changed
}

link c2-services services
ip address replace "$FIRST_SERVICES/30" dev c2-services
ip link set c2-services up
echo 1 > /proc/sys/net/ipv4/conf/c2-services/route_localnet
inside sh -euc '
    ip link set lo up
    ip address delete 127.0.0.1/8 dev lo 2> /dev/null || true
    ip address replace "$SECOND_SERVICES/30" dev services
    ip link set services up
    echo 1 > /proc/sys/net/ipv4/conf/services/route_localnet
    for address in 127.0.0.1 "$MANAGEMENT"; do
        ip route replace "$address" via "$FIRST_SERVICES" dev services src "$SECOND_SERVICES"
    done'

link c2-tunnels tunnels
ip link set c2-tunnels up
inside ip link set tunnels up
inside sh "$BRIDGES"
attach() { # RUNDIR PORT DEVICE
    # The switch makes a device promiscuous when it opens it. After a power cut it would go on with
    # the former device of this name, and receive nothing.
    case $3 in *PROMISC*) return ;; esac
    OVS_RUNDIR=$1 ovs-vsctl --timeout=30 --if-exists del-port br-mgmt "$2"
    OVS_RUNDIR=$1 ovs-vsctl --timeout=30 add-port br-mgmt "$2"
    echo changed
}
attach "$FIRST_RUNDIR" c2-tunnels "$(ip link show c2-tunnels)"
attach "$OVS_RUNDIR" tunnels "$(inside ip link show tunnels)"
