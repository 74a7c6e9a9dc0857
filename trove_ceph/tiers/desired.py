# SPDX-License-Identifier: Apache-2.0
"""The resources that should exist, derived from the tiers by a pure function.

Cinder's manager computes front-end limits when a volume is attached
(``_parse_connection_options`` in cinder/volume/manager.py): ``total_iops_sec_per_gb`` times the
size, at least ``…_per_gb_min`` and at most ``total_iops_sec_max``, which it removes before the
hypervisor sees it. The RBD driver interprets the last key as a burst of *bytes*, so such specs must
never reach the back end: their consumer is ``front-end``, which the driver skips.
"""

import dataclasses
from collections.abc import Mapping

from oslo_utils import units

from trove_ceph.tiers import caps, placement_groups, resources, tier_types
from trove_ceph.tiers.resources import Placement
from trove_ceph.tiers.tier_types import TierLimits

_FRONT_END = 'front-end'
_KEYS = {
    *('total_iops_sec_per_gb', 'total_iops_sec_per_gb_min', 'total_iops_sec_max'),
    'total_bytes_sec',
}


def derive(content: tier_types.TiersFile, ceph: resources.CephState | None) -> resources.Desired:
    """Return the desired state.

    :param ceph: the observed state of Ceph, on which the numbers of placement groups depend; None:
        derive nothing for Ceph
    """
    tiers = content.tiers.values()
    pools = [pool for tier in tiers for pool in _pools(tier, ceph)] if ceph else []
    rules = {rule.name: rule for tier in tiers for rule in _rules(tier)} if ceph else {}
    users = content.users.values() if ceph else ()
    return resources.Desired(
        profiles=tuple(_profile(tier) for tier in tiers if tier.erasure and ceph),
        rules=tuple(rules.values()),
        pools=tuple(pools),
        users=tuple(
            resources.User(user.name, caps.derive(user, content.tiers), user.exclusive)
            for user in users
        ),
        qos=tuple(_qos(tier) for tier in tiers if tier.qos is TierLimits.FRONT_END),
        types=tuple(_volume_type(tier) for tier in tiers if tier.volume_type),
        associations=_associations(content.tiers),
    )


def is_derived_here(specs: resources.QosSpecs) -> bool:
    """Return whether QoS specs have the form of those derived here."""
    return specs.consumer == _FRONT_END and specs.specs.keys() <= _KEYS


def placement(tier: tier_types.Tier) -> Placement:
    """Return the placement of a tier's data."""
    return Placement(tier.crush_root, tier.device_class, tier.failure_domain)


def metadata_placement(tier: tier_types.Tier) -> Placement:
    """Return the placement of the replicated pool beside an erasure-coded one."""
    assert tier.erasure
    return Placement(tier.crush_root, tier.erasure.metadata_device_class, tier.failure_domain)


def rule_name(target: Placement) -> str:
    """Return the name of the replicated rule for a placement."""
    prefix = '' if target.root == 'default' else f'{target.root}-'
    return f'{prefix}{target.device_class or "all"}-{target.failure_domain}'


def _rules(tier: tier_types.Tier) -> list[resources.Rule]:
    if tier.erasure is None:
        target = placement(tier)
        return [resources.Rule(rule_name(target), target)]
    coded, replicated = placement(tier), metadata_placement(tier)
    name = tier.erasure.pool
    return [
        resources.Rule(name, coded, profile=name),
        resources.Rule(rule_name(replicated), replicated),
    ]


def _profile(tier: tier_types.Tier) -> resources.Profile:
    code = tier.erasure
    assert code
    return resources.Profile(
        code.pool, code.k, code.m, code.plugin, code.technique, placement(tier)
    )


def _pools(tier: tier_types.Tier, ceph: resources.CephState) -> list[resources.Pool]:
    """Return the pools of a tier, the data pool first."""
    if tier.erasure is None:
        rule = rule_name(placement(tier))
        return [_data_pool(tier, ceph, tier.pool, rule, tier.copies, tier.min_size)]
    code = tier.erasure
    data = _data_pool(tier, ceph, code.pool, code.pool, code.chunks, code.min_size)
    metadata = resources.Pool(
        name=tier.pool,
        rule=rule_name(metadata_placement(tier)),
        size=tier.copies,
        min_size=tier.min_size,
        pg_num=None if tier.placement_groups.keep else code.metadata_pg_num,
        autoscale='on' if tier.placement_groups.keep else 'off',
        data_pool=code.pool,
        keeps_groups=tier.placement_groups.keep,
    )
    return [dataclasses.replace(data, profile=code.pool, overwrites=True), metadata]


def _data_pool(
    tier: tier_types.Tier, ceph: resources.CephState, name: str, rule: str, size: int, min_size: int
) -> resources.Pool:
    policy = tier.placement_groups
    present = ceph.pools[name].pg_num if name in ceph.pools else None
    osds = len(ceph.serving(placement(tier)))
    mode = tier.compression_mode
    return resources.Pool(
        name=name,
        rule=rule,
        size=size,
        min_size=min_size,
        pg_num=placement_groups.choose_pg_num(policy, osds, size, present),
        autoscale='on' if policy.autoscale or policy.keep else 'off',
        target_size_ratio=policy.autoscale or 0.0,
        compression_mode=mode,
        compression_algorithm=None if mode == 'none' else tier.compression_algorithm,
        keeps_groups=policy.keep,
    )


def _qos(tier: tier_types.Tier) -> resources.QosSpecs:
    assert tier.volume_type
    specs = {}
    if tier.iops:
        specs = {
            'total_iops_sec_per_gb': str(int(tier.iops.iops_per_gib)),
            'total_iops_sec_per_gb_min': str(tier.iops.iops_floor),
            'total_iops_sec_max': str(tier.iops.iops_cap),
        }
    if tier.throughput_mib_per_sec:
        specs['total_bytes_sec'] = str(tier.throughput_mib_per_sec * units.Mi)
    return resources.QosSpecs(tier.volume_type.name, _FRONT_END, specs)


def _volume_type(tier: tier_types.Tier) -> resources.VolumeType:
    given = tier.volume_type
    assert given
    return resources.VolumeType(
        name=given.name,
        backend=given.backend if given.names_backend else None,
        description=given.description,
        public=given.public,
        qos=given.name if tier.qos is TierLimits.FRONT_END else None,
        keeps_backend=not given.names_backend,
        keeps_qos=tier.qos is TierLimits.KEEP,
    )


def _associations(tiers: Mapping[str, tier_types.Tier]) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for tier in tiers.values():
        for version in tier.datastore_versions:
            assert tier.volume_type
            found[version] = found.get(version, frozenset()) | {tier.volume_type.name}
    return found
