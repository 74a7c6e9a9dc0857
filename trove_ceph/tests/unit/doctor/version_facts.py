# SPDX-License-Identifier: Apache-2.0
"""Datastore versions with our guest manager and without, and what the doctor makes of them."""

import dataclasses

from trove_ceph.db.policy_record import Scope
from trove_ceph.doctor.cloud_facts import AgentImage
from trove_ceph.doctor.finding import Level
from trove_ceph.tests.unit.doctor import facts
from trove_ceph.tests.unit.doctor.changed_facts import records

OF_VERSION, OF_DATASTORE, OF_TIER = (
    dataclasses.replace(facts.policy(), scope=scope, target=target)
    for scope, target in (
        (Scope.DATASTORE, 'mysql/9.7.4'),
        (Scope.DATASTORE, 'mysql'),
        (Scope.TIER, 'fast'),
    )
)
INACTIVE = {'guest_manager': '', 'replication': '', 'is_active': False}
OUR_IMAGE = AgentImage('i', ('a', 'b', 'x'))


def lost(**values):
    """Return records of an instance whose datastore version has Trove's guest manager again."""
    foreign = {'guest_manager': 'trove.Manager', 'replication': ''}
    fields = {
        'versions': (facts.version(**foreign),),
        'instances': (facts.instance(has_our_guest_agent=False),),
        'policies': (),
        'backups': (),
        'replicas': (),
    } | values
    return records(**fields)


def foreign_version(*images, **values):
    """Return a datastore version with Trove's guest manager, and images of our guest agent."""
    fields = {'guest_manager': 'trove.Manager', 'replication': ''} | values
    return {**lost(versions=(facts.version(**fields),)), 'agent_images': images}


E, W = Level.ERROR, Level.WARNING
#: Each check with facts that break it, and the level and object of the worst finding.
BROKEN = {
    'mysql-versions': [
        (
            records(versions=(facts.version(guest_manager='trove_ceph.other.Manager'),)),
            E,
            'datastore version mysql/9.7.4',
        ),
        *(
            (lost(**proof), E, 'datastore version mysql/9.7.4')
            for proof in (
                {'backups': (facts.backup(),)},
                {'replicas': (facts.replica(1),)},
                {'policies': (facts.policy(),)},
                {'policies': (OF_VERSION,)},
                # New instances are refused, and the present ones are lost nevertheless.
                {'backups': (facts.backup(),), 'versions': (facts.version(**INACTIVE),)},
            )
        ),
        (records(versions=(facts.version(replication=''),)), W, 'datastore version mysql/9.7.4'),
        (records(versions=(facts.version(version='8.0.36'),)), W, 'datastore version mysql/9.7.4'),
    ],
    'guest-images': [
        (foreign_version(OUR_IMAGE, image_id='i'), E, 'datastore version mysql/9.7.4'),
        (foreign_version(OUR_IMAGE, image_tags=('a', 'b')), E, 'datastore version mysql/9.7.4'),
    ],
}
#: What looks like a defect and is none.
WELL = {
    'mysql-versions': [
        # A version of Trove's own, beside ours, in a datastore and on a tier that have policies.
        lost(),
        lost(policies=(OF_DATASTORE, OF_TIER), tiers={facts.INSTANCE: 'fast'}),
        records(versions=(facts.version(**INACTIVE),)),
    ],
    'guest-images': [
        foreign_version(image_id='i'),
        foreign_version(OUR_IMAGE, image_id='other', image_tags=('a',)),
        foreign_version(OUR_IMAGE, image_tags=('a', 'c')),
        foreign_version(OUR_IMAGE),
        # Glance is not asked, since there is no version of another manager, or it is known.
        {'agent_images': ValueError('not asked')},
        {**lost(backups=(facts.backup(),)), 'agent_images': ValueError('not asked')},
    ],
}
