# SPDX-License-Identifier: Apache-2.0
"""Options that the guest agent reads from its own configuration files."""

from oslo_config import cfg

GROUP = cfg.OptGroup(
    'trove_ceph',
    title='Trove on Ceph',
    help='Properties that the guest agent cannot determine inside the virtual machine.',
)

OPTS = [
    cfg.FloatOpt(
        'volume_iops_per_gib',
        default=30.0,
        min=0.0,
        max=10000.0,
        help='I/O operations per second that the storage tier grants for each GiB of the data '
        'volume, until the taskmanager sends what the tier of this instance promises. '
        'Together with volume_iops_floor and volume_iops_cap it sizes '
        "InnoDB's background I/O (innodb_io_capacity) and bounds the redo log. Too high: page "
        'flushing competes with queries; too low: write bursts stall on a full redo log.',
    ),
    cfg.IntOpt(
        'volume_iops_floor',
        default=3000,
        min=50,
        max=1000000,
        help='I/O operations per second that the storage tier grants to even the smallest data '
        "volume, until the taskmanager sends the tier's IOPS.",
    ),
    cfg.IntOpt(
        'volume_iops_cap',
        default=20000,
        min=50,
        max=1000000,
        help='I/O operations per second that the storage tier grants to a data volume of any size '
        "at most, until the taskmanager sends the tier's IOPS. Must not be below "
        'volume_iops_floor.',
    ),
    cfg.IntOpt(
        'volume_ready_timeout_sec',
        default=120,
        min=1,
        max=3600,
        help='Seconds that the guest agent waits at its start for the data volume to appear. '
        'Afterwards the agent exits, and its service manager restarts it.',
    ),
    cfg.StrOpt(
        'data_volume_id',
        default='',
        help='Id of the Cinder volume that has the data of this instance. The agent waits until '
        'the disk at device_path has its serial number, and uses no other disk. Written when a '
        'waiting guest becomes an instance. Empty, or on a disk without a serial number: the '
        'agent uses any disk at device_path.',
    ),
    cfg.StrOpt(
        'waiting_guest_key',
        default='',
        secret=True,
        help='Secret of this guest, 32 random bytes in hexadecimal, with which the taskmanager '
        'signs its messages. While it is set, the guest has no instance: it waits until the '
        'taskmanager makes one of it. Written by the taskmanager for its pool of warm guests, and '
        'removed by the guest when it becomes an instance.',
    ),
    cfg.StrOpt(
        'binding_instance_id',
        default='',
        help='Id of the instance that this guest is becoming. While it is set, the files of the '
        'instance may be incomplete, and the agent does not start. Written and removed by a '
        'waiting guest; set after a crash, its server is to be deleted.',
    ),
    cfg.IntOpt(
        'interface_ready_timeout_sec',
        default=120,
        min=1,
        max=3600,
        help='Seconds that a guest which has just become an instance waits for the network '
        'interfaces of the instance to be attached. Afterwards the agent exits, and its service '
        'manager restarts it.',
    ),
    cfg.IntOpt(
        'volume_grow_timeout_sec',
        default=90,
        min=1,
        max=570,
        help='Seconds that a volume resize waits for the guest kernel to see the new size. Nova '
        'informs the hypervisor asynchronously. Must stay below '
        '[DEFAULT]/agent_call_high_timeout, or Trove reports a timeout instead of the reason.',
    ),
    cfg.IntOpt(
        'read_ahead_kib',
        default=4096,
        min=0,
        max=65536,
        help='Read-ahead of the data volume in KiB, for buffered sequential reads: binary logs '
        'sent to replicas, redo during recovery, dumps. InnoDB pages bypass it (O_DIRECT). The '
        'default is the size of one RBD object.',
    ),
    cfg.IntOpt(
        'trim_interval_sec',
        default=3600,
        min=0,
        max=604800,
        help='Seconds between two trims of the data volume (FITRIM), which return the space of '
        'dropped tables and purged logs to Ceph. Each interval varies by up to a tenth, and no '
        'trim runs during a backup. With a longer interval, the pool, clones and the first copy '
        'of a backup to the vault hold more deleted data. 0: the guest agent does not trim the '
        'volume.',
    ),
    cfg.IntOpt(
        'cut_off_sec',
        default=90,
        min=0,
        max=3600,
        help='Seconds that a small write to the data volume may hang before the guest agent kills '
        'MySQL, so that a server which is cut off from Ceph does not answer with old rows for '
        'longer. Docker starts MySQL again; it serves once the volume is back. A write that fails, '
        'as those of a fenced server, has the same effect at once. Lower: an interruption of Ceph '
        'restarts databases that would only have waited. 0: the volume is not watched.',
    ),
    cfg.IntOpt(
        'quiesce_max_sec',
        default=60,
        min=1,
        max=600,
        help='Longest time in seconds that a backup may quiesce the instance (definitions locked, '
        'or the volume frozen), even if the control plane requests more. Afterwards the server '
        'resumes by itself, and the backup fails. A higher value tolerates a slower Ceph, and '
        'stalls clients for longer when something breaks.',
    ),
    cfg.IntOpt(
        'quiesce_wait_sec',
        default=10,
        min=1,
        max=300,
        help='Seconds that a backup which quiesces the instance waits for running statements that '
        'change definitions and, at level freeze, for statements on non-transactional tables; new '
        'statements on those tables wait meanwhile. Afterwards the backup fails, and nothing else '
        'does.',
    ),
]


def register(conf: cfg.ConfigOpts) -> None:
    """Make the ``[trove_ceph]`` options readable on ``conf``; harmless when repeated."""
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP)
