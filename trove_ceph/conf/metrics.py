# SPDX-License-Identifier: Apache-2.0
"""Options of the metrics that a taskmanager and a copy of the storage service export."""

import copy

from oslo_config import cfg, types

GROUP = cfg.OptGroup(
    'trove_ceph_metrics',
    title='Metrics',
    help='How this process exports its metrics to Prometheus. Each trove-taskmanager and each '
    'trove-ceph-storage exports its own.',
)

#: The ports differ, so that both processes may run on one host.
TASKMANAGER_PORT = 9751
STORAGE_PORT = 9752

_COMMON_OPTS = [
    cfg.BoolOpt(
        'enabled',
        default=False,
        help="Export metrics over HTTP. It needs the Python package prometheus-client, which "
        "'trove-ceph[metrics]' installs.",
    ),
    cfg.HostAddressOpt(
        'address',
        default='127.0.0.1',
        help='The address on which metrics are served, without encryption and without a password. '
        'Choose one of a network that only Prometheus and operators reach: the metrics tell how '
        'many databases, backups and failures there are.',
    ),
]
_INTERVAL_HELP = (
    'Seconds between two reads of {what}. A scrape gets the figures of the last read, and causes '
    'none. '
)

TASKMANAGER_OPTS = [
    *_COMMON_OPTS,
    cfg.PortOpt(
        'port',
        default=TASKMANAGER_PORT,
        help='The port on which metrics are served; another one for each process of a host. 0: any '
        'free port, which the log names.',
    ),
    cfg.IntOpt(
        'interval_sec',
        default=60,
        min=5,
        max=3600,
        help=_INTERVAL_HELP.format(what='the tables')
        + 'A read takes about twenty queries, of which none grows with the number of scrapes.',
    ),
    cfg.ListOpt(
        'backup_age_hours',
        item_type=types.Integer(1, 87600),
        default=[24, 48, 168],
        help='Ages in hours, for each of which it is counted how many instances with a backup '
        'policy, and how many without one, have no good or no verified backup that is younger. The '
        'alerts that come with trove_ceph use 48 and 168.',
    ),
    cfg.BoolOpt(
        'instance_labels',
        default=False,
        help='Also export the age of the last good and of the last verified backup of each '
        'instance that has a backup policy or a backup, with the id of the instance as a label. '
        'Who reads the metrics then learns these ids, and Prometheus stores two series for each '
        'instance.',
    ),
]
STORAGE_OPTS = [
    *_COMMON_OPTS,
    cfg.PortOpt(
        'port',
        default=STORAGE_PORT,
        help='The port on which metrics are served; another one for each process of a host. 0: any '
        'free port, which the log names.',
    ),
    cfg.IntOpt(
        'interval_sec',
        default=300,
        min=30,
        max=86400,
        help=_INTERVAL_HELP.format(what='the Ceph cluster')
        + 'A read opens each image of the pools once, as "trove-ceph-manage gc" does; choose an '
        'hour or more with many thousands of images. One copy of the service is enough to export '
        'them.',
    ),
]


def register_taskmanager(conf: cfg.ConfigOpts) -> None:
    """Make the options of a taskmanager readable on ``conf``; harmless when repeated."""
    # A copy, since the options of the two services differ.
    conf.register_group(copy.deepcopy(GROUP))
    conf.register_opts(TASKMANAGER_OPTS, group=GROUP.name)


def register_storage(conf: cfg.ConfigOpts) -> None:
    """Make the options of the storage service readable on ``conf``; harmless when repeated."""
    # A copy, since the options of the two services differ.
    conf.register_group(copy.deepcopy(GROUP))
    conf.register_opts(STORAGE_OPTS, group=GROUP.name)
