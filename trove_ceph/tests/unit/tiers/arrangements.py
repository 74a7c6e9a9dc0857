# SPDX-License-Identifier: Apache-2.0
"""Functions that change the fake systems before a plan is made."""


def pool(name, **values):
    def arrange(fakes):
        fakes.ceph.pools[name] |= values

    return arrange


def options(name, **values):
    def arrange(fakes):
        fakes.ceph.pools[name]['options'] |= values

    return arrange


def volume_type(**values):
    def arrange(fakes):
        fakes.cinder.types['id-of-fast'] |= values

    return arrange


def user_has(**caps):
    def arrange(fakes):
        fakes.ceph.users['client.glance'] |= caps

    return arrange


def without(kind, name):
    def arrange(fakes):
        del getattr(fakes.ceph, kind)[name]

    return arrange


def associated(*names):
    def arrange(fakes):
        fakes.trove.associations['mysql/9.7.4'] = set(names)

    return arrange


def qos(**values):
    def arrange(fakes):
        fakes.cinder.qos['id-of-fast'] |= values

    return arrange


def rule(domain):
    """Place the pool of images on hdd with another failure domain."""

    def arrange(fakes):
        fakes.ceph._create_rule(['other', 'default', domain, 'hdd'])
        fakes.ceph.pools['images']['crush_rule'] = len(fakes.ceph.rules) - 1

    return arrange
