# SPDX-License-Identifier: Apache-2.0
"""Options that tell the scenarios what this cloud offers: the group ``[trove_ceph]``."""

from oslo_config import cfg, types

GROUP = cfg.OptGroup(
    'trove_ceph',
    title='Databases on Ceph volumes',
    help='What the scenarios of trove_ceph test, and what they expect of this cloud. How to '
    'reach Trove, the datastore version and the network are in the group database of '
    'trove-tempest-plugin.',
)

_FIGURE_BY_WORKLOAD = types.Dict(value_type=types.Float(min=0))

OPTS = [
    cfg.ListOpt(
        'volume_types',
        default=[],
        help='Cinder volume types on which databases are made and tested. On the first one every '
        'scenario runs, on the others provisioning, load and deletion. Empty: all scenarios are '
        'skipped.',
    ),
    cfg.ListOpt(
        'placement',
        default=[],
        help='Where the volumes of a type must lie: TYPE:POOL:DEVICE_CLASS, or '
        'TYPE:POOL:DEVICE_CLASS:COPIES:FAILURE_DOMAIN. Every object of the image must lie on OSDs '
        'of this CRUSH device class and, with the longer form, in at least COPIES different '
        'buckets of the type FAILURE_DOMAIN (osd, host, rack ...). The check is skipped for a '
        'volume type that is not named here.',
    ),
    cfg.ListOpt(
        'promises',
        default=[],
        help='What volumes of a type are promised by a tier with "qos: image": '
        'TYPE:PER_GIB:FLOOR:CAP, in I/O operations per second. The check that the promise is also '
        'the limit, and follows a resize, makes a database for it on each volume type that is '
        'named here. Needs ceph_conf and a pool in placement. Choose numbers that a database '
        'exceeds under sysbench.',
    ),
    cfg.StrOpt(
        'ceph_conf',
        default='',
        help='Ceph configuration file of the cluster that holds the volumes. Needs the command '
        'lines ceph and rbd on this machine. Empty: the checks that ask Ceph, of placement and of '
        'what a deleted database leaves behind, are skipped.',
    ),
    cfg.StrOpt(
        'ceph_user',
        default='admin',
        help='Ceph user without "client."; it needs no more than "profile rbd-read-only" on the '
        'pools and "allow r" on the monitors. ceph_conf must lead to its keyring.',
    ),
    cfg.StrOpt(
        'ceph_storage_user',
        default='',
        help='Ceph user without "client." that may make and remove images and snapshots: "profile '
        'rbd" on all pools of volume_types. ceph_conf must lead to its keyring. Empty: the '
        'scenarios of adoption are skipped.',
    ),
    cfg.BoolOpt(
        'backups',
        default=False,
        help='Whether trove_ceph takes the backups of this cloud: it is named by [DEFAULT] '
        'taskmanager_manager of trove-taskmanager. Otherwise the scenarios of backups are skipped.',
    ),
    cfg.FloatOpt(
        'maximum_backup_gap_ms',
        default=0,
        min=0,
        help='Longest time in milliseconds between two commits of a client that a backup beside '
        'it may cause. 0: it is measured and reported only.',
    ),
    cfg.StrOpt(
        'flavor_id',
        default='',
        help='Flavor of the databases. Empty: the one of the group database.',
    ),
    cfg.StrOpt(
        'resize_flavor_id',
        default='',
        help='Flavor to which a database is resized. Empty: the one of the group database.',
    ),
    cfg.IntOpt(
        'volume_size_gib',
        default=2,
        min=1,
        help='Size of the databases\' volumes in GiB. It is resized to one more.',
    ),
    cfg.IntOpt(
        'connect_timeout_sec',
        default=300,
        min=1,
        help='Seconds after which a database that Trove calls healthy must answer its client.',
    ),
    cfg.IntOpt(
        'delete_timeout_sec',
        default=300,
        min=1,
        help='Seconds after which nothing of a deleted database may be left in any service.',
    ),
    cfg.IntOpt(
        'sysbench_threads',
        default=4,
        min=1,
        help='Connections that sysbench uses at once. sysbench 1.0 must be on the path.',
    ),
    cfg.IntOpt(
        'sysbench_seconds',
        default=60,
        min=5,
        help='Seconds that each workload is measured.',
    ),
    cfg.IntOpt(
        'sysbench_tables',
        default=4,
        min=1,
        help='Tables that sysbench fills.',
    ),
    cfg.IntOpt(
        'sysbench_rows',
        default=10000,
        min=100,
        help='Rows in each of them, of about 200 bytes.',
    ),
    cfg.Opt(
        'minimum_tps',
        type=_FIGURE_BY_WORKLOAD,
        default={},
        help='Transactions per second that a workload (read, write, mixed-70-30) must reach, such '
        'as read:2000,write:500. A workload that is missing or 0 is measured and reported only.',
    ),
    cfg.Opt(
        'maximum_p95_ms',
        type=_FIGURE_BY_WORKLOAD,
        default={},
        help='95th percentile of a transaction\'s time in milliseconds that a workload may not '
        'exceed. A workload that is missing or 0 is measured and reported only.',
    ),
]


def list_opts():
    """Return the options for oslo.config's generators."""
    return [(GROUP, OPTS)]
