# SPDX-License-Identifier: Apache-2.0
"""Facts of golden volumes; this module needs no Trove."""

import dataclasses

from trove_ceph.storage import golden


@dataclasses.dataclass(frozen=True)
class ConfiguredVolume:
    """A golden volume that the configuration names.

    :param state: None: it does not exist
    """

    volume: golden.GoldenVolume
    state: golden.State | None
