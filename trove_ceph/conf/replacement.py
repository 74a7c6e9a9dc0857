# SPDX-License-Identifier: Apache-2.0
"""Options of replacements of servers, which trove-taskmanager reads from ``trove.conf``."""

from oslo_config import cfg

GROUP = cfg.OptGroup(
    'trove_ceph_replacement',
    title='Replacements of servers',
    help='Failovers, and changes of the flavor on warm guests.',
)

OPTS: list[cfg.Opt] = [
    cfg.IntOpt(
        'at_once',
        default=10,
        min=1,
        max=200,
        help='Number of replacements on which one taskmanager works at a time. Each has a thread. '
        'Those of a host that is lost begin together; more at once start more servers at once.',
    ),
    cfg.IntOpt(
        'patience_sec',
        default=30,
        min=1,
        max=600,
        help='Seconds that a thread waits for a server that Nova deletes or boots, or for MySQL, '
        'before it is free for another replacement. The wait goes on with the next attempt.',
    ),
    cfg.IntOpt(
        'resize_timeout_sec',
        default=1800,
        min=60,
        max=86400,
        help='Seconds after which the change of a flavor on a warm guest is reported as failed. '
        'The change goes on.',
    ),
    cfg.IntOpt(
        'keep_days',
        default=90,
        min=1,
        max=3650,
        help='Days after which the record of a replacement that has ended is deleted.',
    ),
]


def register(conf: cfg.ConfigOpts) -> None:
    """Make the options readable on ``conf``; harmless when repeated."""
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP)
