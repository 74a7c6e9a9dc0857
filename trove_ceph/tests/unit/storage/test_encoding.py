# SPDX-License-Identifier: Apache-2.0
"""Ceph's encoding of the arguments of object classes."""

from oslotest import base

from trove_ceph.storage.ceph import encoding


class EncodingTest(base.BaseTestCase):
    def test_strings(self):
        self.assertEqual(b'\x02\x00\x00\x00\xc3\xa4', encoding.string('ä'))
        self.assertEqual(
            b'\x02\x00\x00\x00\x01\x00\x00\x00b\x00\x00\x00\x00\x02\x00\x00\x00aa\x01\x00\x00\x001',
            encoding.strings({'b': '', 'aa': '1'}),
        )

        self.assertEqual(b'\x40' + bytes(7), encoding.long_number(64))

    def test_a_map_of_strings(self):
        entries = {'b': '', 'aa': '1', 'ä': 'ö'}
        self.assertEqual(entries, encoding.Reader(encoding.strings(entries)).strings())

    def test_values_are_read_one_after_another(self):
        reader = encoding.Reader(
            encoding.versioned(b'left out')
            + encoding.string('ä')
            + b'\xff' * 8
            + encoding.strings({})
        )
        reader.skip_structure()
        found = reader.string(), reader.signed_long_number(), reader.number()
        self.assertEqual(('ä', -1, 0), found)
