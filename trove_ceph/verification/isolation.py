# SPDX-License-Identifier: Apache-2.0
"""Choose how the server of an inspection is isolated from the host."""

import threading
from collections.abc import Callable
from pathlib import Path

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.verification import (
    inspection,
    on_host,
    report,
    virtual_machine,
    vm_image,
    vm_probe,
)

LOG = logging.getLogger(__name__)

#: As vm_probe.find_obstacle.
Probe = Callable[[vm_image.VmImage, str, Path, int], str | None]


class Sandboxes:
    """Creates the sandbox of each inspection; the first call chooses the mode of isolation.

    :param ceph_conf: path of the cluster's ceph.conf, which names the keyring
    :param ceph_user: cephx name with its type
    :param find_key: returns the key of a user, by ceph.conf and cephx name
    :param load: returns the virtual machine image of a directory
    :param probe: returns why no virtual machine runs, or None
    """

    def __init__(
        self,
        ceph_conf: str,
        ceph_user: str,
        settings: report.InspectionSettings,
        find_key: Callable[[str, str], str],
        load: Callable[[Path], vm_image.VmImage] = vm_image.load,
        probe: Probe = vm_probe.find_obstacle,
    ):
        self._ceph = (ceph_conf, ceph_user)
        self._settings = settings
        self._find_key = find_key
        self._load = load
        self._probe = probe
        self._lock = threading.Lock()
        self._is_chosen = False
        self._image: vm_image.VmImage | None = None

    def __call__(self) -> inspection.Sandbox:
        """Return a sandbox for one inspection.

        The first call starts a virtual machine as a test, which takes up to 15 s.

        :raises NotInspectableError: the mode is ``vm``, and no virtual machine runs on this host
        """
        with self._lock:
            if not self._is_chosen:
                self._image = self._choose()
                self._is_chosen = True
        if self._image is None:
            return on_host.HostSandbox(*self._ceph, self._settings)
        accelerator = self._settings.vm_accelerator
        return virtual_machine.VmSandbox(
            *self._ceph, self._settings, self._image, accelerator, self._find_key
        )

    def _choose(self) -> vm_image.VmImage | None:
        """Return the image of the virtual machine; None for namespaces of this host."""
        wanted = self._settings.isolation
        if wanted == report.NAMESPACES:
            LOG.info('Inspections run in namespaces of this host, as configured')
            return None
        try:
            image = self._find_image()
        except exceptions.NotInspectableError as error:
            if wanted == report.VM:
                raise
            LOG.warning('Inspections run in namespaces of this host: %s', error)
            return None
        accelerator = self._settings.vm_accelerator
        LOG.info('Inspections run in virtual machines with %s', accelerator)
        return image

    def _find_image(self) -> vm_image.VmImage:
        """Return an image that runs on this host and has all configured servers.

        :raises NotInspectableError: there is none
        """
        settings = self._settings
        image = self._load(settings.vm_image_directory)
        for root in settings.roots.values():
            image.root_for(root)
        uid = settings.first_uid + virtual_machine.FIRST_ID
        obstacle = self._probe(image, settings.vm_accelerator, settings.directory, uid)
        if obstacle:
            raise exceptions.NotInspectableError(obstacle)
        return image
