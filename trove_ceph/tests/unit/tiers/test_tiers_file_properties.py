# SPDX-License-Identifier: Apache-2.0
"""Any value of any key is accepted, or refused with its line and its key."""

import copy
import re
from pathlib import Path

import fixtures
import hypothesis
import yaml
from hypothesis import strategies
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.tests.unit.tiers import sample, world
from trove_ceph.tiers import schema, tier_types, tiers_file

#: Scalars as people type them: numbers that are too large, too long or of the wrong kind.
_TYPED = (
    *('1e308', '1e999', '-1e308', '.nan', '.inf', '-.inf', '9' * 400, '9' * 5000, '-1', '0', '00'),
    *('1.0', '2.5', '0x10', '1_000', '1:30', 'true', 'yes', 'null', '~', '""', '" "', '"a\\n"'),
    *('!!int x', '!!float x', '!!bool 2', '!!timestamp 1', '!!binary x', '!unknown x', '!!null x'),
    *('2026-11-23', '[]', '{}', '[1]', '[~]', '{a: 1}', '{1: a}', '? [a]\n: b', '"\\ud800"'),
)
_VALUES = strategies.one_of(
    strategies.sampled_from(_TYPED),
    strategies.integers().map(str),
    strategies.floats().map(repr),
    strategies.text(
        strategies.characters(min_codepoint=32, max_codepoint=0x2FFF), max_size=300
    ).map(lambda text: yaml.safe_dump(text, width=10**6).removesuffix('...\n').strip()),
)
_MARK = 'VALUE-OF-THE-TEST'
_MESSAGE = re.compile(r'.*tiers\.yaml, line \d+(: \S.*)?: .+', re.DOTALL)


def _full_content():
    """Return a file's content in which every key of the schema occurs."""
    content = sample.changed()
    content['tiers']['fast'] |= {
        'latency_ms': 2,
        'failure_domain': 'host',
        'crush_root': 'default',
        'erasure': sample.FULL_ERASURE,
        'compression': {'mode': 'force', 'algorithm': 'lz4'},
    }
    content['tiers']['fast']['volume_type']['public'] = True
    content['tiers']['fast']['volume_type']['names_backend'] = True
    content['tiers']['fast']['allow_single_copy'] = False
    content['tiers']['fast']['replicas_on'] = 'follower'
    content['tiers']['follower']['placement_groups'] = {'keep': True}
    content['tiers']['vault']['placement_groups']['per_osd'] = 200
    content['users']['client.cinder'] |= {
        'tiers': ['fast', 'images'],
        'pools': ['vms'],
        'caps': {service: ['allow r'] for service in tier_types.SERVICES},
        'exclusive': False,
    }
    return content


def _keys_of(content, path=()):
    """Yield the path of each value."""
    items = content.items() if isinstance(content, dict) else enumerate(content)
    for key, value in items:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from _keys_of(value, (*path, key))


def _schema_keys(part):
    if 'properties' in part:
        yield from part['properties']
    for value in part.values():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, dict):
                yield from _schema_keys(each)


def _with_value(path, text):
    """Return the text of a file with one value replaced by literal text."""
    content = copy.deepcopy(_full_content())
    holder = content
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = _MARK
    return yaml.safe_dump(content, sort_keys=False).replace(_MARK, text)


class EveryKeyTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.path = Path(self.useFixture(fixtures.TempDir()).path) / 'tiers.yaml'

    def test_example_has_every_key_of_the_schema(self):
        found = {path[-1] for path in _keys_of(_full_content())}
        self.assertEqual(set(), set(_schema_keys(schema.TIERS_FILE)) - found)

    def _check(self, path, text):
        self.path.write_text(_with_value(path, text), encoding='utf-8', errors='surrogatepass')
        try:
            content = tiers_file.load(str(self.path))
        except exceptions.InvalidTiersError as error:
            message = str(error)
            is_located = _MESSAGE.fullmatch(message) or re.search(
                r'is not YAML: .*line \d+', message
            )
            # A lone surrogate is not UTF-8, and YAML refuses control characters.
            is_no_text = 'cannot be read' in message or 'unacceptable character' in message
            self.assertTrue(is_located or is_no_text, message)
            self.assertLess(len(message), 1500)
            return
        # Accepted content can be planned.
        world.World().plan(content)

    @hypothesis.settings(derandomize=True, database=None, max_examples=400, print_blob=False)
    @hypothesis.given(
        path=strategies.sampled_from(sorted(_keys_of(_full_content()), key=str)), text=_VALUES
    )
    def test_any_value_of_any_key(self, path, text):
        self._check(path, text)

    def test_each_typed_scalar_at_each_key(self):
        for path in _keys_of(_full_content()):
            for text in ('1e308', '.nan', '9' * 5000, 'true', '~', '-1', '2.5', '!!int x', '{}'):
                with self.subTest(path=path, text=text[:10]):
                    self._check(path, text)

    def test_message_for_a_fractional_number(self):
        path = ('tiers', 'vault', 'erasure', 'metadata_pg_num')
        content = _full_content()
        content['tiers']['vault']['erasure']['metadata_pg_num'] = _MARK
        text = yaml.safe_dump(content, sort_keys=False)
        line = text[: text.index(_MARK)].count('\n') + 1
        for typed, words in (
            ('1e308', 'must be a whole number of placement groups'),
            ('1e999', 'must be a finite number'),
            ('.nan', 'must be a whole number of placement groups'),
            ('true', 'must be a whole number of placement groups'),
            ('9' * 30, 'is too large; the most is 65536'),
            ('9' * 5000, 'cannot be read as int'),
        ):
            self.path.write_text(text.replace(_MARK, typed))
            message = str(
                self.assertRaises(exceptions.InvalidTiersError, tiers_file.load, str(self.path))
            )
            self.assertIn(f'line {line}: {".".join(path)}: ', message)
            self.assertIn(words, message)
