# SPDX-License-Identifier: Apache-2.0
"""Options of warm guests, which trove-taskmanager reads from ``trove.conf``."""

from oslo_config import cfg

GROUP = cfg.OptGroup(
    'trove_ceph_guests',
    title='Warm guests',
    help='Servers that are booted before an instance needs them. All taskmanagers must agree.',
)

OPTS = [
    cfg.ListOpt(
        'pools',
        default=[],
        help='The pools of warm guests, as DATASTORE/VERSION:FLAVOR or DATASTORE/VERSION:FLAVOR:'
        'ZONE, where FLAVOR is a name or an id. An instance can get a guest only if its datastore '
        'version, its flavor and its availability zone, or the absence of one, are those of the '
        'pool. Servers of a pool that no taskmanager has listed for ten minutes are deleted unless '
        'an instance has them. Empty: there are no warm guests.',
    ),
    cfg.IntOpt(
        'least',
        default=1,
        min=0,
        max=1000,
        help='Number of guests that each pool has at least. Each is a server that uses memory of '
        'its host and the quota of the project of [service_credentials].',
    ),
    cfg.IntOpt(
        'most',
        default=5,
        min=0,
        max=1000,
        help='Number of guests that each pool has at most. It has precedence over least. Servers '
        'that are being deleted count.',
    ),
    cfg.FloatOpt(
        'demand_share',
        default=1.0,
        min=0.0,
        max=100.0,
        help='Guests that a pool has for each guest that was requested within demand_window_sec, '
        'between least and most. 0: always least.',
    ),
    cfg.IntOpt(
        'demand_window_sec',
        default=600,
        min=10,
        max=604800,
        help='Seconds for which a request counts as demand. It should not be shorter than the boot '
        'of a guest takes; a pool shrinks this time after a burst of requests.',
    ),
    cfg.IntOpt(
        'refill_delay_sec',
        default=0,
        min=0,
        max=3600,
        help='Seconds between the claim of a guest and the boot of its replacement, or the start '
        'of MySQL on it if it was hot. Both slow down an instance that starts on the same host at '
        'the same time; a delay helps where hosts have few processors. The pool is smaller '
        'meanwhile.',
    ),
    cfg.IntOpt(
        'boot_timeout_sec',
        default=900,
        min=30,
        max=86400,
        help='Seconds that the boot of a guest may take. After it, the guest is replaced.',
    ),
    cfg.IntOpt(
        'ping_interval_sec',
        default=30,
        min=5,
        max=3600,
        help='Seconds between two questions to the agent of a waiting guest. A guest whose agent '
        'has not answered for three times as long is not given to an instance.',
    ),
    cfg.IntOpt(
        'unseen_limit_sec',
        default=180,
        min=15,
        max=86400,
        help='Seconds without an answer after which a waiting guest is replaced. It should be '
        'several times ping_interval_sec.',
    ),
    cfg.IntOpt(
        'max_age_sec',
        default=604800,
        min=600,
        max=31536000,
        help='Seconds after which a waiting guest is replaced by a new one. The replacements of '
        'one pool do not overlap.',
    ),
    cfg.IntOpt(
        'bind_timeout_sec',
        default=120,
        min=5,
        max=3600,
        help='Seconds that the agent of a guest may take to accept an instance. After it, the '
        'instance gets a server of its own as it would without a pool, and the guest is deleted.',
    ),
    cfg.IntOpt(
        'hot',
        default=0,
        min=0,
        max=1000,
        help='Number of guests of each pool that are hot: MySQL runs on them already, on a volume '
        'as hot_volume says. Only the creation of an instance can get one, so it should be less '
        'than least. 0: there are no hot guests.',
    ),
    cfg.StrOpt(
        'hot_volume',
        default='',
        help='The volumes of hot guests, as VOLUME_TYPE:SIZE_GIB. A new instance gets a hot guest '
        'only if it has this volume type, one to sixteen times this size, and no configuration '
        'group; the volume is extended to its size. A golden volume of SIZE_GIB must be ready in '
        'the tier of the volume type, for the version of MySQL of each pool; the guests of other '
        'pools stay warm. The volumes use the quota of the project of [service_credentials]. '
        'Needed if hot is not 0.',
    ),
    cfg.IntOpt(
        'load_timeout_sec',
        default=600,
        min=30,
        max=86400,
        help='Seconds that a guest may take to get its volume and to start MySQL. After it, the '
        'guest is replaced.',
    ),
]


def register(conf: cfg.ConfigOpts) -> None:
    """Make the options readable on ``conf``; harmless when repeated."""
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP)
