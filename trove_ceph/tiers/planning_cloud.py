# SPDX-License-Identifier: Apache-2.0
"""The plan for Cinder (QoS specs, volume types) and Trove (their associations)."""

from collections.abc import Iterator

from trove_ceph.tiers import desired, resources
from trove_ceph.tiers.changes import Change, Finding, Kind, Risk
from trove_ceph.tiers.resources import CinderState, TroveState


def plan_cinder(target: resources.Desired, cinder: CinderState) -> Iterator[Change | Finding]:
    """Yield the changes of QoS specs and volume types, and findings about them."""
    if cinder.backends is None:
        yield Finding("Cinder's scheduler does not answer: back ends were not checked", fatal=False)
    for specs in target.qos:
        yield from _qos(specs, cinder)
    for volume_type in target.types:
        yield from _volume_type(volume_type, cinder)
        if not volume_type.keeps_qos:
            yield from _unused_qos(volume_type, cinder)
        known = volume_type.keeps_backend or cinder.backends is None
        if not known and volume_type.backend not in (cinder.backends or ()):
            yield Finding(
                f'volume type {volume_type.name}: no back end {volume_type.backend} has reported '
                f"to Cinder's scheduler; volumes cannot be created until one does",
                fatal=False,
            )


def _qos(specs: resources.QosSpecs, cinder: CinderState) -> Iterator[Change]:
    found = cinder.qos.get(specs.name)
    if found is None:
        yield Change(Kind.QOS, specs.name, None, None, specs)
        return
    if found.consumer != specs.consumer:
        yield Change(Kind.QOS, specs.name, 'consumer', found.consumer, specs.consumer)
    for key in sorted(found.specs.keys() | specs.specs.keys()):
        before, after = found.specs.get(key), specs.specs.get(key)
        if before != after:
            yield Change(Kind.QOS, specs.name, key, before, after)


def _unused_qos(target: resources.VolumeType, cinder: CinderState) -> Iterator[Change]:
    """Yield the removal of front-end QoS specs that the tier no longer uses.

    Only specs in the form of this package, which no other volume type uses, are removed.
    """
    found = cinder.qos.get(target.name)
    if target.qos or found is None or not desired.is_derived_here(found):
        return
    others = (one for one in cinder.types.values() if one.name != target.name)
    if all(one.qos != found.name for one in others):
        yield Change(Kind.QOS, found.name, None, found, None)


def _volume_type(target: resources.VolumeType, cinder: CinderState) -> Iterator[Change | Finding]:
    found = cinder.types.get(target.name)
    if found is None:
        yield Change(Kind.TYPE, target.name, None, None, target)
        return
    volumes = len(cinder.volumes.get(target.name, ()))
    differs = found.backend != target.backend and not target.keeps_backend
    if differs and volumes:
        yield Finding(
            f'volume type {target.name} is in use by {volumes} volumes with the back end '
            f'{found.backend or "of any name"}, not {target.backend}: name another volume type '
            f'and retype the volumes'
        )
        return
    ignored = {'backend': target.keeps_backend, 'qos': target.keeps_qos}
    for attribute in ('backend', 'description', 'public', 'qos'):
        if ignored.get(attribute):
            continue
        before, after = getattr(found, attribute), getattr(target, attribute)
        if before != after:
            hides = attribute == 'public' and before
            risks = (Risk.REVOKES_ACCESS,) if hides else ()
            yield Change(Kind.TYPE, target.name, attribute, before, after, risks)


def plan_trove(
    target: resources.Desired, trove: TroveState, cinder: CinderState | None
) -> Iterator[Change | Finding]:
    """Yield the changes of datastore versions' volume types; types of no tier stay associated.

    :param cinder: resolves ids of volume types; None: Cinder is not observed
    """
    own = {volume_type.name for volume_type in target.types}
    names = cinder.type_names if cinder else {}
    for version, types in target.associations.items():
        associated = trove.associations[version]
        if associated is None:
            yield Finding(f'datastore version {version} does not exist in Trove')
            continue
        found = frozenset(names.get(each, each) for each in associated)
        after = found - own | types
        if after == found:
            continue
        risks = (Risk.REVOKES_ACCESS,) if found - after else ()
        yield Change(Kind.ASSOCIATION, version, 'volume types', found, after, risks)
        if not found:
            yield Finding(
                f'datastore version {version}: from now on requests must name a volume type, and '
                f'only {", ".join(sorted(types))} will be allowed',
                fatal=False,
            )
