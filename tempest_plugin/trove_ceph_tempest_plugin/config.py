# SPDX-License-Identifier: Apache-2.0
"""The options of the scenarios, group ``[trove_ceph]``: the features of the cloud under test."""

from oslo_config import cfg, types

GROUP = cfg.OptGroup(
    'trove_ceph',
    title='Databases on Ceph volumes',
    help='The scenarios of trove_ceph to run, and the results expected on this cloud. The access '
    'to Trove, the datastore version and the network are options of trove-tempest-plugin, in the '
    'group database.',
)

_FIGURE_BY_WORKLOAD = types.Dict(value_type=types.Float(min=0))

OPTS = [
    cfg.ListOpt(
        'volume_types',
        default=[],
        help='Cinder volume types to create and test databases on. All scenarios run on the first '
        'one; provisioning, load and deletion run on the others. Empty: all scenarios are skipped.',
    ),
    cfg.ListOpt(
        'placement',
        default=[],
        help='Expected placement of the volumes of a type: TYPE:POOL:DEVICE_CLASS, or '
        'TYPE:POOL:DEVICE_CLASS:COPIES:FAILURE_DOMAIN. Every object of the image must be on OSDs '
        'of this CRUSH device class and, with the longer form, in at least COPIES different '
        'buckets of type FAILURE_DOMAIN (osd, host, rack ...). The check is skipped for volume '
        'types that are not listed.',
    ),
    cfg.ListOpt(
        'promises',
        default=[],
        help='The IOPS that a tier with "qos: image" promises to volumes of a type: '
        'TYPE:PER_GIB:FLOOR:CAP. A scenario creates a database on each listed volume type, and '
        'checks that the promise is also the limit and follows a resize. Needs ceph_conf and a '
        'pool in placement. Choose figures that a database exceeds under sysbench.',
    ),
    cfg.StrOpt(
        'ceph_conf',
        default='',
        help='Ceph configuration file of the cluster that holds the volumes. Needs the commands '
        'ceph and rbd on this host. Empty: the checks in Ceph, of placement and of resources that '
        'a deleted database leaves, are skipped.',
    ),
    cfg.StrOpt(
        'ceph_user',
        default='admin',
        help='Ceph user without "client."; "profile rbd-read-only" on the pools and "allow r" on '
        'the monitors suffice. ceph_conf must name its keyring.',
    ),
    cfg.StrOpt(
        'ceph_storage_user',
        default='',
        help='Ceph user without "client." that may create and remove images and snapshots: '
        '"profile rbd" on all pools of volume_types. ceph_conf must name its keyring. Empty: the '
        'adoption scenarios are skipped.',
    ),
    cfg.BoolOpt(
        'backups',
        default=False,
        help='Whether trove_ceph creates the backups of this cloud, that is, whether [DEFAULT] '
        'taskmanager_manager of trove-taskmanager names it. False: the backup scenarios are '
        'skipped.',
    ),
    cfg.StrOpt(
        'stock_datastore',
        default='',
        help="Name of a datastore whose guest image has Trove's own agent; [database] "
        'enabled_datastores must list it, too. Empty: the scenario of such databases is skipped.',
    ),
    cfg.StrOpt(
        'guests_command',
        default='',
        help='Command that prints the warm guests of the cloud in JSON, such as "ssh controller '
        'trove-ceph-manage guests list -f json". flavor_id must have a pool without an '
        'availability zone. Empty: the scenarios of warm guests are skipped.',
    ),
    cfg.BoolOpt(
        'hot_guests',
        default=False,
        help='Whether the pool of guests_command has hot guests with volumes of the first volume '
        'type and of volume_size_gib. False: the scenarios of hot guests are skipped.',
    ),
    cfg.StrOpt(
        'manage_command',
        default='',
        help='Command that runs trove-ceph-manage where trove-taskmanager runs, such as "ssh '
        'controller sudo trove-ceph-manage"; the scenarios add arguments. Empty: the scenarios of '
        'automatic failovers and of emptying a host are skipped.',
    ),
    cfg.IntOpt(
        'guest_timeout_sec',
        default=1200,
        min=1,
        help='Seconds within which a warm guest must be ready, and none be booting.',
    ),
    cfg.FloatOpt(
        'maximum_backup_gap_ms',
        default=0,
        min=0,
        help='Longest time in milliseconds between two commits of a client that a concurrent '
        'backup may cause. 0: the time is reported but not checked.',
    ),
    cfg.StrOpt(
        'server_command',
        default='',
        help='Command that sends a signal to the hypervisor process of a server, such as "ssh '
        '{host} sudo pkill --signal {signal} --full {server}". {signal} is KILL, STOP or CONT, '
        '{server} is the id of the server in Nova, {host} its host. Empty: the scenarios of '
        'failovers are skipped.',
    ),
    cfg.StrOpt(
        'host_command',
        default='',
        help='Command that lets a compute host fail, or brings it back: {host} is its name in '
        'Nova, {action} is kill (a power cut), start, freeze (no process of it runs) or thaw. '
        'Empty: the scenarios of failing hosts are skipped.',
    ),
    cfg.StrOpt(
        'failing_host',
        default='',
        help='Name in Nova of the compute host that host_command lets fail. Nothing but databases '
        'of the scenarios may depend on it.',
    ),
    cfg.StrOpt(
        'service_command',
        default='',
        help='Command that kills all processes of a service at once, which its service manager '
        'then starts again, such as "ssh controller sudo systemctl kill --signal KILL {service}". '
        '{service} is trove-taskmanager or trove-ceph-storage. Empty: the scenario of interrupted '
        'failovers is skipped.',
    ),
    cfg.IntOpt(
        'failover_rounds',
        default=3,
        min=1,
        help='Number of failures, one after the other, in the scenario of interrupted failovers.',
    ),
    cfg.IntOpt(
        'failover_timeout_sec',
        default=1200,
        min=1,
        help='Seconds within which a failover must be complete.',
    ),
    cfg.IntOpt(
        'replica_timeout_sec',
        default=1800,
        min=1,
        help='Seconds within which replicas must follow their source, also after a promotion or on '
        'a fresh clone, and within which nothing may be left of a deleted source.',
    ),
    cfg.IntOpt(
        'read_replicas',
        default=2,
        min=1,
        help='Number of replicas of the scenario that reads from one of them, then from two, and '
        'so on. The cloud needs memory for them beside their source.',
    ),
    cfg.StrOpt(
        'flavor_id',
        default='',
        help='Flavor of the databases. Empty: flavor_id of the group database.',
    ),
    cfg.StrOpt(
        'resize_flavor_id',
        default='',
        help='Flavor to resize a database to. Empty: resize_flavor_id of the group database.',
    ),
    cfg.IntOpt(
        'volume_size_gib',
        default=2,
        min=1,
        help='Size of the databases\' volumes in GiB. A scenario resizes one to a GiB more.',
    ),
    cfg.IntOpt(
        'connect_timeout_sec',
        default=300,
        min=1,
        help='Seconds within which a database that Trove reports as healthy must answer SQL.',
    ),
    cfg.IntOpt(
        'delete_timeout_sec',
        default=300,
        min=1,
        help='Seconds within which all resources of a deleted database must be gone from all '
        'services.',
    ),
    cfg.IntOpt(
        'sysbench_threads',
        default=4,
        min=1,
        help='Number of concurrent connections of sysbench. sysbench 1.0 must be on the path.',
    ),
    cfg.IntOpt(
        'sysbench_seconds',
        default=60,
        min=5,
        help='Duration of each workload in seconds.',
    ),
    cfg.IntOpt(
        'sysbench_tables',
        default=4,
        min=1,
        help='Number of tables that sysbench fills.',
    ),
    cfg.IntOpt(
        'sysbench_rows',
        default=10000,
        min=100,
        help='Number of rows in each table, of about 200 bytes each.',
    ),
    cfg.Opt(
        'minimum_tps',
        type=_FIGURE_BY_WORKLOAD,
        default={},
        help='Transactions per second that a workload (read, write, mixed-70-30) must reach, such '
        'as read:2000,write:500. A workload that is missing or 0 is reported but not checked.',
    ),
    cfg.Opt(
        'maximum_p95_ms',
        type=_FIGURE_BY_WORKLOAD,
        default={},
        help='95th percentile of the transaction latency in milliseconds that a workload must not '
        'exceed. A workload that is missing or 0 is reported but not checked.',
    ),
]


def list_opts():
    """Return the options for oslo.config's generators."""
    return [(GROUP, OPTS)]
