# SPDX-License-Identifier: Apache-2.0
"""Violations of a JSON schema as messages for the author of a document.

The ``description`` in a schema completes the sentence "must be …".
"""

import difflib
import math
from collections.abc import Iterable, Mapping
from typing import Any

import jsonschema

#: Location of a value: keys and list positions from the top of the document.
ValuePath = tuple[str | int, ...]
_MOST_CHARACTERS = 60


def _is_whole(checker: Any, value: Any) -> bool:
    # JSON schema accepts 1e308 and 2.0 as integers, but a count must be an int here. The bounds in
    # a schema apply to numbers only, so an int that is no number would have no bounds.
    return isinstance(value, int) and _is_number(checker, value)


def _is_number(_checker: Any, value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


_Validator = jsonschema.validators.extend(
    jsonschema.Draft202012Validator,
    type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER.redefine_many(
        {'integer': _is_whole, 'number': _is_number}
    ),
)


def problems(content: Any, schema: Mapping[str, Any]) -> list[tuple[ValuePath, str]]:
    """Return the path of each invalid value and what to do about it."""
    found = map(_innermost, _Validator(schema).iter_errors(content))
    # A misspelt key often makes another one missing, so report the misspelling first. The validator
    # visits the keys of a mapping in no order.
    ordered = sorted(
        found,
        key=lambda error: (error.validator != 'additionalProperties', _position(content, error)),
    )
    return [(_path_of(error), _explain(error)) for error in ordered]


def path_text(path: ValuePath) -> str:
    """Return a path as text, such as ``variants[1].target.server``."""
    text = ''
    for step in path:
        text += f'[{step}]' if isinstance(step, int) else f'.{step}'
    return text.removeprefix('.')


def shortened(value: Any) -> str:
    """Return a value for a message; truncate a long one."""
    try:
        text = repr(value)
    except ValueError:
        # Python does not print integers with thousands of digits.
        return 'a number of very many digits'
    return text if len(text) <= _MOST_CHARACTERS else f'{text[:_MOST_CHARACTERS]}…'


def _innermost(error: Any) -> Any:
    """Return the error within the alternative that the keys of the value select, if any."""
    while error.validator == 'anyOf' and isinstance(error.instance, dict):
        chosen = [
            number
            for number, alternative in enumerate(error.validator_value)
            if set(alternative['required']) & error.instance.keys()
        ]
        if not chosen:
            return error
        causes = [cause for cause in error.context if cause.schema_path[0] == chosen[0]]
        error = min(causes, key=lambda cause: cause.validator != 'additionalProperties')
    return error


def _position(content: Any, error: Any) -> list[int]:
    """Return where the value of an error is in the document: its place at each level."""
    position = []
    for step in error.absolute_path:
        position.append(list(content).index(step) if isinstance(content, Mapping) else step)
        content = content[step]
    return position


def _path_of(error: Any) -> ValuePath:
    path = tuple(error.absolute_path)
    if error.validator == 'additionalProperties':
        return (*path, _unknown_key(error))
    return path


def _unknown_key(error: Any) -> str:
    return str(next(key for key in error.instance if key not in error.schema['properties']))


def _explain(error: Any) -> str:
    value, schema, expected = error.instance, error.schema, error.validator_value
    if error.validator == 'additionalProperties':
        known = schema['properties']
        return f'not a key{_nearest([_unknown_key(error)], known)}; choose from {_listed(known)}'
    if error.validator == 'anyOf' and isinstance(value, Mapping):
        keys = [each['required'][0] for each in expected]
        return f'must have one of the keys {_listed(keys)}{_nearest(value, keys)}'
    if error.validator == 'required':
        missing = [key for key in expected if key not in value]
        return f'lacks {_listed(missing)}'
    if error.validator == 'enum':
        hint = f'{_nearest([value], expected)}; choose {_listed(expected)}'
        return f'{shortened(value)} is not known{hint}'
    if error.validator == 'minimum':
        return f'{shortened(value)} is too small; the least is {expected}'
    if error.validator == 'maximum':
        return f'{shortened(value)} is too large; the most is {expected}'
    if error.validator in ('minItems', 'minLength', 'minProperties'):
        return 'must not be empty'
    if error.validator == 'uniqueItems':
        return 'names the same thing twice'
    if error.validator == 'anyOf':
        return f'must be {schema.get("description", "a mapping")}, not {shortened(value)}'
    if error.validator in ('type', 'pattern', 'exclusiveMinimum', 'const'):
        valid = schema.get('description') or f'a value of type {expected}'
        return f'must be {valid}, not {shortened(value)}'
    return str(error.message)


def _nearest(given: Iterable[Any], known: Iterable[str]) -> str:
    """Return a hint at the most similar known name."""
    choices = list(known)
    near = [hit for each in given for hit in difflib.get_close_matches(str(each), choices, 1)]
    return f' (did you mean {near[0]}?)' if near else ''


def _listed(names: Iterable[str]) -> str:
    return ', '.join(names)
