# SPDX-License-Identifier: Apache-2.0
"""Read plans from YAML: replace variables, apply ``--set``, and check them.

Plans follow the rules of YAML 1.2: ``on`` is a string, not a boolean, and ``1:4`` is not a number.
"""

import dataclasses
import importlib.resources
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from oslo_utils import units

from trove_ceph import exceptions, schema_problems, yaml_file
from trove_ceph.schema_problems import ValuePath
from trove_ceph.yaml_file import Problem
from trove_ceph_bench import (
    command_environment,
    dataset,
    model,
    plan,
    plan_schema,
    target_specs,
    workloads,
)

_SHIPPED = importlib.resources.files('trove_ceph_bench') / 'plans'
_VARIABLE = re.compile(r'\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}')
#: The shell replaces the variables in the values of these keys.
_COMMANDS = frozenset(('command', 'prepare', 'run', 'check', 'cleanup', *plan.COSTS))
#: The rest of a volume is for redo log, binary logs, undo and the growth of indexes.
_DATA_SHARE = 0.9


def shipped() -> dict[str, str]:
    """Return names and descriptions of the plans that the package ships."""
    found = {}
    for entry in sorted(_SHIPPED.iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith('.yaml'):
            content = yaml_file.read_value(entry.read_text(encoding='utf-8'))
            found[entry.name.removesuffix('.yaml')] = content.get('description', '')
    return found


def load(
    source: str, environment: Mapping[str, str], settings: Sequence[str] = ()
) -> plan.LoadPlan | plan.OperationsPlan:
    """Read a plan and check it.

    :param source: path of a file, or name of a plan that the package ships
    :param environment: values of ``${NAME}``; the shell replaces those in commands
    :param settings: ``key=value``, each replaces a value of the plan; the key may be a path such
        as ``variants.0.name``, the value is YAML
    :raises InvalidPlanError: the plan does not exist, cannot be read or is invalid
    """
    text = _read(source)
    try:
        root: Any = yaml_file.compose(text)
        if root is None:
            raise exceptions.InvalidPlanError(
                f'{source}: not a plan: expected keys such as name and variants; '
                f'"trove-ceph-bench run --help" shows an example'
            )
        content = yaml_file.construct(root)
        for setting in settings:
            _apply(content, setting)
        if settings:
            note = f'# {source} with: {" ".join(settings)}\n'
            text = note + yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
        checked = _checked(_with_variables(content, environment), text)
        if used := _variables_of_commands(checked):
            found = command_environment.values(used, environment)
            return dataclasses.replace(checked, environment=found)
        return checked
    except yaml.YAMLError as error:
        raise exceptions.InvalidPlanError(
            f'{source}: invalid YAML: {" ".join(str(error).split())}'
        ) from error
    except Problem as problem:
        raise exceptions.InvalidPlanError(
            f'{source}, {yaml_file.location_text(root, problem.path)}: {problem}'
        ) from problem


def _read(source: str) -> str:
    path = Path(source)
    entry = _SHIPPED / f'{source}.yaml'
    try:
        # A results folder may have the same name as its plan.
        if not path.is_file() and '/' not in source and entry.is_file():
            return entry.read_text(encoding='utf-8')
        return path.read_text(encoding='utf-8')
    except FileNotFoundError as error:
        raise exceptions.InvalidPlanError(
            f'{source}: no such file, and the package ships no plan of this name; '
            f'it ships {", ".join(shipped())}'
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise exceptions.InvalidPlanError(f'{source}: cannot read the plan: {error}') from error


def _apply(content: dict[str, Any], setting: str) -> None:
    """Replace one value of a plan, given as ``key=value``."""
    key, separator, value = setting.partition('=')
    if not separator or not key:
        raise exceptions.InvalidPlanError(f'--set {setting}: expected key=value')
    *parents, last = key.split('.')
    try:
        holder: Any = content
        for step in parents:
            holder = holder[int(step) if isinstance(holder, list) else step]
        holder[int(last) if isinstance(holder, list) else last] = yaml_file.Loader(
            value
        ).get_single_data()
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise exceptions.InvalidPlanError(
            f'--set {setting}: the plan has no {key}; use a path such as variants.0.name'
        ) from error
    except yaml.YAMLError as error:
        raise exceptions.InvalidPlanError(f'--set {setting}: the value is invalid YAML') from error


def _with_variables(value: Any, environment: Mapping[str, str], path: ValuePath = ()) -> Any:
    """Replace ``${NAME}`` and ``${NAME:-default}`` in a plan, except in commands."""
    if isinstance(value, dict):
        return {
            key: each if key in _COMMANDS else _with_variables(each, environment, (*path, key))
            for key, each in value.items()
        }
    if isinstance(value, list):
        return [_with_variables(each, environment, (*path, i)) for i, each in enumerate(value)]
    if not isinstance(value, str):
        return value

    def replacement(match: re.Match[str]) -> str:
        name, default = match.groups()
        if environment.get(name) or (name in environment and default is None):
            return environment[name]
        if default is None:
            raise Problem(path, f'the environment variable {name} is not set; export {name}=…')
        return default

    return _VARIABLE.sub(replacement, value)


def _variables_of_commands(loaded: plan.LoadPlan | plan.OperationsPlan) -> set[str]:
    """Return the variables of which commands use the values from outside the plan."""
    names = command_environment.names
    if isinstance(loaded, plan.LoadPlan):
        events = names(event.command for event in loaded.events) - command_environment.OF_TARGET
        return events | names([loaded.prepare, *(each.prepare for each in loaded.variants)])
    found = set[str]()
    for each in loaded.contenders:
        commands = (each.prepare, each.run, each.check, each.cleanup, *each.cost.values())
        given = command_environment.OF_TARGET if each.target else frozenset[str]()
        found |= names(commands) - given - command_environment.OF_ATTEMPT
    return found


def _checked(content: dict[str, Any], text: str) -> plan.LoadPlan | plan.OperationsPlan:
    is_operations = 'operations' in content
    schema = plan_schema.operations_plan() if is_operations else plan_schema.load_plan()
    for path, what in schema_problems.problems(content, schema):
        raise Problem(path, what)
    return _operations_plan(content, text) if is_operations else _load_plan(content, text)


def _load_plan(content: dict[str, Any], text: str) -> plan.LoadPlan:
    scale = content.get('scale', 1)
    variants = [
        _variant(each, ('variants', i), scale) for i, each in enumerate(content['variants'])
    ]
    names = [variant.name for variant in variants]
    _check_names(names, ('variants',))
    _check_known(content.get('reference', names[0]), names, ('reference',))
    for number, ratio in enumerate(content.get('ratios', ())):
        for end in ('of', 'to'):
            _check_known(ratio[end], names, ('ratios', number, end))
    most = max(len(variant.targets) for variant in variants)
    for number, instances in enumerate(content.get('instances', ())):
        if instances > most:
            raise Problem(
                ('instances', number), f'{instances} is more than any variant has targets ({most})'
            )
    events = tuple(model.Event(**each) for each in content.get('events', ()))
    fields = {
        key: content[key]
        for key in (field.name for field in dataclasses.fields(plan.LoadPlan))
        if key in content
    }
    loaded = plan.LoadPlan(
        **fields
        | {
            'variants': variants,
            'workloads': [workloads.get(name) for name in content['workloads']],
            'reference': content.get('reference', names[0]),
            'events': events,
            'text': text,
        }
    )
    _check_room(loaded)
    for number, event in enumerate(events):
        for index, name in enumerate(event.variants):
            _check_known(name, names, ('events', number, 'variants', index))
        if event.at_sec >= loaded.measure_sec:
            raise Problem(
                ('events', number, 'at_sec'),
                f'{event.at_sec} is after the measured phase, which lasts {loaded.measure_sec} s',
            )
    return loaded


def _variant(content: Mapping[str, Any], path: ValuePath, scale: float) -> plan.Variant:
    if ('target' in content) == ('targets' in content):
        raise Problem(path, "give either 'target', or 'targets' for several instances")
    found = content['targets'] if 'targets' in content else [content['target']]
    if 'count' in content:
        if len(found) != 1 or not any(kind in found[0] for kind in target_specs.MADE):
            raise Problem(
                (*path, 'count'),
                f"needs one 'target' that the plan makes itself: {' or '.join(target_specs.MADE)}",
            )
        found = target_specs.copies(found[0], content['count'])
    return plan.Variant(
        content['name'],
        content['role'],
        tuple(target_specs.scaled(each, scale) for each in found),
        content.get('prepare'),
    )


def _check_room(loaded: plan.LoadPlan) -> None:
    """Refuse a dataset of a fixed size that does not fit a volume that the plan makes."""
    for number, name in enumerate(loaded.datasets):
        full = dataset.size_bytes(name, loaded.tables)
        if full is None:
            continue
        data_gib = full * loaded.scale / units.Gi
        for variant in loaded.variants:
            for size_gib in filter(None, map(target_specs.volume_gib, variant.targets)):
                if data_gib > _DATA_SHARE * size_gib:
                    raise Problem(
                        ('datasets', number),
                        f'{data_gib:.1f} GiB of data do not fit the volumes of {variant.name}, '
                        f'which have {size_gib:g} GiB and need space for logs',
                    )


def _operations_plan(content: dict[str, Any], text: str) -> plan.OperationsPlan:
    operations = content['operations']
    contenders = [plan.Contender(**each) for each in operations['contenders']]
    _check_names(
        [f'{each.name} of {each.operation}' for each in contenders], ('operations', 'contenders')
    )
    loaded = plan.OperationsPlan(
        name=content['name'],
        description=content.get('description', content['name']),
        contenders=contenders,
        text=text,
        **{key: value for key, value in operations.items() if key != 'contenders'},
    )
    for number, contender in enumerate(contenders):
        if loaded.committer and contender.target is None:
            raise Problem(
                ('operations', 'contenders', number),
                "the committer needs a 'target'; give one, or set 'committer: false'",
            )
    return loaded


def _check_names(names: Sequence[str], path: ValuePath) -> None:
    for number, name in enumerate(names):
        if name in names[:number]:
            raise Problem((*path, number), f'the name {name!r} is used twice')


def _check_known(name: str, names: Sequence[str], path: ValuePath) -> None:
    if name not in names:
        raise Problem(path, f'{name!r} is not a variant; choose one of {", ".join(names)}')
