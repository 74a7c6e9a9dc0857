# SPDX-License-Identifier: Apache-2.0
"""Options that the guest agent reads from its own configuration files."""

from oslo_config import cfg

GROUP = cfg.OptGroup(
    'trove_ceph',
    title='Trove on Ceph',
    help='What the guest agent cannot find out inside the virtual machine.',
)

OPTS = [
    cfg.FloatOpt(
        'volume_iops_per_gib',
        default=30.0,
        min=0.0,
        max=10000.0,
        help='I/O operations per second that the storage tier grants for each GiB of the data '
        'volume, until the taskmanager tells what the tier of this instance promises. '
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
        'volume, until the taskmanager tells more.',
    ),
    cfg.IntOpt(
        'volume_iops_cap',
        default=20000,
        min=50,
        max=1000000,
        help='I/O operations per second that the storage tier grants to a data volume at most, '
        'whatever its size, until the taskmanager tells more. Must not be below '
        'volume_iops_floor.',
    ),
    cfg.IntOpt(
        'volume_ready_timeout_sec',
        default=120,
        min=1,
        max=3600,
        help='Seconds the guest agent waits at its start for the data volume to appear. When they '
        'have passed the agent exits, and its service manager starts it again.',
    ),
    cfg.IntOpt(
        'volume_grow_timeout_sec',
        default=90,
        min=1,
        max=570,
        help='Seconds a volume resize waits for the guest kernel to see the new size. Nova tells '
        'the hypervisor about the new size asynchronously. Must stay below '
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
        help='Seconds between two trims of the data volume (FITRIM), which give the space of '
        'dropped tables and purged logs back to Ceph. Each comes up to a tenth earlier or later, '
        'and none runs beside a backup. Longer: the first copy of a backup to the vault moves, '
        'and clones and the pool hold, what was deleted since the last trim. 0: the volume is '
        'not trimmed by the guest agent.',
    ),
    cfg.IntOpt(
        'quiesce_max_sec',
        default=60,
        min=1,
        max=600,
        help='Seconds for which a backup may hold the instance at most, whatever the control plane '
        'asks for: definitions locked, or the volume frozen. When they have passed the guest runs '
        'on by itself, and the backup is refused. Longer: more patience with a slow Ceph, and '
        'a longer stall for clients when something breaks.',
    ),
    cfg.IntOpt(
        'quiesce_wait_sec',
        default=10,
        min=1,
        max=300,
        help='Seconds that a backup which holds the instance waits for running statements: for '
        'those that change definitions and, at level freeze, for those on tables that are not '
        'transactional, on which new statements queue up meanwhile. Then the backup fails, and '
        'nothing else does.',
    ),
]


def register(conf: cfg.ConfigOpts) -> None:
    """Make the ``[trove_ceph]`` options readable on ``conf``; harmless when repeated."""
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP)
