# SPDX-License-Identifier: Apache-2.0
"""The RBD image below a server that exists already, as far as a plan or the cloud tells of it."""

from collections.abc import Mapping
from typing import Any

from trove_ceph import exceptions
from trove_ceph_bench import ceph_facts, model
from trove_ceph_bench.targets import specification


def image(spec: Mapping[str, Any], volume_id: str | None = None) -> model.Image | None:
    """Return the image that a plan names, or that holds a Cinder volume where Ceph can be asked.

    :param spec: of a target, with ``image`` and ``ceph`` as they may be
    """
    ceph = spec.get('ceph', {})
    conf = ceph.get('conf', specification.DEFAULT_CEPH_CONF)
    user = ceph.get('user', specification.DEFAULT_CEPH_USER)
    if 'image' in spec:
        pool, _, name = spec['image'].partition('/')
        return model.Image(pool, name, conf, user)
    if volume_id is None:
        return None
    name = f'volume-{volume_id}'
    if 'pool' in ceph:
        return model.Image(ceph['pool'], name, conf, user)
    try:
        pool = ceph_facts.CephFacts(conf, user).find_pool_of(name)
    except exceptions.StorageCommandError:
        return None
    return model.Image(pool, name, conf, user) if pool else None


def disclose(found: model.Image | None) -> dict[str, Any] | None:
    """Return what Ceph tells of an image, or why it tells nothing."""
    if found is None:
        return None
    try:
        return ceph_facts.CephFacts(found.conf, found.user).describe(found)
    except exceptions.StorageCommandError as error:
        return {'image': f'{found.pool}/{found.name}', 'unknown': str(error)}
