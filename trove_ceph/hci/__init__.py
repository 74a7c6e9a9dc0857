# SPDX-License-Identifier: Apache-2.0
"""Hyper-converged hosts, which run Ceph's OSDs and the databases' servers: plan and check them.

An inventory of hosts and a workload become a profile of each host: what Nova reserves for Ceph, how
many OSDs each device has and how much memory, which CPUs belong to whom. Each value has its formula
and its source, and what breaks a rule is a finding.
"""
