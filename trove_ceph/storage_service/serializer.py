# SPDX-License-Identifier: Apache-2.0
"""Convert the messages of the storage service and its callers to and from plain JSON.

Only the classes in this module can be sent, each by its name. A reader ignores fields that it does
not know, and uses the default of a field that is missing. So service and callers need not be
upgraded at the same time, provided that new fields have defaults.
"""

import dataclasses
import datetime
from collections.abc import Mapping
from typing import Any

from trove_ceph import exceptions
from trove_ceph.storage import copying, fencing, image_types, tasks
from trove_ceph.verification import report as verification

#: Maximum number of images in one answer.
MAX_LISTED = 1000

_DATACLASSES = {
    known.__name__: known
    for known in (
        copying.CopyReport,
        fencing.Fence,
        tasks.Job,
        image_types.Child,
        image_types.ImageFacts,
        image_types.ImageOptions,
        image_types.ImageRef,
        image_types.ListedImage,
        image_types.PoolUsage,
        image_types.Qos,
        image_types.SnapshotFacts,
        image_types.SnapshotRef,
        image_types.TrashedImage,
        verification.Inspection,
    )
}
#: Tasks are sent by names of their own.
_TASKS = {
    'work.flatten': tasks.FlattenTask,
    'work.copy': tasks.CopyTask,
    'work.verify': tasks.VerifyTask,
    'work.inspect': tasks.InspectTask,
    'work.golden': tasks.GoldenTask,
    'work.fence': tasks.FenceTask,
    'work.purge': tasks.PurgeTask,
}
_BY_NAME: dict[str, Any] = _DATACLASSES | _TASKS
_NAMES = {known: name for name, known in _BY_NAME.items()}
_PLAIN = (str, int, float, bool, type(None))


def encode(entity: Any) -> Any:
    """Convert a value to JSON types.

    :raises TypeError: values of this class cannot be sent
    """
    if isinstance(entity, tasks.JobState):
        return {'class': 'state', 'is': entity.value}
    if isinstance(entity, _PLAIN):
        return entity
    if isinstance(entity, list):
        return [encode(each) for each in entity]
    if isinstance(entity, tuple):
        return {'class': 'tuple', 'is': [encode(each) for each in entity]}
    if isinstance(entity, frozenset):
        return {'class': 'set', 'is': [encode(each) for each in sorted(entity)]}
    if isinstance(entity, datetime.datetime):
        return {'class': 'time', 'is': entity.isoformat()}
    if isinstance(entity, Mapping):
        return {'class': 'map', 'is': {key: encode(value) for key, value in entity.items()}}
    if type(entity) in _NAMES:
        fields = {
            field.name: encode(getattr(entity, field.name)) for field in dataclasses.fields(entity)
        }
        return {'class': _NAMES[type(entity)], 'is': fields}
    raise TypeError(f'{type(entity).__name__} cannot be sent over the bus')


def decode(primitive: Any) -> Any:
    """Convert the result of ``encode`` back to the value.

    :raises InvalidRequestError: it is malformed, or of another version
    """
    if isinstance(primitive, list):
        return [decode(each) for each in primitive]
    if not isinstance(primitive, dict):
        return primitive
    try:
        return _decode(primitive['class'], primitive['is'])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise exceptions.InvalidRequestError(
            f'cannot decode a message; it may be of another version: {type(error).__name__}: '
            f'{error}'
        ) from error


def _decode(name: str, content: Any) -> Any:
    match name:
        case 'state':
            return tasks.JobState(content)
        case 'tuple':
            return tuple(decode(content))
        case 'set':
            return frozenset(decode(content))
        case 'time':
            return datetime.datetime.fromisoformat(content)
        case 'map':
            return {key: decode(value) for key, value in content.items()}
    known = _BY_NAME[name]
    fields = {field.name for field in dataclasses.fields(known)}
    return known(**{key: decode(value) for key, value in content.items() if key in fields})
