# SPDX-License-Identifier: Apache-2.0
"""The snapshot of a backup, as Cinder gets it."""

import uuid

from oslotest import base

from trove_ceph.storage import image_types
from trove_ceph.strategies.backup import backup_snapshot


class DescriptionTest(base.BaseTestCase):
    def description(self, text):
        image = image_types.ImageRef('volumes', 'volume-1')
        return backup_snapshot.to_adopt(str(uuid.uuid4()), image, 'v', description=text).description

    def test_is_one_that_cinder_accepts(self):
        """Trove stores up to 512 characters, of any kind."""
        for text, accepted in (
            ('before the upgrade, Größe 3', 'before the upgrade, Größe 3'),
            ('one\nline\tonly', 'one line only'),
            ('\U0001f600 before', '  before'),
            ('a\u200bb\u2028c\ue000d', 'a b c d'),
            ('x' * 512, 'x' * 255),
            ('', ''),
        ):
            self.assertEqual(accepted, self.description(text))
