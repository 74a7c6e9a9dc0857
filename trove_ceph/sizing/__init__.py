# SPDX-License-Identifier: Apache-2.0
"""From a fleet of databases to a cluster that carries it, by published rules.

The fleet file says what the databases need and which devices there are; the rules say how many
servers, devices, cores and monitors follow, and each value names the rule that bound it. What the
failure of hosts or racks leaves is computed, and checked against CRUSH itself.
"""
