#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Dispatches DevStack's phases to the functions in lib/.

TROVE_CEPH_XTRACE=$(set +o | grep xtrace)
set +o xtrace
for trove_ceph_lib in checks tiers ceph bus services guest tempest; do
    source "$TROVE_CEPH_DIR/devstack/lib/$trove_ceph_lib"
done
$TROVE_CEPH_XTRACE

case "$1-$2" in
    stack-pre-install)
        trove_ceph_check_local_conf
        ;;
    stack-install)
        echo_summary "Installing trove_ceph"
        trove_ceph_check_trove
        trove_ceph_install
        ;;
    stack-post-config)
        echo_summary "Configuring trove_ceph"
        trove_ceph_check_ceph
        trove_ceph_configure_ceph
        trove_ceph_configure_bus
        trove_ceph_configure_services
        ;;
    stack-extra)
        echo_summary "Starting trove_ceph"
        trove_ceph_init
        trove_ceph_register_guest_image
        trove_ceph_configure_inspections
        trove_ceph_start
        ;;
    stack-test-config)
        echo_summary "Configuring Tempest for trove_ceph"
        trove_ceph_configure_tempest
        ;;
    unstack-*)
        trove_ceph_stop
        trove_ceph_remove_bus
        ;;
    clean-*)
        trove_ceph_clean
        ;;
esac
