# SPDX-License-Identifier: Apache-2.0
"""The schemas of requests."""

from collections.abc import Mapping

from oslotest import base

from trove_ceph.api import schemas


def patterns(schema):
    """Return the patterns in a schema."""
    if not isinstance(schema, Mapping):
        return set()
    own = {schema['pattern']} if isinstance(schema.get('pattern'), str) else set()
    return own.union(*map(patterns, schema.values()))


class PatternsTest(base.BaseTestCase):
    def test_match_the_whole_text(self):
        """jsonschema searches, and ``$`` also matches before a newline at the end."""
        known = [value for name, value in vars(schemas).items() if name.isupper()]
        found = set().union(*map(patterns, known))
        self.assertGreater(len(found), 7)
        for pattern in found:
            self.assertRegex(pattern, r'^\^.*\\Z\Z')
