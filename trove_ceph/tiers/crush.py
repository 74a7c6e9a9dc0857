# SPDX-License-Identifier: Apache-2.0
"""Parsing of Ceph's CRUSH map: the location of OSDs and the placement of rules."""

from collections.abc import Iterable, Mapping
from typing import Any

from trove_ceph.tiers.resources import Osd, Placement


def read_osds(nodes: Iterable[Mapping[str, Any]]) -> tuple[Osd, ...]:
    """Return the OSDs in the nodes of ``ceph osd tree``."""
    by_id = {node['id']: node for node in nodes}
    parents = {child: node for node in by_id.values() for child in node.get('children', ())}
    return tuple(
        Osd(
            number=node['id'],
            device_class=node.get('device_class'),
            up=node['status'] == 'up',
            serves=node['reweight'] > 0 and node['crush_weight'] > 0,
            buckets=_buckets(node, parents),
        )
        for node in sorted(by_id.values(), key=lambda node: node['id'])
        if node['type'] == 'osd'
    )


def _buckets(node: Mapping[str, Any], parents: Mapping[int, Mapping[str, Any]]) -> dict[str, str]:
    found = {}
    parent = parents.get(node['id'])
    while parent is not None:
        found[parent['type']] = parent['name']
        parent = parents.get(parent['id'])
    return found


def read_placement(rule: Mapping[str, Any]) -> Placement | None:
    """Return the placement of a rule of ``ceph osd crush rule dump``.

    The device class is part of the name of the rule's root: ``default~nvme``.

    :returns: None: the rule consists of more than one choice
    """
    steps = [step for step in rule['steps'] if not step['op'].startswith('set_')]
    if [step['op'].partition('_')[0] for step in steps] not in (
        ['take', 'choose', 'emit'],
        ['take', 'chooseleaf', 'emit'],
    ):
        return None
    take, choose, _ = steps
    if choose['op'].startswith('choose_') and choose['type'] != 'osd':
        return None
    if choose['num'] != 0:
        return None
    root, _, device_class = take['item_name'].partition('~')
    return Placement(root, device_class or None, choose['type'])
