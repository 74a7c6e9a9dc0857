# SPDX-License-Identifier: Apache-2.0
"""Reconciliation of the limits of images with those promised to their volumes.

No state is kept between runs: Cinder lists the volumes, the tiers file has the promised limits, and
Ceph the present ones. Before a change, all of these are read again under a lock of the volume, so a
list from before a resize never undoes the limits of the resize. The lock is local to one process.
If two processes change the same volume within milliseconds, one of them may set outdated limits,
which the next sweep corrects.
"""

import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from oslo_concurrency import lockutils
from oslo_log import log as logging

from trove_ceph import exceptions, steps
from trove_ceph.storage import backend, image_types
from trove_ceph.tiers import cinder, resources, tier_types
from trove_ceph.tiers.qos import ownership, planning

LOG = logging.getLogger(__name__)

#: A volume in another status may have no image.
_HAS_IMAGE = ('available', 'in-use')


def _never() -> bool:
    return False


@dataclasses.dataclass(frozen=True)
class Report:
    """The result of a run over all volumes.

    :param volumes: number of volumes in the tiers
    :param changes: changes that are planned or made
    :param failures: errors by volume id
    """

    volumes: int
    changes: tuple[planning.Change, ...]
    failures: dict[str, str]

    def as_document(self) -> dict[str, Any]:
        """Return a value for JSON."""
        return {
            'volumes': self.volumes,
            'changes': [change.as_document() for change in self.changes],
            'failures': self.failures,
        }


class Reconciler:
    """The limits of all volumes of one Cinder in one Ceph cluster; safe for several threads.

    :param load: reads the tiers file; called in each run
    """

    def __init__(
        self,
        load: Callable[[], tier_types.TiersFile],
        cinder: cinder.Cinder,
        storage: backend.Backend,
    ):
        self._load = load
        self._cinder = cinder
        self._storage = storage

    def plan(self) -> Report:
        """Return what differs; change nothing.

        :raises InvalidTiersError: the tiers file is invalid
        :raises ServiceUnavailableError: Cinder does not list its volumes
        :raises CephUnreachableError: no pool with such volumes answers; if only some do not, their
            volumes are failures
        """
        return self._for_all(self._plan_volume, _never)

    def sweep(self, stopped: Callable[[], bool] = _never) -> Report:
        """Set the limits of all volumes, and return what was changed.

        A volume whose limits cannot be set is left to the next sweep. Errors are those of
        :meth:`plan`.

        :param stopped: called before each volume; True ends the sweep early
        """
        began = time.monotonic()
        report = self._for_all(self._set_limits, stopped)
        for failure in report.failures.values():
            LOG.warning('%s', failure)
        LOG.info(
            'Limits of %d volumes: %d changed, %d failed, in %.1f s',
            *(report.volumes, len(report.changes), len(report.failures)),
            time.monotonic() - began,
        )
        return report

    def set_limits(self, volume_id: str) -> planning.Change | None:
        """Set the limits of one volume, and return what was changed.

        A volume that is gone or outside of the tiers is ignored.

        :raises NotFoundError: the volume has no image
        :raises TroveCephError: as in :meth:`plan`, and StorageError when Ceph refuses
        """
        return self._set_limits(self._load(), volume_id)

    def _for_all(
        self,
        action: Callable[[tier_types.TiersFile, str], planning.Change | None],
        stopped: Callable[[], bool],
    ) -> Report:
        content = self._load()
        listed = [(planning.image_of(content, one), one) for one in self._cinder.volumes()]
        volumes = {image: volume for image, volume in listed if image}
        silent: dict[str, exceptions.CephUnreachableError] = {}
        changes: list[planning.Change] = []
        failures: dict[str, str] = {}
        to_inspect = self._to_inspect(content, volumes, silent, stopped)
        for image, volume in itertools.takewhile(lambda _: not stopped(), to_inspect.items()):
            error: Exception | None = silent.get(image.pool)
            try:
                change = None if error else action(content, volume.id)
                changes += [change] if change else []
            except exceptions.CephUnreachableError as raised:
                error = silent[image.pool] = raised
            except Exception as raised:
                # A failure of one volume must not affect the others.
                error = raised
            if error:
                failures[volume.id] = f'volume {volume.id}: {error}'
        if silent and silent.keys() == {image.pool for image in volumes}:
            raise next(iter(silent.values()))
        return Report(len(volumes), tuple(changes), failures)

    def _to_inspect(
        self,
        content: tier_types.TiersFile,
        volumes: Mapping[image_types.ImageRef, resources.VolumeOfTier],
        silent: dict[str, exceptions.CephUnreachableError],
        stopped: Callable[[], bool],
    ) -> dict[image_types.ImageRef, resources.VolumeOfTier]:
        """Return the volumes that differ, then those whose images were not seen.

        :param silent: gets the pools that do not answer
        """
        unseen = dict(volumes)
        differing = {}
        for pool in sorted({image.pool for image in volumes}):
            for facts in itertools.takewhile(lambda _: not stopped(), self._images(pool, silent)):
                volume = unseen.pop(facts.image, None)
                if volume and planning.plan(content, volume, facts):
                    differing[facts.image] = volume
        return differing | unseen

    def _images(
        self, pool: str, silent: dict[str, exceptions.CephUnreachableError]
    ) -> Iterator[image_types.ImageFacts]:
        """Describe the images of a pool until one fails.

        The caller then inspects the remaining volumes one by one, unless the pool is silent: each
        request would wait until the client's time limit.
        """
        try:
            yield from self._storage.describe_pool(pool)
        except exceptions.CephUnreachableError as error:
            silent[pool] = error
        except Exception as error:
            LOG.warning('Pool %s cannot be described in one sweep: %s', pool, error)

    def _plan_volume(self, content: tier_types.TiersFile, volume_id: str) -> planning.Change | None:
        volume = self._cinder.find_volume(volume_id)
        image = planning.image_of(content, volume) if volume else None
        if volume is None or image is None:
            return None
        try:
            facts = self._storage.describe(image, with_usage=False)
        except exceptions.NotFoundError:
            if volume.status in _HAS_IMAGE:
                raise
            return None
        return planning.plan(content, volume, facts)

    def _set_limits(self, content: tier_types.TiersFile, volume_id: str) -> planning.Change | None:
        with lockutils.lock(f'limits of {volume_id}'):
            change = self._plan_volume(content, volume_id)
            if change:
                steps.run(f'limits of {change}', make_steps(self._storage, change))
            return change


def make_steps(storage: backend.Backend, change: planning.Change) -> list[steps.Step]:
    """Return a change as steps: the ownership entry exists whenever a limit of ours does."""
    entry = change.owner.text() if change.owner else None
    marking = steps.Step(
        'record the ownership' if entry else 'remove the ownership',
        lambda: storage.set_image_metadata(change.image, {ownership.KEY: entry}),
        commits=True,
    )
    if not change.limits_differ:
        return [marking]
    limiting = steps.Step(
        'set the limits', lambda: storage.set_qos(change.image, change.after), commits=True
    )
    return [marking, limiting] if entry else [limiting, marking]
