# SPDX-License-Identifier: Apache-2.0
"""A small real Ceph cluster on one machine: monitor, manager and BlueStore OSDs on loop devices."""
