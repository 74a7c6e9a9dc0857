# SPDX-License-Identifier: Apache-2.0
"""A fleet file for the tests, and variations of it."""

import copy

from trove_ceph.sizing import fleet_file, plan

CONTENT = {
    'databases': [{'name': 'shop', 'instances': 100, 'size': '100GiB', 'iops_per_gib': 3}],
    'growth_percent': 0,
    'years': 1,
    'cluster': {'device': {'class': 'nvme', 'size': '3.84TB'}},
}
#: The eight servers with one NVMe each of the SYS-5038MR-OSD006P (Red Hat 2016, "Supermicro storage
#: servers").
OF_RED_HAT = {
    'databases/0': {'instances': 10, 'size': '200GB', 'iops': 3000},
    'cluster': {
        'device': {'class': 'nvme', 'size': '800GB'},
        'copies': 2,
        'nodes': 8,
        'devices_per_node': 1,
        'pilot': True,
    },
}


def changed(changes=()):
    """Return the content with values replaced by their paths; None removes a key."""
    content = copy.deepcopy(CONTENT)
    for path, value in dict(changes).items():
        *parents, last = (int(step) if step.isdecimal() else step for step in path.split('/'))
        holder = content
        for step in parents:
            holder = holder[step] if isinstance(holder, list) else holder.setdefault(step, {})
        if value is None:
            del holder[last]
        else:
            holder[last] = copy.deepcopy(value)
    return content


def request(changes=()):
    """Return what a file with replaced values describes."""
    return fleet_file.parse(changed(changes))


def cluster(changes=()):
    """Return the cluster for it."""
    return plan.make(request(changes))


def decision(planned, name):
    """Return a decision by its name."""
    [found] = [one for one in planned.decisions if one.name == name]
    return found
