#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Create the provider bridges on the userspace datapath and give the host its
# addresses on them. Prints "changed" after a change.
#
# Between two hosts guests talk through tunnels, which drop packets with offloaded checksums: there
# TSO is "false". Only a host with a public address is a gateway.
set -eu

vsctl() { ovs-vsctl --timeout=30 "$@"; }

ensure_bridge() { # NAME [FAIL_MODE]
    if ! vsctl br-exists "$1"; then
        vsctl add-br "$1" -- set bridge "$1" datapath_type=netdev ${2:+fail-mode=$2}
        echo changed
    fi
    if ! ip link show "$1" | grep -q '[<,]UP[,>]'; then
        ip link set "$1" up
        echo changed
    fi
}

ensure_address() { # DEVICE ADDRESS/PREFIX
    if ! ip -4 -o address show dev "$1" | grep -qF " $2 "; then
        ip address replace "$2" dev "$1"
        echo changed
    fi
}

vsctl --no-wait init
was_tso=$(vsctl --if-exists get open_vswitch . other_config:userspace-tso-enable)
if [ "$TSO $was_tso" = 'false "true"' ]; then
    echo "this lab was created for one compute host; for two, run make lab-clean first" >&2
    exit 1
fi
vsctl set open_vswitch . \
    other_config:userspace-tso-enable="$TSO" \
    external_ids:system-id="$HOST_NAME" \
    external_ids:hostname="$HOST_NAME" \
    external_ids:ovn-remote="$OVN_SB" \
    external_ids:ovn-encap-type=geneve \
    external_ids:ovn-encap-ip="${TUNNEL_ADDRESS%/*}" \
    external_ids:ovn-bridge-datapath-type=netdev \
    external_ids:ovn-bridge-mappings="mgmt:br-mgmt${PUBLIC_ADDRESS:+,public:br-ex}" \
    ${PUBLIC_ADDRESS:+external_ids:ovn-cms-options=enable-chassis-as-gw}
ensure_bridge br-int secure
ensure_bridge br-mgmt
case $TUNNEL_ADDRESS in
127.*) ;;
*) ensure_address br-mgmt "$TUNNEL_ADDRESS" ;;
esac
[ -n "$PUBLIC_ADDRESS" ] || exit 0
ensure_bridge br-ex
if [ "$(cat /sys/class/net/br-ex/mtu)" != "$PUBLIC_MTU" ]; then
    vsctl set interface br-ex mtu_request="$PUBLIC_MTU"
    echo changed
fi
ensure_address br-mgmt "$MGMT_ADDRESS"
ensure_address br-ex "$PUBLIC_ADDRESS"
