# SPDX-License-Identifier: Apache-2.0
"""``trove-ceph-manage tiers import``: write a tiers file that describes the existing cloud."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import yaml

from trove_ceph import exceptions, schema_problems
from trove_ceph.tiers import (
    ceph,
    cinder,
    importing,
    planning,
    resources,
    tier_types,
    tiers_file,
    trove,
)
from trove_ceph.tiers.changes import Plan
from trove_ceph.yaml_file import Dumper, Problem

_HEADER = """\
# Storage tiers as found by "trove-ceph-manage tiers import". "trove-ceph-manage tiers plan" shows
# differences between the cloud and this file; there are none until one of them changes. The page
# "The tiers file" of the documentation explains every key.
"""


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of an import.

    :param text: the text of the tiers file
    :param notes: what is left out, and why
    :param plan: the plan for this file; empty if the file describes everything
    """

    text: str
    content: tier_types.TiersFile
    notes: tuple[str, ...]
    plan: Plan


def run(
    cluster: 'ceph.Ceph',
    block_storage: 'cinder.Cinder | None',
    databases: 'trove.Trove | None',
    versions: list[str],
    purposes: Mapping[str, tier_types.Purpose],
) -> Result:
    """Return a tiers file that describes the existing cloud; change nothing.

    :param versions: the datastore versions whose volume types are read from Trove
    :param purposes: given purposes of pools, by pool name
    :raises InvalidTiersError: no pool can be described as a tier
    """
    names = [pool.name for pool in cluster.pools().values() if not pool.profile]
    observed = resources.Observed(
        ceph=cluster.observe(names),
        cinder=block_storage.observe() if block_storage else None,
        trove=databases.observe(versions) if databases else None,
    )
    found = importing.describe(observed, cluster.fsid(), purposes)
    try:
        content = tiers_file.parse(found.content)
    except Problem as problem:
        where = schema_problems.path_text(problem.path)
        raise exceptions.InvalidTiersError(
            f'the existing cloud cannot be described: {where}: {problem}'
        ) from problem
    text = _HEADER + ''.join(f'# Left out: {note}\n' for note in found.notes)
    text += '\n' + yaml.dump(found.content, Dumper=Dumper, sort_keys=False, width=100)
    return Result(text, content, found.notes, planning.plan(content, observed))


def write(path: str, text: str) -> None:
    """Write a new file.

    :raises InvalidTiersError: the file exists or cannot be written
    """
    try:
        with Path(path).open('x', encoding='utf-8') as file:
            file.write(text)
    except OSError as error:
        raise exceptions.InvalidTiersError(
            f'{path}: cannot be written: {error.strerror}'
        ) from error
