# SPDX-License-Identifier: Apache-2.0
"""Ceph, Cinder and Trove together: observed at once, changed one change at a time."""

import dataclasses
from collections.abc import Callable, Mapping

from trove_ceph.tiers import caps, ceph, cinder, desired, resources, tier_types, trove
from trove_ceph.tiers.changes import Change, Kind


class Systems:
    """The systems to observe and change; None: a system that is left out.

    Every method raises StorageCommandError or ServiceUnavailableError when a system refuses or does
    not answer.
    """

    def __init__(
        self,
        content: tier_types.TiersFile,
        ceph: ceph.Ceph | None = None,
        cinder: cinder.Cinder | None = None,
        trove: trove.Trove | None = None,
    ):
        self._content = content
        self._ceph = ceph
        self._cinder = cinder
        self._trove = trove

    def observe(self) -> resources.Observed:
        """Return the present state."""
        return resources.Observed(
            ceph=self._ceph.observe(self._coded_pools()) if self._ceph else None,
            cinder=self._cinder.observe() if self._cinder else None,
            trove=self._trove.observe(self._versions()) if self._trove else None,
        )

    def refresh(self, known: resources.Observed, kind: Kind) -> resources.Observed:
        """Return the known state with one kind of object observed again."""
        if kind.system == 'cinder':
            assert self._cinder and known.cinder
            return dataclasses.replace(known, cinder=self._cinder.observe(known.cinder))
        if kind.system == 'trove':
            assert self._trove
            return dataclasses.replace(known, trove=self._trove.observe(self._versions()))
        assert self._ceph and known.ceph
        if kind is Kind.PROFILE:
            state = dataclasses.replace(known.ceph, profiles=self._ceph.profiles())
        elif kind is Kind.RULE:
            state = dataclasses.replace(known.ceph, rules=self._ceph.rules())
        elif kind is Kind.POOL:
            pools = self._ceph.pools(self._coded_pools())
            state = dataclasses.replace(known.ceph, pools=pools)
        else:
            state = dataclasses.replace(known.ceph, users=self._ceph.users())
        return dataclasses.replace(known, ceph=state)

    def make(self, change: Change, known: resources.Observed) -> None:
        """Make one change; idempotent."""
        target = desired.derive(self._content, known.ceph)
        by_kind: Mapping[Kind, Callable[[], None]] = {
            Kind.PROFILE: lambda: self._ceph_().create_profile(change.after),
            Kind.RULE: lambda: self._ceph_().create_rule(change.after),
            Kind.POOL: lambda: self._change_pool(change, target, known),
            Kind.USER: lambda: self._change_user(change, target),
            Kind.QOS: lambda: self._change_qos(change),
            Kind.TYPE: lambda: self._change_type(change),
            Kind.ASSOCIATION: lambda: self._change_association(change, known),
        }
        by_kind[change.kind]()

    def _change_pool(
        self, change: Change, target: resources.Desired, known: resources.Observed
    ) -> None:
        if change.creates:
            self._ceph_().create_pool(change.after)
            return
        (pool,) = [pool for pool in target.pools if pool.name == change.name]
        if change.attribute == 'size':
            # Raising min_size is a separate change, which may have to wait for the copies.
            assert known.ceph
            min_size = min(pool.min_size, known.ceph.pools[pool.name].min_size)
            self._ceph_().set_size(pool.name, pool.size, min_size)
        else:
            assert change.attribute
            self._ceph_().set_pool(pool.name, change.attribute, change.after, bool(pool.profile))

    def _change_user(self, change: Change, target: resources.Desired) -> None:
        if change.creates:
            self._ceph_().create_user(change.after)
            return
        (user,) = [user for user in target.users if user.name == change.name]
        if not user.exclusive:
            # Caps that were granted after the observation stay as well.
            present = self._ceph_().users()[user.name].caps
            user = dataclasses.replace(user, caps=caps.merged(present, user.caps))
        self._ceph_().set_caps(user)

    def _change_qos(self, change: Change) -> None:
        assert self._cinder
        if change.creates:
            self._cinder.create_qos(change.after)
        elif change.removes:
            self._cinder.remove_qos(change.name)
        else:
            assert change.attribute
            self._cinder.set_qos(change.name, change.attribute, change.after)

    def _change_type(self, change: Change) -> None:
        assert self._cinder
        if change.creates:
            self._cinder.create_type(change.after)
            if change.after.qos:
                self._cinder.set_type(change.name, 'qos', change.after.qos)
        else:
            assert change.attribute
            self._cinder.set_type(change.name, change.attribute, change.after)

    def _change_association(self, change: Change, known: resources.Observed) -> None:
        assert self._trove and known.trove
        names = known.cinder.type_names if known.cinder else {}
        # Remove last: a version without any type would allow every type.
        for name in sorted(change.after - change.before):
            self._trove.associate(change.name, name)
        for stored in sorted(known.trove.associations[change.name] or ()):
            if names.get(stored, stored) not in change.after:
                self._trove.dissociate(change.name, stored)

    def _ceph_(self) -> ceph.Ceph:
        assert self._ceph
        return self._ceph

    def _coded_pools(self) -> list[str]:
        return [tier.pool for tier in self._content.tiers.values() if tier.erasure]

    def _versions(self) -> list[str]:
        tiers = self._content.tiers.values()
        return list(dict.fromkeys(one for tier in tiers for one in tier.datastore_versions))
