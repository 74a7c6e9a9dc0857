# SPDX-License-Identifier: Apache-2.0
"""The options of a backup request that Trove's API does not have."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from trove_ceph.enums import QuiesceLevel


@dataclasses.dataclass(frozen=True)
class BackupOptions:
    """The options of one backup request.

    :param quiesce: the requested quiesce level; None: the one configured for the datastore
    :param copy: copy the backup to the vault
    :param verify: verify the backup
    """

    quiesce: QuiesceLevel | None = None
    copy: bool = False
    verify: bool = False

    def as_document(self) -> dict[str, Any]:
        """Return the options as a message carries them."""
        quiesce = None if self.quiesce is None else str(self.quiesce)
        return {'quiesce': quiesce, 'copy': self.copy, 'verify': self.verify}

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> 'BackupOptions':
        """Return the options that a message carries."""
        quiesce = document.get('quiesce')
        return cls(
            QuiesceLevel(quiesce) if quiesce else None,
            bool(document.get('copy')),
            bool(document.get('verify')),
        )
