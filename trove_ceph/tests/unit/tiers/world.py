# SPDX-License-Identifier: Apache-2.0
"""Ceph, Cinder and Trove in memory, and the adapters on them."""

from trove_ceph.tests.unit.tiers import fake_ceph, fake_cloud
from trove_ceph.tiers import apply, ceph, cinder, planning, systems, trove
from trove_ceph.tiers.changes import Risk

EVERYTHING = frozenset(Risk)


class World:
    """State that outlives a run of the command."""

    def __init__(self, **options):
        self.ceph = fake_ceph.FakeCeph(**options)
        self.cinder = fake_cloud.FakeCinder(backends=['fast'])
        self.trove = fake_cloud.FakeTroveManage()

    def systems(self, content):
        """Return the systems of a new process."""
        return systems.Systems(
            content,
            ceph=ceph.Ceph('ceph.conf', 'admin', run=self.ceph),
            cinder=cinder.Cinder(self.cinder.client()),
            trove=trove.Trove('trove-manage', 'trove.conf', run=self.trove),
        )

    def plan(self, content):
        return planning.plan(content, self.systems(content).observe())

    def apply(self, content, accepted=frozenset()):
        """Apply, and return the changes that were made."""
        made = []
        apply.run(content, self.systems(content), accepted, made.append)
        return made

    def changes(self):
        """Return every command and request that changed something."""
        return [*self.ceph.changes, *self.cinder.changes, *self.trove.changes]

    def clear_changes(self):
        for system in (self.ceph, self.cinder, self.trove):
            system.changes.clear()

    def state(self):
        """Return everything that can be changed, for comparison."""
        types = {name: dict(one) for name, one in self.cinder.types.items()}
        qos = {name: dict(one) for name, one in self.cinder.qos.items()}
        associations = {name: sorted(one) for name, one in self.trove.associations.items()}
        return [*self.ceph.state(), types, qos, associations]
