# SPDX-License-Identifier: Apache-2.0
"""Create the volume of a new instance from a golden volume.

These are the steps of a restore, and so are the traces that an interruption leaves. The clone is
marked to be flattened: it reads little from its parent, and must not depend on it for long.
"""

import contextlib
import dataclasses
from collections.abc import Iterable

from trove_ceph import exceptions, steps
from trove_ceph.cinder import checks
from trove_ceph.cinder import resources as cinder_resources
from trove_ceph.storage import golden
from trove_ceph.strategies.backup.dependencies import BackupDependencies
from trove_ceph.strategies.restore import cloned_volume


@dataclasses.dataclass(frozen=True)
class GoldenRequest:
    """A request for the volume of a new instance.

    :param version: of MySQL
    :param volume_type: the name of the volume type, which determines the tier
    """

    instance_id: str
    version: str
    volume_type: str
    size_gib: int

    def __str__(self) -> str:
        return f'volume of instance {self.instance_id} from a golden volume'


@dataclasses.dataclass(frozen=True)
class GoldenSource:
    """A golden volume that is ready, and the Cinder back end of its pool."""

    volume: golden.GoldenVolume
    backend: cinder_resources.StorageBackend


def find_source(
    deps: BackupDependencies, request: GoldenRequest, sizes_gib: Iterable[int]
) -> GoldenSource | None:
    """Return the golden volume that fits a request best; None: none that fits is ready.

    :param sizes_gib: the sizes of golden volumes
    :raises NotAdoptableError: no back end of the volume type is up
    """
    fitting = golden.fitting_sizes(sizes_gib, request.size_gib)
    if not fitting or not golden.is_exact(request.version):
        return None
    backends = checks.find_backends(deps.cinder, str(request), request.volume_type)
    for size_gib in fitting:
        for backend in backends:
            volume = golden.GoldenVolume(backend.pool, request.version, size_gib)
            if _is_ready(deps, volume):
                return GoldenSource(volume, backend)
    return None


def _is_ready(deps: BackupDependencies, volume: golden.GoldenVolume) -> bool:
    # The service refuses pools of no tier.
    with contextlib.suppress(exceptions.NotFoundError, exceptions.InvalidRequestError):
        facts = deps.storage.describe(volume.image)
        return golden.state_of(facts) is golden.State.READY
    return False


def clone_volume(deps: BackupDependencies, request: GoldenRequest, source: GoldenSource) -> None:
    """Create the volume and assign it to the instance.

    :raises TroveCephError: the volume could not be created; nothing is left of it
    """
    steps.run(str(request), GoldenClone(deps, request, source).steps())


class GoldenClone:
    """One volume that is being created from a golden volume."""

    def __init__(self, deps: BackupDependencies, request: GoldenRequest, source: GoldenSource):
        self._request = request
        self._volume = cloned_volume.ClonedVolume(
            deps,
            cloned_volume.CloneRequest(
                'restore',
                request.instance_id,
                request.instance_id,
                source.volume.snapshot(golden.State.READY),
                source.backend,
                request.volume_type,
                {cinder_resources.DEPENDENT_KEY: cinder_resources.TO_FLATTEN},
            ),
        )

    def steps(self) -> list[steps.Step]:
        """Return the steps."""
        return self._volume.steps_for_instance(self._request.size_gib)
