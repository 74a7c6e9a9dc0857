# SPDX-License-Identifier: Apache-2.0
"""The description that `apply` takes: rules, pools and users, read and checked."""

import dataclasses
import json

from cephcluster.errors import UsageError

FAILURE_DOMAINS = ('osd', 'host', 'chassis', 'rack', 'row', 'pdu', 'pod', 'room', 'datacenter')


@dataclasses.dataclass(frozen=True)
class Rule:
    """A replicated CRUSH rule over the OSDs of one device class."""

    name: str
    device_class: str
    failure_domain: str = 'osd'


@dataclasses.dataclass(frozen=True)
class Erasure:
    """An erasure code: k data and m coding chunks by a plugin of Ceph."""

    k: int
    m: int
    plugin: str = 'jerasure'
    technique: str = 'reed_sol_van'


@dataclasses.dataclass(frozen=True)
class Pool:
    """A pool; with an erasure code its rule gives the device class and the failure domain."""

    name: str
    rule: str
    size: int | None = None
    min_size: int | None = None
    pg_num: int = 16
    application: str = 'rbd'
    erasure: Erasure | None = None


@dataclasses.dataclass(frozen=True)
class User:
    """A cephx user and all its capabilities."""

    name: str
    caps: dict[str, str]


@dataclasses.dataclass(frozen=True)
class Spec:
    """Everything that apply makes true."""

    rules: tuple[Rule, ...]
    pools: tuple[Pool, ...]
    users: tuple[User, ...]


def load(path):
    """Read a description from a JSON file.

    :raises UsageError: it cannot be read, or says something impossible.
    """
    try:
        with open(path) as stream:
            document = json.load(stream)
    except (OSError, ValueError) as error:
        raise UsageError(f'cannot read the description {path}: {error}') from error
    return parse(document)


def parse(document):
    """Turn the decoded JSON into a Spec.

    :raises UsageError: a field is unknown, missing, of the wrong type or contradicts another.
    """
    if not isinstance(document, dict):
        raise UsageError('the description must be a JSON object with rules, pools and users')
    if unknown := set(document) - {'rules', 'pools', 'users'}:
        raise UsageError(f'unknown part of the description: {", ".join(sorted(unknown))}')
    rules = tuple(_build(Rule, entry, 'rule') for entry in document.get('rules', []))
    pools = tuple(_pool(entry) for entry in document.get('pools', []))
    users = tuple(_build(User, entry, 'user') for entry in document.get('users', []))
    for kind, entries in (('rule', rules), ('pool', pools), ('user', users)):
        names = [entry.name for entry in entries]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise UsageError(f'{kind} described twice: {", ".join(repeated)}')
    known = {rule.name for rule in rules}
    for rule in rules:
        _check_rule(rule)
    for pool in pools:
        _check_pool(pool, known)
    for user in users:
        _check_user(user)
    return Spec(rules, pools, users)


def _pool(entry):
    if isinstance(entry, dict) and entry.get('erasure') is not None:
        code = _build(Erasure, entry['erasure'], f'erasure of pool {entry.get("name")}')
        entry = entry | {'erasure': code}
    return _build(Pool, entry, 'pool')


def _build(kind, entry, label):
    if not isinstance(entry, dict):
        raise UsageError(f'{label}: expected an object, found {entry!r}')
    fields = {field.name: field for field in dataclasses.fields(kind)}
    if unknown := set(entry) - set(fields):
        raise UsageError(f'{label} {entry.get("name", "")}: unknown {", ".join(sorted(unknown))}')
    for name, field in fields.items():
        required = field.default is dataclasses.MISSING
        if required and name not in entry:
            raise UsageError(f'{label} {entry.get("name", "")}: {name} is missing')
        if name in entry and not _fits(entry[name], field.type):
            raise UsageError(f'{label} {entry.get("name", "")}: {name} cannot be {entry[name]!r}')
    return kind(**entry)


def _fits(value, wanted):
    if isinstance(value, bool):
        return False
    if wanted == dict[str, str]:
        return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())
    return isinstance(value, wanted)


def _check_rule(rule):
    if rule.failure_domain not in FAILURE_DOMAINS:
        raise UsageError(
            f'rule {rule.name}: failure_domain {rule.failure_domain} is none of '
            f'{", ".join(FAILURE_DOMAINS)}'
        )


def _check_pool(pool, rules):
    if pool.rule not in rules:
        raise UsageError(f'pool {pool.name}: rule {pool.rule} is not described')
    if pool.pg_num < 1:
        raise UsageError(f'pool {pool.name}: pg_num is {pool.pg_num}, at least 1 is needed')
    if pool.erasure:
        chunks = pool.erasure.k + pool.erasure.m
        if pool.erasure.k < 2 or pool.erasure.m < 1:
            raise UsageError(f'pool {pool.name}: erasure needs k >= 2 and m >= 1')
        if pool.size not in (None, chunks):
            raise UsageError(f'pool {pool.name}: size is {pool.size}, but k + m is {chunks}')
        lowest, size = pool.erasure.k, chunks
    elif pool.size is None:
        raise UsageError(f'pool {pool.name}: size is missing')
    else:
        lowest, size = 1, pool.size
    if pool.min_size is not None and not lowest <= pool.min_size <= size:
        raise UsageError(
            f'pool {pool.name}: min_size is {pool.min_size}, must be from {lowest} to {size}'
        )


def _check_user(user):
    kind, _, ident = user.name.partition('.')
    if kind != 'client' or not ident:
        raise UsageError(f'user {user.name}: the name must be client.<id>')
    if user.name == 'client.admin':
        raise UsageError('user client.admin belongs to the cluster and cannot be described')
    if unknown := set(user.caps) - {'mon', 'mgr', 'osd', 'mds'}:
        raise UsageError(f'user {user.name}: caps for unknown {", ".join(sorted(unknown))}')
