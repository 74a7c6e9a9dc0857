#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# libvirt-secret.sh UUID KEYRING: have libvirt attach volumes with the keyring's
# key. Prints "changed" after a change.
set -eu

uuid=$1
key=$(awk '$1 == "key" { print $3 }' "$2")
[ -n "$key" ]
[ "$(virsh -q secret-get-value "$uuid" 2>/dev/null)" = "$key" ] && exit

definition=$(mktemp)
trap 'rm -f "$definition"' EXIT
cat > "$definition" <<XML
<secret ephemeral='no' private='no'>
  <uuid>$uuid</uuid>
  <usage type='ceph'><name>client.cinder secret</name></usage>
</secret>
XML
virsh -q secret-define "$definition" > /dev/null
# From a file: an argument would be visible in the process list.
printf '%s' "$key" > "$definition"
virsh -q secret-set-value "$uuid" --file "$definition" > /dev/null
[ "$(virsh -q secret-get-value "$uuid")" = "$key" ]
echo changed
