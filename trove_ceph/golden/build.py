# SPDX-License-Identifier: Apache-2.0
"""Build a golden volume: make its content on this host, write it to an image, inspect it.

Everything before the last step is undone after an error. After a kill, the next build removes what
is left. The last step renames the snapshot, which is atomic: creations use a golden volume that is
ready, and no other.
"""

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from oslo_log import log as logging
from oslo_utils import units

from trove_ceph import exceptions, steps
from trove_ceph.golden import disk_file, initialisation
from trove_ceph.host import workspace
from trove_ceph.storage import backend, fencing, golden, image_types, tasks
from trove_ceph.verification import inspection, on_host, report

LOG = logging.getLogger(__name__)

#: The beginning of the names of directories, which must be another one than that of inspections.
PREFIX = 'golden-'
_DISK = 'disk'


class Content(Protocol):
    """Makes the content of a golden volume; see :class:`HostContent`."""

    def clear_killed(self) -> None: ...

    def open(self) -> None: ...

    def initialise(self, version: str, check: Callable[[], None]) -> None: ...

    def format(self, size_bytes: int) -> None: ...

    def write(self, writer: backend.ImageWriter, note: Callable[[int, int], None]) -> int: ...

    def close(self) -> None: ...


class HostContent:
    """The content of one golden volume, in a directory of this host. Needs root, to confine."""

    def __init__(self, settings: report.InspectionSettings):
        self._directory = settings.directory
        self._initialiser = initialisation.Initialiser(settings)
        self._stack = contextlib.ExitStack()
        self._path = Path()
        self._volume = Path()

    def clear_killed(self) -> None:
        """Release the resources of builds on this host whose process was killed.

        :raises NotInspectableError: this process does not run as root
        """
        on_host.clear_killed(self._directory)
        for cleared in workspace.clear_stale(PREFIX, self._directory):
            LOG.warning('Removed %s, which a killed process left', cleared)

    def open(self) -> None:
        """Create the directory."""
        self._path = self._stack.enter_context(workspace.Workspace(PREFIX, self._directory)).path

    def initialise(self, version: str, check: Callable[[], None]) -> None:
        """Initialise the data directory; see :meth:`.initialisation.Initialiser.initialise`."""
        self._volume = self._initialiser.initialise(version, self._path, check)

    def format(self, size_bytes: int) -> None:
        """Make a file with the file system; see :func:`.disk_file.make`."""
        disk_file.make(self._volume, size_bytes, self._path / _DISK)

    def write(self, writer: backend.ImageWriter, note: Callable[[int, int], None]) -> int:
        """Write the file to an image; see :func:`.disk_file.write`."""
        return disk_file.write(self._path / _DISK, writer, note)

    def close(self) -> None:
        """Remove the directory, if there is one."""
        self._stack.close()


class Builder:
    """Builds golden volumes.

    :param inspector: proves that what was built restores
    :param make_content: called once per build
    """

    def __init__(
        self,
        storage: backend.Backend,
        inspector: inspection.Inspector,
        make_content: Callable[[], Content],
    ):
        self._storage = storage
        self._inspector = inspector
        self._make_content = make_content

    def clear_killed(self) -> None:
        """Release the resources of builds on this host whose process was killed."""
        self._make_content().clear_killed()

    def build(
        self,
        work: tasks.GoldenTask,
        options: image_types.ImageOptions,
        cancel: threading.Event | None = None,
        is_allowed: Callable[[], bool] = lambda: True,
        note: inspection.Note = lambda *_: None,
    ) -> None:
        """Build a golden volume, and remove everything else; do nothing if it is ready.

        :param options: options of the image
        :param cancel: once set, the build stops soon
        :param is_allowed: once it returns False, the build changes nothing in Ceph any more
        :raises CanceledError: the build was canceled, or its leases are lost
        :raises BusyError: it is retired and clones still read from it
        :raises NotInspectableError: no server of the version is configured here
        :raises ServerFailedError: the server does not initialise, or not to a sound data directory
        :raises InspectionFaultError: the host, a disk or Ceph failed during the inspection
        """
        build = self.plan(work, options, cancel, is_allowed, note)
        try:
            steps.run(str(work), build.steps(), lambda name, *_: note(name, 0, 0))
        finally:
            build.close()

    def plan(
        self,
        work: tasks.GoldenTask,
        options: image_types.ImageOptions,
        cancel: threading.Event | None = None,
        is_allowed: Callable[[], bool] = lambda: True,
        note: inspection.Note = lambda *_: None,
    ) -> 'Build':
        """Return a build, with the parameters of :meth:`build`, without starting it."""
        return Build(
            self._storage,
            self._inspector,
            self._make_content(),
            work,
            options,
            cancel or threading.Event(),
            is_allowed,
            note,
        )


