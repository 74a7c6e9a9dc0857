# SPDX-License-Identifier: Apache-2.0
"""Find and describe the RBD image below an existing server."""

from collections.abc import Mapping
from typing import Any

from trove_ceph import exceptions
from trove_ceph_bench import ceph_facts, model
from trove_ceph_bench.targets import specification


def image(spec: Mapping[str, Any], volume_id: str | None = None) -> model.Image | None:
    """Return the image that a plan names, or the image of a Cinder volume; None if unknown.

    :param spec: specification of a target, with the optional keys ``image`` and ``ceph``
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
    """Return Ceph's facts of an image, or the error that prevents it."""
    if found is None:
        return None
    try:
        return ceph_facts.CephFacts(found.conf, found.user).describe(found)
    except exceptions.StorageCommandError as error:
        return {'image': f'{found.pool}/{found.name}', 'unknown': str(error)}
