# SPDX-License-Identifier: Apache-2.0
"""Options of replicas, which trove-taskmanager reads from ``trove.conf``."""

from oslo_config import cfg

GROUP = cfg.OptGroup(
    'trove_ceph_replication',
    title='Replicas',
    help='Replicas as clones of their source, the watch over them, and their re-provisioning. A '
    'replication policy of a source takes precedence. All taskmanagers must agree.',
)

OPTS: list[cfg.Opt] = [
    cfg.IntOpt(
        'watch_interval_sec',
        default=30,
        min=5,
        max=3600,
        help='Seconds between two looks of the watch at all replicas. Each look asks the guest '
        'agents of the replicas and of their sources. A replica takes over at an automatic '
        'failover only if its source has answered a look at most 120 seconds before its agent '
        'reported last: with more than 60, often none does, and with much more, hardly ever.',
    ),
    cfg.IntOpt(
        'looks',
        default=3,
        min=1,
        max=1000,
        help='Number of looks in a row that must agree that a replica is to be re-provisioned.',
    ),
    cfg.IntOpt(
        'reprovisionings_at_once',
        default=2,
        min=0,
        max=200,
        help='Number of replicas of the whole cloud that the watch has re-provisioned at a time, '
        'at most one of each source. 0: the watch requests none. Requests of tenants and operators '
        'are not limited.',
    ),
    cfg.IntOpt(
        'pause_sec',
        default=3600,
        min=0,
        max=86400,
        help='Seconds after the end of a re-provisioning in which the watch does not request '
        'another one of the same replica. It doubles with each one in a row that failed, up to a '
        'day.',
    ),
    cfg.IntOpt(
        'most_replicas',
        default=15,
        min=1,
        max=100,
        help='Number of replicas that a source may have. Each holds a connection to the source, '
        'which sends it all transactions.',
    ),
    cfg.IntOpt(
        'most_clone_depth',
        default=8,
        min=1,
        max=15,
        help='Number of images above that of a replica, up to which a source may be cloned. Reads '
        'of data that a clone shares pass through all of them. A replica that has more, as after '
        'this was lowered, gets a fresh clone if that has fewer.',
    ),
    cfg.IntOpt(
        'max_own_percent',
        default=0,
        min=0,
        max=100,
        help='Space that a replica does not share with its source, in percent of its size, above '
        'which it gets a fresh clone, at most once a day. Lower values keep less space, and put '
        'replicas out of service more often. Replicas that share nothing do not count. 0: never.',
    ),
    cfg.BoolOpt(
        'reprovision_broken',
        default=True,
        help='Give a fresh clone to a replica that stopped at an error, that needs binary logs '
        'which its source has deleted, that has transactions of its own, that falls behind too '
        'far, or whose volume is lost.',
    ),
    cfg.IntOpt(
        'reprovision_every_hours',
        default=0,
        min=0,
        max=24 * 366,
        help='Age of a clone in hours after which the replica gets a fresh one; for a volume that '
        'is no clone, such as that of a former source, the time since it became a replica. Lower '
        'values keep less space of their own, and put replicas out of service more often. 0: '
        'never.',
    ),
    cfg.IntOpt(
        'max_lag_sec',
        default=3600,
        min=0,
        max=30 * 86400,
        help='Lag in seconds above which a replica that falls behind more and more gets a fresh '
        'clone. 0: never.',
    ),
    cfg.IntOpt(
        'semi_sync_timeout_ms',
        default=10000,
        min=100,
        max=3600000,
        help='Milliseconds for which a commit on a source with semi-synchronous replication waits '
        'for a replica. The source then replicates asynchronously until a replica has caught up.',
    ),
    cfg.IntOpt(
        'catch_up_timeout_sec',
        default=60,
        min=1,
        max=3600,
        help='Seconds within which a replica must execute what its source has, at a promotion; the '
        'source refuses writes meanwhile, and accepts them again afterwards. At a detachment or '
        'an ejection: how long a replica may execute nothing of what it has received before that '
        'is refused.',
    ),
    cfg.IntOpt(
        'exchange_timeout_sec',
        default=300,
        min=10,
        max=3600,
        help='Seconds that the guest of a replica may take to release its volume for a new clone. '
        'Then its server is switched off, as for a guest that hangs because its pool is lost. '
        'Lower: a MySQL that ends slowly is killed.',
    ),
]


def register(conf: cfg.ConfigOpts) -> None:
    """Make the options readable on ``conf``; harmless when repeated."""
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP)
