#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# host.sh NAME LIBVIRT COMMAND...: run a host's first process, in namespaces that unshare(1) made.
#
# LIBVIRT is the directory that holds what the host's libvirt keeps.
set -eu

hostname "$1"
libvirt=$2
shift 2
# Of its own network namespace: /sys/class/net
mount -t sysfs sysfs /sys
bind() { # SOURCE TARGET
    mkdir -p "$2"
    mount --bind "$libvirt/$1" "$2"
}
bind etc /etc/libvirt
bind lib /var/lib/libvirt
bind cache /var/cache/libvirt
bind log /var/log/libvirt
bind run /run/libvirt
exec "$@"
