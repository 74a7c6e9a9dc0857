# SPDX-License-Identifier: Apache-2.0
"""The table of settings of hosts that run OSDs and databases: what is set, to what, and why.

It lists the settings of the reference architectures, each with a verdict of today, and those that
the architectures lack. What is rendered for a host is what this table says; the documents show the
same table.
"""

import enum
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from trove_ceph import exceptions, schema_problems, yaml_file
from trove_ceph.schema_parts import mapping
from trove_ceph.yaml_file import Problem

_FILE = 'host_settings.yaml'


class Verdict(enum.StrEnum):
    """What became of a setting of the reference architectures."""

    KEPT = 'kept'
    CHANGED = 'changed'
    DROPPED = 'dropped'
    ADDED = 'added'


class Area(enum.StrEnum):
    """What reads a setting."""

    SYSCTL = 'sysctl'
    BLOCK_QUEUE = 'block-queue'
    TUNED = 'tuned'
    CEPH = 'ceph'
    OSD_SPEC = 'osd-spec'
    NOVA = 'nova'
    IMAGE = 'image'
    OBSOLETE = 'obsolete'


#: The areas whose settings lie in sections of a file.
_SECTIONED = (Area.TUNED, Area.NOVA)


@dataclass(frozen=True)
class Seed:
    """Where a reference architecture has a setting.

    :ivar document: its authors, title and year
    :ivar where: the section
    :ivar value: as printed
    """

    document: str
    where: str
    value: str


@dataclass(frozen=True)
class Setting:
    """A setting of hosts.

    :ivar section: the section of the file; empty: the file has none
    :ivar who: the part of Ceph that the setting is for, a Jinja template; empty: none is
    :ivar value: a Jinja template of the value; None: nothing is written
    :ivar seeds: where the reference architectures have it; empty: they do not
    """

    area: Area
    name: str
    purpose: str
    verdict: Verdict
    reason: str
    sources: tuple[str, ...]
    seeds: tuple[Seed, ...]
    section: str = ''
    who: str = ''
    value: str | None = None


_TEXT = {'type': 'string', 'minLength': 1, 'description': 'a text'}
_SCHEMA = mapping(
    {
        'documents': {
            'type': 'object',
            'additionalProperties': _TEXT,
            'description': 'titles by short names',
        },
        'settings': {
            'type': 'array',
            'minItems': 1,
            'description': 'a list of settings',
            'items': mapping(
                {
                    'area': {'enum': list(Area)},
                    'name': _TEXT,
                    'section': _TEXT,
                    'who': _TEXT,
                    'value': _TEXT,
                    'purpose': _TEXT,
                    'verdict': {'enum': list(Verdict)},
                    'reason': _TEXT,
                    'sources': {'type': 'array', 'items': _TEXT, 'minItems': 1},
                    'seeds': {
                        'type': 'array',
                        'minItems': 1,
                        'items': mapping(
                            {'document': _TEXT, 'where': _TEXT, 'value': _TEXT},
                            ['document', 'where', 'value'],
                            'the keys document, where and value',
                        ),
                    },
                },
                ['area', 'name', 'purpose', 'verdict', 'reason', 'sources'],
                'the keys area, name, purpose, verdict, reason and sources',
            ),
        },
    },
    ['documents', 'settings'],
    'the keys documents and settings',
)


@functools.cache
def load() -> tuple[Setting, ...]:
    """Return the table of the package, in the order in which it is shown."""
    with resources.as_file(resources.files(__package__) / _FILE) as path:
        return yaml_file.load(
            str(path), parse, exceptions.InvalidConfigurationError, 'documents and settings'
        )


def parse(content: Mapping[str, Any]) -> tuple[Setting, ...]:
    """Return the settings of a decoded table.

    :raises Problem: the table is invalid; the error carries the path of the key
    """
    for path, what in schema_problems.problems(content, _SCHEMA):
        raise Problem(path, what)
    settings: list[Setting] = []
    for number, each in enumerate(content['settings']):
        setting = _setting(('settings', number), each, content['documents'])
        key = (setting.area, setting.section, setting.name)
        if key in [(one.area, one.section, one.name) for one in settings]:
            raise Problem(('settings', number, 'name'), f'{setting.name} is given twice')
        settings.append(setting)
    return tuple(settings)


def _setting(
    path: schema_problems.ValuePath, content: Mapping[str, Any], documents: Mapping[str, str]
) -> Setting:
    seeds = content.get('seeds', [])
    for number, seed in enumerate(seeds):
        if seed['document'] not in documents:
            raise Problem((*path, 'seeds', number, 'document'), 'is none of the documents')
    setting = Setting(
        area=Area(content['area']),
        name=content['name'],
        purpose=content['purpose'],
        verdict=Verdict(content['verdict']),
        reason=content['reason'],
        sources=tuple(content['sources']),
        seeds=tuple(Seed(documents[one['document']], one['where'], one['value']) for one in seeds),
        section=content.get('section', ''),
        who=content.get('who', ''),
        value=content.get('value'),
    )
    for key, is_wrong, what in _rules(setting):
        if is_wrong:
            raise Problem((*path, key), what)
    return setting


def _rules(setting: Setting) -> list[tuple[str, bool, str]]:
    is_written = setting.value is not None
    is_dropped = setting.verdict is Verdict.DROPPED
    needs_who = is_written and setting.area is Area.CEPH
    return [
        ('value', is_written is is_dropped, 'must be given unless the setting is dropped'),
        ('section', bool(setting.section) is not (setting.area in _SECTIONED), 'is misplaced'),
        ('who', bool(setting.who) is not needs_who, 'is for settings of Ceph that are written'),
        (
            'value',
            is_written and setting.area is Area.OBSOLETE,
            'nothing reads what is obsolete',
        ),
        (
            'seeds',
            setting.verdict in (Verdict.KEPT, Verdict.CHANGED) and not setting.seeds,
            'what is kept or changed has an origin',
        ),
        (
            'seeds',
            setting.verdict is Verdict.ADDED and bool(setting.seeds),
            'what is added has no origin',
        ),
    ]