class Build:
    """One build."""

    def __init__(
        self,
        storage: backend.Backend,
        inspector: inspection.Inspector,
        content: Content,
        work: tasks.GoldenTask,
        options: image_types.ImageOptions,
        cancel: threading.Event,
        is_allowed: Callable[[], bool],
        note: inspection.Note,
    ):
        self._storage = storage
        self._inspector = inspector
        self._content = content
        self._work = work
        self._image = work.image
        self._options = options
        self._cancel = cancel
        self._is_allowed = is_allowed
        self._note = note
        self._was_ready = False

    def steps(self) -> list[steps.Step]:
        """Return the steps; their names are the phases of the job."""
        return [
            steps.Step('clearing', self._clear),
            steps.Step('initialising', self._unless_ready(self._initialise)),
            steps.Step('formatting', self._unless_ready(self._format)),
            steps.Step('writing', self._unless_ready(self._write), undo=self._remove),
            steps.Step('snapshotting', self._unless_ready(self._take_snapshot)),
            steps.Step('inspecting', self._unless_ready(self._inspect)),
            steps.Step('publishing', self._unless_ready(self._publish), commits=True),
        ]

    def _unless_ready(self, do: Callable[[], None]) -> Callable[[], None]:
        def step() -> None:
            if not self._was_ready:
                do()

        return step

    def _is_ready(self) -> bool:
        with contextlib.suppress(exceptions.NotFoundError):
            facts = self._storage.describe(self._image, with_usage=False)
            return golden.state_of(facts) is golden.State.READY
        return False

    def close(self) -> None:
        """Remove what the build made on this host."""
        self._content.close()

    def _clear(self) -> None:
        self._check()
        self._was_ready = self._is_ready()
        if self._was_ready:
            LOG.info('%s: it is ready', self._work)
            return
        self._content.clear_killed()
        self._remove()
        self._content.open()

    def _initialise(self) -> None:
        self._content.initialise(self._work.version, self._check)

    def _format(self) -> None:
        self._check()
        self._content.format(self._work.size_gib * units.Gi)

    def _write(self) -> None:
        self._check()
        self._storage.create_image(self._image, self._work.size_gib * units.Gi, self._options)
        with self._storage.open_writer(self._image) as writer:
            writer.set_metadata(golden.METADATA_KEY, self._work.volume.content)
            written_bytes = self._content.write(writer, self._note_written)
        LOG.info('%s: wrote %s MiB', self._work, written_bytes // units.Mi)

    def _note_written(self, done_bytes: int, total_bytes: int) -> None:
        self._check()
        self._note('writing', done_bytes, total_bytes)

    def _take_snapshot(self) -> None:
        self._check()
        self._storage.create_snapshot(self._work.volume.snapshot(golden.State.BUILT))

    def _inspect(self) -> None:
        self._check()
        found = self._inspector.inspect(
            self._work.inspection,
            self._options,
            self._cancel,
            self._is_allowed,
            lambda _phase, done, total: self._note('inspecting', done, total),
        )
        if not found.ok:
            raise exceptions.ServerFailedError(
                f'{self._work}: its inspection found {found.verdict}: {"; ".join(found.reasons)}'
            )

    def _publish(self) -> None:
        # Too late to be canceled: nothing is undone from here on.
        self._check_allowed()
        built = self._work.volume.snapshot(golden.State.BUILT)
        self._storage.rename_snapshot(built, golden.State.READY.value)

    def _remove(self) -> None:
        """Remove the image, unless it is ready, and the clone of a killed inspection.

        :raises BusyError: other clones read from the image
        """
        self._check_allowed()
        if not self._is_ready():
            self._remove_image(self._work.inspection.clone)
            self._remove_image(self._image)

    def _remove_image(self, image: image_types.ImageRef) -> None:
        try:
            facts = self._storage.describe(image, with_usage=False)
            if facts.children:
                raise exceptions.BusyError(
                    f'{image}: cannot be replaced, because clones read from it: '
                    f'{", ".join(map(str, facts.children))}'
                )
            if facts.clients:
                # A process that was killed, since this one holds the locks.
                fencing.fence(self._storage, image)
            for name in facts.snapshot_names:
                self._storage.remove_snapshot(image.snapshot(name))
            self._storage.remove(image)
        except exceptions.NotFoundError:
            # There was none, or a request of which no answer came has removed it.
            return

    def _check(self) -> None:
        if self._cancel.is_set():
            raise exceptions.CanceledError('canceled')
        self._check_allowed()

    def _check_allowed(self) -> None:
        if not self._is_allowed():
            raise exceptions.CanceledError(f'{self._work}: its locks are lost')
