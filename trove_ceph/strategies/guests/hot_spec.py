# SPDX-License-Identifier: Apache-2.0
"""With what the MySQL of a hot guest runs: ``[trove_ceph_guests] hot_volume`` and the rest."""

import dataclasses
import hashlib
import json
import re

from trove_ceph import exceptions
from trove_ceph.storage import golden

_FORM = re.compile(r'(?P<volume_type>.+):(?P<size_gib>[1-9]\d{0,4})')
#: Trove renders another value for each instance, and the agent overrides it.
_SERVER_ID = re.compile(r'^\s*server[-_]id\s*=.*$', re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class HotVolume:
    """The volumes of hot guests.

    :param volume_type: name of the volume type, which determines the tier
    """

    volume_type: str
    size_gib: int


def parse(text: str) -> HotVolume | None:
    """Return the volumes that the option names; None: it is empty.

    :raises InvalidConfigurationError: the text names none
    """
    if not text:
        return None
    found = _FORM.fullmatch(text)
    if found is None or int(found['size_gib']) > golden.MOST_GIB:
        raise exceptions.InvalidConfigurationError(
            f'[trove_ceph_guests] hot_volume: {text!r} is no volume; expected '
            f'VOLUME_TYPE:SIZE_GIB with a size of 1 to {golden.MOST_GIB}'
        )
    return HotVolume(found['volume_type'], int(found['size_gib']))


@dataclasses.dataclass(frozen=True)
class HotSpec:
    """With what MySQL runs on a hot guest, and must run on its instance.

    :param version: of the datastore version, the tag of MySQL's image
    :param contents: of my.cnf, as Trove renders it
    """

    volume: HotVolume
    version: str
    contents: str = dataclasses.field(repr=False)

    @property
    def digest(self) -> str:
        """What tells two of them apart; their ``server_id`` does not."""
        facts = [
            self.volume.volume_type,
            self.volume.size_gib,
            self.version,
            golden.RECIPE,
            _SERVER_ID.sub('', self.contents),
        ]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()
