# SPDX-License-Identifier: Apache-2.0
"""A real Ceph keeps the contract of storage."""

from trove_ceph.tests.contract import storage_copies, storage_fencing, storage_images
from trove_ceph.tests.functional import storage


class ImagesTest(storage_images.ImagesContract, storage.CephStorageTestCase):
    pass


class CopiesTest(storage_copies.CopiesContract, storage.CephStorageTestCase):
    pass


class FencingTest(storage_fencing.FencingContract, storage.CephStorageTestCase):
    pass
