# SPDX-License-Identifier: Apache-2.0
"""Options of golden volumes, which trove-taskmanager reads from ``trove.conf``."""

from oslo_config import cfg, types

GROUP = cfg.OptGroup(
    'trove_ceph_golden',
    title='Golden volumes',
    help='New instances on clones of volumes with an initialised MySQL. All taskmanagers must '
    'agree.',
)

OPTS: list[cfg.Opt] = [
    cfg.ListOpt(
        'sizes_gib',
        item_type=types.Integer(min=1, max=65536),
        default=[],
        help='The sizes, in GiB, of the golden volumes from which new instances are created. A '
        'volume is cloned from the largest one that is not larger, and not smaller than a '
        'sixteenth of it; if there is none, or it was not built in the tier for the version of '
        'MySQL, the guest formats the volume and initialises MySQL. "trove-ceph-manage '
        'golden-volumes build" builds them. Empty: each guest does.',
    ),
]


def register(conf: cfg.ConfigOpts) -> None:
    """Make the options readable on ``conf``; harmless when repeated."""
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP)
