# SPDX-License-Identifier: Apache-2.0
"""Figures of the reference architectures and of Ceph that planning, sizing and the doctor share.

Who published a figure is said where it is used, in the words of the command that uses it.
"""

from trove_ceph.enums import DeviceClass

#: Physical cores of a server for each NVMe device (Red Hat, Percona and Supermicro 2016, figure 8).
CORES_PER_NVME = 10
#: CPUs of an OSD by the class of its device (TripleO, derived parameters).
CPUS_PER_OSD = {DeviceClass.HDD: 1, DeviceClass.SSD: 4, DeviceClass.NVME: 4}
#: The fewest servers with OSDs that are supported (QCT 2015).
LEAST_SERVERS = 3
#: The slowest network of Ceph, in Gbit per second (Red Hat 2016, table 3; Intel 2018, table 2).
LEAST_NETWORK_GBIT = 10
#: Placement groups on each OSD, with those of all its pools (QCT 2015; Red Hat 2016).
LEAST_GROUPS_PER_OSD, MOST_GROUPS_PER_OSD = 100, 200
#: How full a cluster typically is, and is at most (QCT 2015).
TYPICAL_FILL, MOST_FILL = 0.7, 0.8
#: Shares of the space of an OSD at which Ceph warns, stops recovery, and stops writes.
NEARFULL, BACKFILLFULL, FULL = 0.85, 0.9, 0.95
#: The share of the space by which algorithmic placement may deviate (QCT 2015).
DEVIATION = 0.1
