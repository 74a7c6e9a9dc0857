# SPDX-License-Identifier: Apache-2.0
"""Options of the inspection of backups by the storage service."""

from oslo_config import cfg

GROUP = cfg.OptGroup(
    'trove_ceph_verification',
    title='Verification of backups',
    help='How trove-ceph-storage starts a MySQL server on a clone of a backup, to check that it '
    'restores. All copies of the service must agree, because any of them may get a request. Needs '
    'root.',
)

OPTS = [
    cfg.DictOpt(
        'mysqld_roots',
        default={},
        help='Root file systems with a mysqld in their PATH, by datastore version: '
        '"9.7.4:/srv/mysql-9.7.4,8.4:/srv/mysql-8.4". A version without an entry of its own uses '
        "that of its series. The mysqld must not be older than the tenants'. A golden volume is "
        'initialised by that of exactly its version. Empty: no backup is inspected, and no golden '
        'volume is built.',
    ),
    cfg.StrOpt(
        'isolation',
        default='auto',
        choices=[
            ('auto', 'a virtual machine if one starts on this host, otherwise namespaces'),
            ('vm', 'a virtual machine; if none starts, no backup is inspected'),
            ('namespaces', 'namespaces of this host'),
        ],
        help='How an inspected server is isolated from this host. In a virtual machine, the kernel '
        "of the virtual machine reads the tenant's file system. In namespaces, the kernel of this "
        'host reads it, so a tenant can exploit a bug in its XFS. The service starts a virtual '
        'machine to find out whether it runs on this host, and logs its choice.',
    ),
    cfg.StrOpt(
        'vm_image_directory',
        default='/var/lib/trove-ceph/inspection-image',
        help='Where "trove-ceph-manage storage inspection-image" writes the virtual machine image. '
        'Run that command again after changes of mysqld_roots, of a MySQL in it, or of the kernel.',
    ),
    cfg.StrOpt(
        'vm_accelerator',
        default='kvm',
        choices=[
            ('kvm', 'the processor runs the virtual machine'),
            ('tcg', 'QEMU emulates the processor, which takes ten times as long; for tests'),
        ],
        help='How QEMU runs the virtual machine. With "tcg", raise time_limit_sec.',
    ),
    cfg.StrOpt(
        'directory',
        default='/var/lib/trove-ceph/verification',
        help='Directory for mount points, sockets and logs of inspections, in which the service '
        'finds the remains of a killed process at its next start. The path may have up to 60 '
        'characters.',
    ),
    cfg.IntOpt(
        'memory_mib',
        default=1024,
        min=512,
        max=65536,
        help='MiB of memory that one inspected server may use; a quarter is its buffer pool. '
        'Higher values speed up the recovery of a large redo log. Up to [trove_ceph_storage] '
        'job_threads inspections run at once.',
    ),
    cfg.IntOpt(
        'first_uid',
        default=1_900_000_000,
        min=65536,
        max=4294900000,
        help='The first of 65536 user and group ids that no user or group of this host has. Each '
        'inspection uses one of them, so that its server and the files of the '
        'tenant share their owner with nothing else on the host. With an id that is in use, a '
        "compromised server could kill that user's processes.",
    ),
    cfg.IntOpt(
        'max_written_mib',
        default=65536,
        min=0,
        max=1073741824,
        help='MiB that one inspected server may write to its clone, which use space in the pool '
        'until the inspection ends; 0: no limit. A recovery writes at most a few times the size '
        'of the redo log. At the limit the inspection ends without a verdict.',
    ),
    cfg.IntOpt(
        'mib_per_sec',
        default=0,
        min=0,
        max=102400,
        help='MiB that one inspection reads and writes in a second at most; 0: no limit. Without a '
        'limit, it takes bandwidth from databases on the same disks.',
    ),
    cfg.IntOpt(
        'time_limit_sec',
        default=3600,
        min=30,
        max=604800,
        help='Seconds that one inspection may take in total. If the time runs out, the backup '
        'counts neither as damaged nor as verified.',
    ),
    cfg.BoolOpt(
        'deep',
        default=False,
        help='Check all tables instead of a sample. This reads the whole backup.',
    ),
    cfg.IntOpt(
        'sample_tables',
        default=10,
        min=1,
        max=100000,
        help="Number of a tenant's tables in a sample, which differs from backup to backup; the "
        "server's own tables are always checked.",
    ),
    cfg.IntOpt(
        'sample_mib',
        default=256,
        min=1,
        max=1048576,
        help="MiB that a sample reads of a tenant's tables, so that the time of an inspection does "
        'not depend on the size of the backup. Tables that fit into their share are checked '
        'completely; of larger ones both ends of each index are read.',
    ),
]


def register(conf: cfg.ConfigOpts) -> None:
    """Make the ``[trove_ceph_verification]`` options readable on ``conf``; may be repeated."""
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP)
