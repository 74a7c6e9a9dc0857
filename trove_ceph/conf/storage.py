# SPDX-License-Identifier: Apache-2.0
"""Options of the storage service, which has a configuration file of its own."""

from oslo_config import cfg

GROUP = cfg.OptGroup(
    'trove_ceph_storage',
    title='Storage service',
    help='How trove-ceph-storage reaches Ceph, which pools it may use, and its limits. All copies '
    'of the service must agree in pools, data_pools and tiers_file. Its callers, such as '
    'trove-taskmanager, read the options of transport and keys from their own files.',
)

#: The options that callers of the service need in their own configuration files too.
TRANSPORT_OPTS = [
    cfg.StrOpt(
        'transport_url',
        secret=True,
        help='The message bus of the storage service, such as '
        'rabbit://USER:PASSWORD@HOST:5672/trove-ceph. The service, trove-taskmanager and '
        'trove-ceph-manage need the same bus. Guests hold the credentials of Trove\'s bus, so this '
        'must name another virtual host and another user than [DEFAULT] transport_url of Trove; '
        'otherwise neither the service nor the taskmanager starts.',
    ),
    cfg.BoolOpt(
        'allow_guest_transport',
        default=False,
        help='Start even if transport_url is not set, or names a bus that guests can reach. A '
        'guest can then read, drop and repeat the messages of the service. It cannot forge them '
        'without the keys.',
    ),
    cfg.StrOpt(
        'key_file',
        default='/etc/trove-ceph/storage-keys.json',
        help='The file with the keys that sign requests and replies. Create it with '
        '"trove-ceph-manage storage keys create", and copy it to all hosts of the service and of '
        'its callers. It must have mode 0600 and belong to the process\'s user or to root. Without '
        'it every request fails. It is read again when it is replaced.',
    ),
    cfg.IntOpt(
        'clock_skew_sec',
        default=30,
        min=0,
        max=600,
        help='Seconds by which the clocks of the service and of its callers may differ. A request '
        'with a larger difference is refused. The service stores nonces for longer with a higher '
        'value.',
    ),
]

OPTS = [
    *TRANSPORT_OPTS,
    cfg.StrOpt(
        'ceph_conf',
        default='/etc/ceph/ceph.conf',
        help="Path of the cluster's ceph.conf. The key is read from the keyring that this file, or "
        "Ceph's default, names; no option here holds a key.",
    ),
    cfg.StrOpt(
        'ceph_user',
        default='client.trove-ceph-storage',
        help='Name of the cephx user, with its type. "trove-ceph-manage tiers apply" creates it '
        'with the caps it needs and no more, if the tiers file lists it with the role "storage".',
    ),
    cfg.StrOpt(
        'tiers_file',
        default='/etc/trove-ceph/tiers.yaml',
        help='The file that describes the storage tiers. The service works on the pools of the '
        'tiers that the file assigns to ceph_user, and refuses all others. New images get the data '
        'pool of their tier. Not read if pools is set.',
    ),
    cfg.ListOpt(
        'pools',
        default=[],
        help='Pools of images on which the service works, instead of those of tiers_file. They '
        'must be replicated pools, because each stores locks and jobs.',
    ),
    cfg.ListOpt(
        'data_pools',
        default=[],
        help='Erasure-coded pools that may hold the data of images in pools. Read only if pools '
        'is set.',
    ),
    cfg.IntOpt(
        'job_threads',
        default=4,
        min=1,
        max=64,
        help='Jobs, such as copies, that one copy of the service runs at once; others wait, except '
        'fences, which never wait. Use of memory and network grows with it, see '
        'copy_in_flight_mib and copy_mib_per_sec.',
    ),
    cfg.IntOpt(
        'copy_in_flight_mib',
        default=24,
        min=8,
        max=1024,
        help='MiB that one copy or comparison has read and not yet written or compared. Higher '
        'values hide the latency of slow disks. The process needs three to six times as much '
        'memory for each job.',
    ),
    cfg.IntOpt(
        'copy_mib_per_sec',
        default=0,
        min=0,
        max=102400,
        help='MiB that one copy or comparison reads from its source in a second at most; 0: no '
        'limit. Without a limit, a copy takes bandwidth from databases on the same disks.',
    ),
    cfg.IntOpt(
        'job_retention_hours',
        default=72,
        min=1,
        max=8760,
        help='Hours after which the record of an ended job is deleted. Until then the same request '
        'returns the result instead of running the job again. Must be longer than callers may be '
        'down.',
    ),
    cfg.IntOpt(
        'max_inspection_deaths',
        default=3,
        min=1,
        max=100,
        help='Number of times that the service may die during the same inspection, in any copy of '
        'it. Then the inspection fails with this as its reason, so that a backup that crashes the '
        'service cannot crash every copy of it repeatedly. A new request for the verification '
        'starts the count at 0. With lower values, inspections fail sooner where hosts are '
        'restarted often.',
    ),
    cfg.IntOpt(
        'lock_duration_sec',
        default=60,
        min=15,
        max=600,
        help='Seconds after which another copy of the service may resume the jobs of one that '
        'died. The locks are renewed four times in this period. It should be longer than outages '
        'of an OSD or a monitor that jobs shall survive without a restart.',
    ),
    cfg.IntOpt(
        'connect_timeout_sec',
        default=20,
        min=1,
        max=300,
        help='Seconds to wait for the first answer of a monitor when the service connects.',
    ),
    cfg.IntOpt(
        'operation_timeout_sec',
        default=120,
        min=11,
        max=3600,
        help='Seconds to wait for each single request to Ceph, including one that waits for an OSD '
        'to return. Requests over the bus need a longer rpc_response_timeout.',
    ),
    cfg.IntOpt(
        'stop_timeout_sec',
        default=60,
        min=1,
        max=3600,
        help='Seconds that running jobs have to stop at their next chunk when the service is '
        'stopped. A job that does not stop is abandoned; another copy resumes it after '
        "lock_duration_sec. The service manager's timeout must be longer.",
    ),
]


def register(conf: cfg.ConfigOpts) -> None:
    """Make the ``[trove_ceph_storage]`` options readable on ``conf``; harmless when repeated."""
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP)


def register_transport(conf: cfg.ConfigOpts) -> None:
    """Make the options that callers of the service need readable on ``conf``."""
    conf.register_group(GROUP)
    conf.register_opts(TRANSPORT_OPTS, group=GROUP)
