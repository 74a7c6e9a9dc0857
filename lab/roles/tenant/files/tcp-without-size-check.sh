#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tcp-without-size-check.sh NORTHBOUND: exempt TCP from the routers' size check.
#
# Neutron has OVN answer packets above the networks' MTU with "fragmentation
# needed". On the userspace datapath that check sees whole TCP offload segments
# and drops them, so that only one packet per time-out gets through. TCP finds
# its segment size by itself. Prints "changed" after a change.
set -eu

northbound=$1
nbctl() { ovn-nbctl --db="$northbound" --timeout=30 "$@"; }

for port in $(nbctl --bare --columns=_uuid find logical_router_port \
    'options:gateway_mtu!=""'); do
    bypass=$(nbctl --if-exists get logical_router_port "$port" options:gateway_mtu_bypass)
    if [ "$bypass" != tcp ]; then
        nbctl set logical_router_port "$port" options:gateway_mtu_bypass=tcp
        echo changed
    fi
done
