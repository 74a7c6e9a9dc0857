# SPDX-License-Identifier: Apache-2.0
"""What the doctor reads of a healthy cloud, with some facts changed.

Each function returns arguments of :class:`.facts.FakeSources`, unless it says something else.
"""

import dataclasses

from trove_ceph.doctor.golden_facts import ConfiguredVolume, HotGuests, HotPool
from trove_ceph.storage import golden
from trove_ceph.tests.unit.doctor import facts
from trove_ceph.tests.unit.tiers import sample
from trove_ceph.tiers import resources

GOLDEN = golden.GoldenVolume('volumes-fast', '9.7.4', 10)


def cluster(**values):
    return {'cluster': dataclasses.replace(facts.CLUSTER, **values)}


def ceph(**values):
    return {'ceph': dataclasses.replace(facts.cloud().ceph, **values)}


def pool(name, **values):
    pools = facts.cloud().ceph.pools
    return ceph(pools={**pools, name: dataclasses.replace(pools[name], **values)})


def coded(**values):
    profiles = facts.cloud().ceph.profiles
    code = dataclasses.replace(profiles['vault-data'], **values)
    return ceph(profiles={**profiles, 'vault-data': code})


def osds(changed):
    return cluster(osds={**facts.CLUSTER.osds, **changed})


def rule(name, **values):
    """Change the rule of a pool."""
    found = facts.cloud().ceph
    present = found.rules[found.pools[name].rule]
    placement = dataclasses.replace(present.placement, **values)
    return ceph(rules={**found.rules, present.name: resources.Rule(present.name, placement)})


def groups(number, **policy):
    """Return OSDs of the class nvme with some placement groups, of which a tier has a share."""
    content = sample.read({'tiers/fast/placement_groups': policy})
    numbers = [osd.number for osd in facts.cloud().ceph.osds if osd.device_class == 'nvme']
    return {'tiers': content, **osds(dict.fromkeys(numbers, facts.osd(0.1, number)))}


def used(name, fill):
    usage = facts.cloud().ceph.usage
    return ceph(usage={**usage, name: dataclasses.replace(usage[name], fill=fill)})


def caps(name, **services):
    users = dict(facts.cloud().ceph.users)
    users[name] = dataclasses.replace(users[name], caps={**users[name].caps, **services})
    return ceph(users=users)


def backend(**values):
    cinder = facts.cloud().cinder
    (found,) = cinder.rbd_backends
    changed = dataclasses.replace(found, **values)
    return {'cinder': dataclasses.replace(cinder, rbd_backends=(changed,))}


def service(**values):
    return {'services': (dataclasses.replace(facts.SERVICE, **values),)}


def records(**values):
    return {'records': facts.records(**values)}


def backups(*found):
    return records(backups=found)


def last_backups(*found):
    """Return backups that were taken so many hours ago, with other values."""
    return backups(*(facts.backup(hours, **values) for hours, values in found))


def golden_volumes(state):
    return {'golden_volumes': (ConfiguredVolume(GOLDEN, state),)}


def hot_guests(state=golden.State.READY, version='9.7.4', **values):
    source = ConfiguredVolume(GOLDEN, state) if version == GOLDEN.version else None
    pool = HotPool('mysql/9.7.4:small', version, source)
    found = HotGuests(volume_type='fast', tier='fast', pools=(pool,))
    return {'hot_guests': dataclasses.replace(found, **values)}


def cloned_volumes(*depths, why_waiting=None):
    return {'cloned_volumes': tuple(facts.cloned_volume(one, why_waiting) for one in depths)}


def limits(**values):
    """Return the limits of records."""
    return dataclasses.replace(facts.RECORDS.limits, **values)
