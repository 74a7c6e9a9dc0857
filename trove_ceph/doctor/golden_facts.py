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


@dataclasses.dataclass(frozen=True)
class HotPool:
    """A pool of warm guests, some of which are to be hot.

    :param version: of MySQL; None: its datastore version does not exist or is not active
    :param source: the golden volume of its hot guests; None: there can be none, since the version
        does not have three numbers, or the volume type is that of no tier
    """

    name: str
    version: str | None
    source: ConfiguredVolume | None


@dataclasses.dataclass(frozen=True)
class HotGuests:
    """The hot guests that the configuration names.

    :param problem: why ``hot_volume`` names no volume; None: it names one
    :param tier: the name of the tier that has the volume type; None: none has it
    """

    problem: str | None = None
    volume_type: str = ''
    tier: str | None = None
    pools: tuple[HotPool, ...] = ()
