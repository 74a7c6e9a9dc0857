# SPDX-License-Identifier: Apache-2.0
"""A real Ceph keeps the contract of storage."""

import time

from trove_ceph.storage.ceph import ledger
from trove_ceph.tests.contract import (
    storage_copies,
    storage_fencing,
    storage_images,
    storage_ledger,
)
from trove_ceph.tests.functional import storage


class ImagesTest(storage_images.ImagesContract, storage.CephStorageTestCase):
    pass


class CopiesTest(storage_copies.CopiesContract, storage.CephStorageTestCase):
    pass


class FencingTest(storage_fencing.FencingContract, storage.CephStorageTestCase):
    pass


class LedgerTest(storage_ledger.LedgerContract, storage.CephStorageTestCase):
    def setUp(self):
        super().setUp()
        self.ledger, self.other_ledger = (self._ledger() for _ in range(2))

    def _ledger(self):
        return ledger.CephLedger(storage.link(self, self.cluster))

    def let_expire(self, seconds):
        time.sleep(seconds)
