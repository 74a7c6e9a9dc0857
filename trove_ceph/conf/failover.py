# SPDX-License-Identifier: Apache-2.0
"""Options of automatic failover, which trove-taskmanager reads from ``trove.conf``."""

from oslo_config import cfg

GROUP = cfg.OptGroup(
    'trove_ceph_failover',
    title='Automatic failover',
    help='When a database whose server failed gets another one without a request. It concerns '
    'only databases with a failover policy. All taskmanagers must agree.',
)

OPTS = [
    cfg.BoolOpt(
        'enabled',
        default=False,
        help='Watch the databases and fail over those with a failover policy. If false, failovers '
        'are only done at the request of a tenant or an operator.',
    ),
    cfg.IntOpt(
        'interval_sec',
        default=10,
        min=1,
        max=300,
        help='Seconds between two rounds. A round reads the tables of Trove; it asks Nova, Cinder '
        'and Ceph only about databases whose agents are silent.',
    ),
    cfg.IntOpt(
        'silent_sec',
        default=90,
        min=30,
        max=86400,
        help='Seconds without a report of a guest agent after which it is silent. It must be '
        'several times the report interval of the agents (30 s by default). Lower values detect a '
        'failure sooner, and ask the other services more often in vain.',
    ),
    cfg.IntOpt(
        'rounds',
        default=3,
        min=1,
        max=1000,
        help='Number of rounds in a row in which all signs must say that a server failed before '
        'it is replaced.',
    ),
    cfg.FloatOpt(
        'most_silent_share',
        default=0.3,
        min=0.0,
        max=1.0,
        help='Share of the databases whose agents may be silent at once. If more are, something '
        'that they have in common failed, and nothing is moved. Those on hosts that are down in '
        'Nova do not count, as most_hosts_down limits these. One silent database is always '
        'allowed.',
    ),
    cfg.IntOpt(
        'most_hosts_down',
        default=1,
        min=0,
        max=1000,
        help='Number of compute hosts that may be down in Nova at once. If more are, nothing is '
        'moved. Otherwise all their databases may be. Hosts that an operator has disabled in Nova '
        'do not count.',
    ),
    cfg.IntOpt(
        'most_per_hour',
        default=10,
        min=0,
        max=10000,
        help='Number of automatic failovers of the whole cloud within an hour; further databases '
        'wait. Those that have failed before anything was moved do not count. 0: none, which only '
        'shows what would be moved.',
    ),
    cfg.IntOpt(
        'pause_sec',
        default=3600,
        min=0,
        max=86400,
        help='Seconds after the end of an automatic failover in which the same database is not '
        'failed over automatically again. It doubles with each one within a day. After one that '
        'has failed before anything was moved it is 300 at most.',
    ),
    cfg.BoolOpt(
        'replace_hung',
        default=False,
        help='Also replace a server that Nova believes to run, if its agent is silent and Ceph '
        'shows no client of its volume. This is what a hypervisor looks like that hangs or is cut '
        'off from Ceph.',
    ),
]


def register(conf: cfg.ConfigOpts) -> None:
    """Make the options readable on ``conf``; harmless when repeated."""
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP)
