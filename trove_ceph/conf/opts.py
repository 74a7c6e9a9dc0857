# SPDX-License-Identifier: Apache-2.0
"""Entry point ``oslo.config.opts``: what the sample configuration is generated from."""

import copy

from oslo_config import cfg

from trove_ceph.conf import guest


def list_opts() -> list[tuple[cfg.OptGroup, list[cfg.Opt]]]:
    """Return every option group of this package with its options."""
    return [(guest.GROUP, copy.deepcopy(guest.OPTS))]
