# SPDX-License-Identifier: Apache-2.0
"""Parsing of handwritten YAML: errors name the line, and duplicate keys are refused.

The rules are those of YAML 1.2, where ``on`` and ``1:4`` are strings.
"""

import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import yaml

from trove_ceph import schema_problems
from trove_ceph.exceptions import TroveCephError
from trove_ceph.schema_problems import ValuePath, shortened

_TEXT = 'tag:yaml.org,2002:str'
_MERGE = 'tag:yaml.org,2002:merge'
_Content = TypeVar('_Content')


class Loader(yaml.SafeLoader):
    """A loader that resolves scalars by YAML 1.2's core schema."""

    yaml_implicit_resolvers: dict[str, Any] = {}


for _tag, _pattern, _first in (
    ('null', r'(?:~|null|Null|NULL|)', ['~', 'n', 'N', '']),
    ('bool', r'(?:true|True|TRUE|false|False|FALSE)', list('tTfF')),
    ('int', r'[-+]?(?:0|[1-9][0-9]*)', list('-+0123456789')),
    (
        'float',
        r'[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?',
        list('-+.0123456789'),
    ),
    ('merge', r'<<', ['<']),
):
    Loader.add_implicit_resolver(f'tag:yaml.org,2002:{_tag}', re.compile(f'^{_pattern}$'), _first)


class Dumper(yaml.SafeDumper):
    """A dumper whose output has the same values for :class:`Loader` and for YAML 1.1."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write equal values in full, because people copy lines."""
        return True


for _character, _resolvers in Loader.yaml_implicit_resolvers.items():
    for _tag, _regexp in _resolvers:
        Dumper.add_implicit_resolver(_tag, _regexp, [_character])


class Problem(Exception):
    """An invalid value; ``path`` is its location."""

    def __init__(self, path: ValuePath, what: str):
        super().__init__(what)
        self.path = path


def load(
    path: str, parse: Callable[[dict[str, Any]], _Content], error: type[TroveCephError], keys: str
) -> _Content:
    """Return what a file describes.

    :param parse: makes it of the decoded content; raises :class:`Problem` for an invalid value
    :param error: the error to raise if the file cannot be read or is invalid; its message names
        the file and, for an invalid value, line and key
    :param keys: the keys at the top of the file, for the message
    """
    try:
        text = Path(path).read_text(encoding='utf-8')
    except (OSError, UnicodeDecodeError) as failure:
        raise error(f'{path}: cannot be read: {failure}') from failure
    try:
        root = compose(text)
        if root is None:
            raise error(f'{path}: must have the keys {keys}')
        try:
            return parse(construct(root))
        except Problem as problem:
            raise error(f'{path}, {location_text(root, problem.path)}: {problem}') from problem
    except yaml.YAMLError as failure:
        reason = ' '.join(str(failure).split())
        raise error(f'{path}: is not YAML: {reason}') from failure


def compose(text: str) -> yaml.MappingNode | None:
    """Return the root node of a document; None: it is not a mapping.

    :raises yaml.YAMLError: the text is not YAML or is nested too deeply
    """
    try:
        root = yaml.compose(text, Loader)
    except RecursionError as error:
        raise yaml.YAMLError('nested too deeply') from error
    return root if isinstance(root, yaml.MappingNode) else None


def construct(root: yaml.MappingNode) -> dict[str, Any]:
    """Return the values of a document.

    :raises Problem: a key is duplicate, a scalar does not fit its type, or an alias refers to a
        value that contains it
    """
    try:
        for path, key in _repeated_keys(root, ()):
            raise Problem(path, f'{key!r} is given twice')
        for path, node in _scalars(root, ()):
            _check_scalar(path, node)
    except RecursionError as error:
        raise Problem((), 'an alias refers to a value that contains it') from error
    constructor = Loader('')
    try:
        return constructor.construct_document(root)
    finally:
        constructor.dispose()


def read_value(text: str) -> Any:
    """Return the value of a text.

    :raises yaml.YAMLError: the text is not YAML
    """
    return Loader(text).get_single_data()


def location_text(root: yaml.Node, path: ValuePath) -> str:
    """Return line and path of a value; the line is that of its parent if it is missing."""
    where = schema_problems.path_text(path)
    return f'line {_line_of(root, path)}{f": {where}" if where else ""}'


def _repeated_keys(node: yaml.Node, path: ValuePath) -> Iterator[tuple[ValuePath, str]]:
    steps = set()
    for step, _, child in _children(node):
        if isinstance(node, yaml.MappingNode):
            if step in steps:
                yield (*path, step), str(step)
            steps.add(step)
        yield from _repeated_keys(child, (*path, step))


def _scalars(node: yaml.Node, path: ValuePath) -> Iterator[tuple[ValuePath, yaml.ScalarNode]]:
    if isinstance(node, yaml.ScalarNode):
        yield path, node
    if isinstance(node, yaml.MappingNode):
        yield from ((path, key) for key, _ in node.value if isinstance(key, yaml.ScalarNode))
    for step, _, child in _children(node):
        yield from _scalars(child, (*path, step))


def _check_scalar(path: ValuePath, node: yaml.ScalarNode) -> None:
    """Refuse scalars that do not fit their tag, and numbers that are not finite."""
    if node.tag in (_TEXT, _MERGE):
        return
    constructor = Loader('')
    try:
        value = constructor.construct_document(node)
    except yaml.constructor.ConstructorError as error:
        raise Problem(path, f'has the tag {node.tag}, which is not known') from error
    except (ValueError, KeyError, IndexError, AttributeError, TypeError) as error:
        # The constructor of the tag failed: a number with too many digits, an invalid date.
        kind = node.tag.rpartition(':')[2]
        raise Problem(path, f'{shortened(node.value)} cannot be read as {kind}') from error
    finally:
        constructor.dispose()
    if isinstance(value, float) and not math.isfinite(value):
        raise Problem(path, f'must be a finite number, not {shortened(node.value)}')


def _children(node: yaml.Node) -> Iterator[tuple[str | int, yaml.Node, yaml.Node]]:
    """Yield the key or position of each child, the node with its line, and its value."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield _step_of(key), key, value
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            yield number, value, value


def _step_of(key: yaml.Node) -> str:
    return key.value if isinstance(key, yaml.ScalarNode) else 'a key that is not a text'


def _line_of(node: yaml.Node, path: ValuePath) -> int:
    line = node.start_mark.line + 1
    for target in path:
        for step, marked, child in _children(node):
            if step == target:
                line, node = marked.start_mark.line + 1, child
                break
        else:
            break
    return line
