# SPDX-License-Identifier: Apache-2.0
"""Options of the storage service, which it reads from a configuration file of its own."""

from oslo_config import cfg

GROUP = cfg.OptGroup(
    'trove_ceph_storage',
    title='Storage service',
    help='How trove-ceph-storage reaches Ceph, what it may touch there, and how much of it. All '
    'copies of the service must agree in pools, data_pools and tiers_file. Its callers, such as '
    'trove-taskmanager, read the options of transport and keys from their own files.',
)

#: Those that callers of the service need, too, in their own configuration files.
TRANSPORT_OPTS = [
    cfg.StrOpt(
        'transport_url',
        secret=True,
        help='The message bus of the storage service, such as '
        'rabbit://USER:PASSWORD@HOST:5672/trove-ceph. The service, trove-taskmanager and '
        'trove-ceph-manage need the same bus. Guests hold the credentials of Trove\'s bus, so this '
        'must be another virtual host and another user than [DEFAULT] transport_url of Trove; '
        'neither the service nor the taskmanager starts otherwise.',
    ),
    cfg.BoolOpt(
        'allow_guest_transport',
        default=False,
        help='Start although transport_url is not set, or is a bus that guests can reach. A guest '
        'can then read, drop and repeat the messages of the service. It cannot forge them as long '
        'as it does not know the keys.',
    ),
    cfg.StrOpt(
        'key_file',
        default='/etc/trove-ceph/storage-keys.json',
        help='The keys that requests and replies are signed with. "trove-ceph-manage storage keys '
        'create" makes it; copy it to all hosts of the service and of its callers. It must have '
        'mode 0600 and belong to the process\'s user or to root. Nothing works without it. It is '
        'read again when it is replaced.',
    ),
    cfg.IntOpt(
        'clock_skew_sec',
        default=30,
        min=0,
        max=600,
        help='Seconds by which the clocks of the service and of its callers may differ. A request '
        'from further apart is refused. The longer, the longer are nonces remembered.',
    ),
]

OPTS = [
    *TRANSPORT_OPTS,
    cfg.StrOpt(
        'ceph_conf',
        default='/etc/ceph/ceph.conf',
        help="Path of the cluster's ceph.conf. The key is read from the keyring that it, or Ceph's "
        'default, names; no option here holds one.',
    ),
    cfg.StrOpt(
        'ceph_user',
        default='client.trove-ceph-storage',
        help='Name of the cephx user, with its type. "trove-ceph-manage tiers apply" makes it with '
        'the caps it needs and no more, if the tiers file lists it with the role "storage".',
    ),
    cfg.StrOpt(
        'tiers_file',
        default='/etc/trove-ceph/tiers.yaml',
        help='The file that describes the storage tiers. The service works on the pools of the '
        'tiers that the file gives to ceph_user, and refuses all others. New images are made with '
        "their tier's data pool. Not read when pools is set.",
    ),
    cfg.ListOpt(
        'pools',
        default=[],
        help='Pools of images on which the service works, instead of those of tiers_file. They are '
        'replicated pools, because the ledger of locks and jobs is kept in each of them.',
    ),
    cfg.ListOpt(
        'data_pools',
        default=[],
        help='Erasure-coded pools that may hold the data of images of pools. Not read unless pools '
        'is set.',
    ),
    cfg.IntOpt(
        'job_threads',
        default=4,
        min=1,
        max=64,
        help='Jobs, such as copies, that one copy of the service runs at once; others wait, except '
        'fences, which never do. Memory and network grow with it, see copy_in_flight_mib and '
        'copy_mib_per_sec.',
    ),
    cfg.IntOpt(
        'copy_in_flight_mib',
        default=24,
        min=8,
        max=1024,
        help='MiB that one copy or verification has under way, read and not yet written or '
        'compared. Higher values hide the latency of slow disks. The process takes three to '
        'six times as much memory for each job.',
    ),
    cfg.IntOpt(
        'copy_mib_per_sec',
        default=0,
        min=0,
        max=102400,
        help='MiB that one copy or verification reads from its source in a second at most; 0 is no '
        'limit. Without one a copy takes what it gets, from databases on the same disks too.',
    ),
    cfg.IntOpt(
        'job_retention_hours',
        default=72,
        min=1,
        max=8760,
        help='Hours after which a job that ended is forgotten. Until then the same request returns '
        'its result instead of doing it again. Shorter than callers may be down is too short.',
    ),
    cfg.IntOpt(
        'lock_duration_sec',
        default=60,
        min=15,
        max=600,
        help='Seconds after which work of a copy of the service that died may be taken up by '
        'another. The locks are renewed four times in it. Shorter than an outage of an OSD or a '
        'monitor that jobs should survive without being taken up anew is too short.',
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
        help='Seconds to wait for each single request to Ceph, one that waits for an OSD to come '
        'back included. Requests over the bus need a longer rpc_response_timeout.',
    ),
    cfg.IntOpt(
        'stop_timeout_sec',
        default=60,
        min=1,
        max=3600,
        help='Seconds that running jobs get to stop at their next piece when the service is told '
        'to end. What does not stop is abandoned; another copy takes it up after '
        "lock_duration_sec. The service manager's time-out must be longer.",
    ),
]


def register(conf: cfg.ConfigOpts) -> None:
    """Make the ``[trove_ceph_storage]`` options readable on ``conf``; harmless when repeated."""
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP)


def register_transport(conf: cfg.ConfigOpts) -> None:
    """Make those options readable on ``conf`` that callers of the service need."""
    conf.register_group(GROUP)
    conf.register_opts(TRANSPORT_OPTS, group=GROUP)
