# SPDX-License-Identifier: Apache-2.0
"""What is asked for with a backup, and Trove's API has no word for."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from trove_ceph.enums import QuiesceLevel


@dataclasses.dataclass(frozen=True)
class BackupOptions:
    """What is asked for with one backup.

    :param quiesce: how the server is to be held; None: as it is configured for its datastore
    :param copy: it is to be copied to the vault
    :param verify: it is to be verified
    """

    quiesce: QuiesceLevel | None = None
    copy: bool = False
    verify: bool = False

    def as_document(self) -> dict[str, Any]:
        """Return it as messages take it."""
        quiesce = None if self.quiesce is None else str(self.quiesce)
        return {'quiesce': quiesce, 'copy': self.copy, 'verify': self.verify}

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> 'BackupOptions':
        """Return what a message has."""
        quiesce = document.get('quiesce')
        return cls(
            QuiesceLevel(quiesce) if quiesce else None,
            bool(document.get('copy')),
            bool(document.get('verify')),
        )
