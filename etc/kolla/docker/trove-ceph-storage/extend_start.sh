#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The container's user is root here, and the service another one if it does not inspect backups.

owner=$(stat -c %U /etc/trove-ceph/trove-ceph-storage.conf)
install -d -o "$owner" -m 0755 /var/log/kolla/trove-ceph
install -d -o "$owner" -m 0750 /var/lib/trove-ceph
