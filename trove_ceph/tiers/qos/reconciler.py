# SPDX-License-Identifier: Apache-2.0
"""Making the limits of images match what their volumes are promised, for one volume or for all.

Nothing is remembered between runs: Cinder says which volumes there are, the tiers file what they
are promised, and Ceph which limits they have. Of a volume that differs all of it is asked again
before anything is done, under a lock, so what was listed before a resize never undoes the resize.
The lock is that of one process: of two that come to the same volume within milliseconds one may set
what was right a moment ago, and the next sweep finds it.
"""

import dataclasses
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from oslo_log import log as logging

from trove_ceph import exceptions, steps
from trove_ceph.storage import backend, image_types
from trove_ceph.tiers import cinder, tier_types
from trove_ceph.tiers.qos import ownership, planning

LOG = logging.getLogger(__name__)

#: In other states a volume may not have its image yet, or not any more.
_HAS_IMAGE = ('available', 'in-use')


def _never() -> bool:
    return False


@dataclasses.dataclass(frozen=True)
class Report:
    """What a look at all volumes found.

    :param volumes: how many lie in the tiers
    :param changes: what differs, or what was done about it
    :param failures: why nothing can be told or done, by the volume's id
    """

    volumes: int
    changes: tuple[planning.Change, ...]
    failures: dict[str, str]

    def as_document(self) -> dict[str, Any]:
        """Return it as JSON takes it."""
        return {
            'volumes': self.volumes,
            'changes': [change.as_document() for change in self.changes],
            'failures': self.failures,
        }


class Reconciler:
    """The limits of all volumes of one Cinder in one Ceph cluster; for several threads.

    :param load: reads the tiers file, anew for each run
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
        self._lock = threading.Lock()

    def plan(self) -> Report:
        """Return what differs, and change nothing.

        :raises InvalidTiersError: the tiers file cannot be used
        :raises ServiceUnavailableError: Cinder does not list its volumes
        :raises CephUnreachableError: Ceph does not answer
        """
        return self._for_all(self._look, _never)

    def sweep(self, stopped: Callable[[], bool] = _never) -> Report:
        """Make the limits of all volumes match, and return what was changed.

        A volume of which it cannot be done is left for the next time. Errors are those of
        :meth:`plan`.

        :param stopped: asked before each volume whether to end early
        """
        began = time.monotonic()
        report = self._for_all(self._keep, stopped)
        for failure in report.failures.values():
            LOG.warning('%s', failure)
        LOG.info(
            'Limits of %d volumes: %d changed, %d failed, in %.1f s',
            *(report.volumes, len(report.changes), len(report.failures)),
            time.monotonic() - began,
        )
        return report

    def keep(self, volume_id: str) -> planning.Change | None:
        """Make the limits of one volume match, and return what was changed.

        A volume that is gone, or lies outside of the tiers, is nobody's concern.

        :raises NotFoundError: it has no image
        :raises TroveCephError: those of :meth:`plan`, and StorageError when Ceph refuses
        """
        return self._keep(self._load(), volume_id)

    def _for_all(
        self,
        treat: Callable[[tier_types.TiersFile, str], planning.Change | None],
        stopped: Callable[[], bool],
    ) -> Report:
        content = self._load()
        listed = [(planning.image_of(content, one), one) for one in self._cinder.volumes()]
        waiting = {image: volume for image, volume in listed if image}
        count = len(waiting)
        differing = []
        for pool in sorted({image.pool for image in waiting}):
            for facts in itertools.takewhile(lambda _: not stopped(), self._images(pool)):
                volume = waiting.pop(facts.image, None)
                if volume and planning.plan(content, volume, facts):
                    differing.append(volume)
        changes: list[planning.Change] = []
        failures: dict[str, str] = {}
        for volume in itertools.takewhile(lambda _: not stopped(), (*differing, *waiting.values())):
            try:
                change = treat(content, volume.id)
            except exceptions.CephUnreachableError:
                raise
            except Exception as error:
                # Whatever is wrong with one volume, the others get what they are promised.
                failures[volume.id] = f'volume {volume.id}: {error}'
                continue
            if change:
                changes.append(change)
        return Report(count, tuple(changes), failures)

    def _images(self, pool: str) -> Iterator[image_types.ImageFacts]:
        """Describe the images of a pool up to one of which it cannot be done.

        The volumes of the others are then looked at one by one.
        """
        try:
            yield from self._storage.describe_pool(pool)
        except exceptions.CephUnreachableError:
            raise
        except Exception as error:
            LOG.warning('Pool %s cannot be described in one sweep: %s', pool, error)

    def _look(self, content: tier_types.TiersFile, volume_id: str) -> planning.Change | None:
        volume = self._cinder.find_volume(volume_id)
        image = planning.image_of(content, volume) if volume else None
        if volume is None or image is None:
            return None
        try:
            facts = self._storage.describe(image)
        except exceptions.NotFoundError:
            if volume.status in _HAS_IMAGE:
                raise
            return None
        return planning.plan(content, volume, facts)

    def _keep(self, content: tier_types.TiersFile, volume_id: str) -> planning.Change | None:
        with self._lock:
            change = self._look(content, volume_id)
            if change:
                steps.run(f'limits of {change}', make_steps(self._storage, change))
            return change


def make_steps(storage: backend.Backend, change: planning.Change) -> list[steps.Step]:
    """Return a change as steps: the mark is there whenever a limit of ours is."""
    entry = change.mark.text() if change.mark else None
    marking = steps.Step(
        'mark the limits' if entry else 'take the mark away',
        lambda: storage.set_image_metadata(change.image, {ownership.KEY: entry}),
        commits=True,
    )
    if not change.limits_differ:
        return [marking]
    limiting = steps.Step(
        'set the limits', lambda: storage.set_qos(change.image, change.after), commits=True
    )
    return [marking, limiting] if entry else [limiting, marking]
