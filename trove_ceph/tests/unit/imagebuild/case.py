# SPDX-License-Identifier: Apache-2.0
"""The base of the image builder's tests: each has a directory."""

import tempfile
from pathlib import Path

from oslotest import base


class ImagesTestCase(base.BaseTestCase):
    """A test with a directory of its own."""

    def setUp(self):
        super().setUp()
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.directory = Path(temporary.name)

    def make_file(self, name, content):
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        return path
