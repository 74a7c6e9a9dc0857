# SPDX-License-Identifier: Apache-2.0
"""The encoding of Ceph's advisory locks, from recorded requests and answers of Ceph 16.2."""

from oslotest import base

from trove_ceph.storage import lock_store
from trove_ceph.storage.ceph import lock_class

HELD = bytes.fromhex(
    '0101890000000100000001011b0000000889370000000000000e0000006f7065726174696f6e2f35663063'
    '01015900000039e6016be9d1611e0101011c00000001000000eaeded5510000000020000007f0000010000'
    '0000000000002a0000006f6e6520666f7220666c617474656e20766f6c756d65732f696d6167652c206f70'
    '65726174696f6e20370100000000'
)
FREE = bytes.fromhex('010109000000000000000000000000')


class LockClassTest(base.BaseTestCase):
    def test_reads_the_holder(self):
        self.assertEqual(
            lock_store.Holder('operation/5f0c', 'one for flatten volumes/image, operation 7'),
            lock_class.read_holder(HELD),
        )
        self.assertIsNone(lock_class.read_holder(FREE))

    def test_the_duration_of_a_lock(self):
        holder = lock_store.Holder('c', 'who')
        identity = b'\x01\x00\x00\x00a\x01\x01\x00\x00\x00c\x00\x00\x00\x00\x03\x00\x00\x00who'
        duration = b'\x3c\x00\x00\x00\x00\x00\x00\x00'
        for must_renew, flags in ((False, b'\x00'), (True, b'\x02')):
            self.assertEqual(
                b'\x01\x01\x1f\x00\x00\x00' + identity + duration + flags,
                lock_class.lock('a', holder, 60, must_renew),
            )

    def test_arguments_of_other_requests(self):
        self.assertEqual(
            b'\x01\x01\x08\x00\x00\x00\x04\x00\x00\x00a@\xc3\xa4', lock_class.get_info('a@ä')
        )
        self.assertEqual(
            b'\x01\x01\x0f\x00\x00\x00\x01\x00\x00\x00a\x01\x01\x00\x00\x00c\x00\x00\x00\x00',
            lock_class.assert_locked('a', 'c'),
        )
        self.assertEqual('lock.a', lock_class.attribute('a'))
