# SPDX-License-Identifier: Apache-2.0
"""Takes the boot loaders for UEFI from Debian's packages: shim and GRUB, signed for Secure Boot.

The packages are not installed: their scripts would install GRUB on the disk of this machine.
"""

import shutil
from pathlib import Path

from trove_ceph.imagebuild import commands, components
from trove_ceph.imagebuild.components import Component

PACKAGES = ("shim-signed", "grub-efi-amd64-signed")

_FILES = {
    "shimx64.efi": "usr/lib/shim/shimx64.efi.signed",
    "grubx64.efi": "usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed",
}


def unpack(directory: Path, *, log: Path) -> list[Component]:
    """Take the boot loaders out of the packages in a directory; only they stay there.

    :returns: the packages
    :raises BuildError: a package cannot be unpacked
    """
    unpacked = directory / "unpacked"
    found = []
    for package in sorted(directory.glob("*.deb")):
        commands.run(["dpkg-deb", "--extract", str(package), str(unpacked)], log=log)
        found.append(components.debian_archive(package, unpacked))
        package.unlink()
    for name, source in _FILES.items():
        shutil.copyfile(unpacked / source, directory / name)
    shutil.rmtree(unpacked)
    return found
