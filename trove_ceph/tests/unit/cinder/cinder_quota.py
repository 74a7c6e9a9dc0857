# SPDX-License-Identifier: Apache-2.0
"""The quota of projects in Cinder: what they may use, and what Cinder believes that they use."""

from trove_ceph.tests.unit.cinder import cinder_http


class Quota:
    """The quota of all projects.

    :ivar limits: by project and name, such as ``gigabytes`` or ``gigabytes_nvme``; none: no limit
    :ivar usage: likewise
    """

    def __init__(self):
        self.limits, self.usage = {}, {}

    def counted(self):
        """Return the usage that the quota shows, without zeros."""
        return {entry: amount for entry, amount in self.usage.items() if amount}

    def reserve(self, project, volume_type, **amounts):
        for name, amount in amounts.items():
            for key in (name, f'{name}_{volume_type}'):
                limit = self.limits.get((project, key), -1)
                if 0 <= limit < self.usage.get((project, key), 0) + amount:
                    raise cinder_http.Refused(413, f'Quota exceeded for {key}')
        self.count(project, volume_type, **amounts)

    def count(self, project, volume_type, **amounts):
        for name, amount in amounts.items():
            for key in (name, f'{name}_{volume_type}'):
                self.usage[project, key] = self.usage.get((project, key), 0) + amount

    def shown(self, project, volume_types):
        """Return the quota of a project, as Cinder shows it."""
        names = ['volumes', 'snapshots', 'gigabytes', 'per_volume_gigabytes']
        names += [f'{name}_{each}' for name in names[:3] for each in volume_types]
        return {
            name: {
                'limit': self.limits.get((project, name), -1),
                'in_use': self.usage.get((project, name), 0),
                'reserved': 0,
            }
            for name in names
        }
