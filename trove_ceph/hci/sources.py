# SPDX-License-Identifier: Apache-2.0
"""Who made the rules and the formulas."""

TRIPLEO = 'TripleO, tripleo_derive_hci_parameters'
TRIPLEO_HOST_CPUS = 'TripleO, derived parameters: one core of each NUMA node for the host'
SUPERMICRO_CORES = 'Red Hat, Percona and Supermicro 2016, figure 8'
SUPERMICRO_OSDS = 'Red Hat, Percona and Supermicro 2016, tuning: four OSDs on each NVMe device'
INTEL_MINIMUM = 'Intel 2018, table 2: Ceph storage system configurations'
INTEL_NETWORKS = 'Intel 2018, table 3: separate cluster and public network'
INTEL_OSDS = 'Intel 2018, test system: four OSDs on each P3700'
SEAGATE_POOLS = 'Seagate 2017: a pool of its own for each medium'
RED_HAT_FLASH = 'Red Hat 2020: all-flash gave 16 times the transactions of disks'
QCT_HEALING = 'QCT 2015: below 80 % full, 10 % for healing and 10 % for uneven placement'
CEPH_NEARFULL = (
    'Ceph, mon_osd_nearfull_ratio: below 85 % also when the loss of the largest host is healed'
)
RED_HAT_HOST_MEMORY = 'Red Hat OpenStack Platform, HCI guide: 4 GB for the host'
RED_HAT_ONE_OSD = (
    'Red Hat Ceph Storage, operations guide: one OSD on each device, except from 30 TB'
)
CEPH_MEMORY_TARGET = 'Ceph, osd_memory_target: least value 896 MiB'
CEPH_AUTOTUNE = (
    'Ceph, cephadm, osd_memory_target_autotune, which would give OSDs a share of the host '
    '(autotune_memory_target_ratio: 0.7, or 0.2 on such hosts), whatever guests need'
)
CEPH_HARDWARE = 'Ceph, hardware recommendations'
CEPH_DB_SIZE = 'Ceph, BlueStore configuration: DB of 1 to 2 % for block storage'
CEPH_DATA_AVAIL = 'Ceph, mon_data_avail_warn: 30 % of the disk free'
CEPH_CRUSH = 'Ceph, CRUSH with the failure domain host'
CEPH_WEIGHT = 'Ceph, CRUSH: an OSD has data and requests in proportion to its size'
CEPH_NUMA = 'Ceph, osd_numa_prefer_iface; the node of the device comes first'
NOVA_SHARED_SET = 'Nova, cpu_shared_set: the ratio applies to the CPUs of the set'
NOVA_PAGES = 'Nova, hw:mem_page_size: a guest with huge pages is on one NUMA node'
NOVA_POOL = (
    'Nova, get_pool_info: the disk of a host is the raw size of the cluster; Ceph, BlueStore: the '
    'size of an OSD has that of its DB'
)
CHOSEN = 'chosen by the operator'
