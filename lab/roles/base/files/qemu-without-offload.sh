#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# qemu-system-x86_64 whose guests compute all checksums themselves: Open vSwitch's userspace tunnels
# drop packets with offloaded checksums (its counter netdev_push_header_drops).
for feature in csum gso guest_csum guest_tso4 guest_tso6 guest_ecn guest_ufo \
    host_tso4 host_tso6 host_ecn host_ufo; do
    set -- "$@" -global "virtio-net-device.$feature=off"
done
exec /usr/bin/qemu-system-x86_64 "$@"
