# SPDX-License-Identifier: Apache-2.0
"""Find the instances, except replicas, whose volumes read from other images."""

from collections.abc import Iterator
from typing import Any

from trove_ceph import exceptions
from trove_ceph.doctor.clone_facts import ClonedVolume
from trove_ceph.strategies.backup.dependencies import BackupDependencies
from trove_ceph.strategies.restore import flatten
from trove_ceph.taskmanager import factory
from trove_ceph.trove_adapter import trove_db


def read(conf: Any) -> tuple[ClonedVolume, ...]:
    """Return the volumes; those of replicas are in their records.

    :param conf: the configuration of trove-taskmanager
    :raises TroveCephError: Cinder or the storage service does not answer
    """
    deps = factory.make_dependencies(conf, context=None)
    try:
        return tuple(_find(deps))
    finally:
        # The doctor may watch, and reads them again and again.
        deps.storage.close()


def _find(deps: BackupDependencies) -> Iterator[ClonedVolume]:
    volumes = {
        one.id: one for one in deps.cinder.list_own_volumes() if one.may_be_clone and one.has_image
    }
    for instance in trove_db.TroveDatabase().list_instances():
        volume = volumes.get(instance.volume_id or '')
        if volume is None or instance.source_id is not None or instance.is_deleting:
            continue
        image = deps.find_image(volume)
        if image is None:
            continue
        try:
            facts = deps.storage.describe(image)
            why_waiting = flatten.why_waiting(deps, volume, facts) if facts.parent else None
        except exceptions.NotFoundError:
            # It was deleted meanwhile.
            continue
        if facts.clone_depth:
            yield ClonedVolume(instance.id, image, facts.clone_depth, why_waiting)
