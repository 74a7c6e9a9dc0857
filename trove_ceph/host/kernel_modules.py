# SPDX-License-Identifier: Apache-2.0
"""Select modules of a kernel with all that they need, in the order in which they are loaded."""

import gzip
import lzma
import shutil
from collections.abc import Iterable
from pathlib import Path

from trove_ceph import exceptions
from trove_ceph.host import commands

_DEPENDENCIES = 'modules.dep'
_BUILT_IN = 'modules.builtin'


class KernelModules:
    """The modules of one kernel, below a directory such as ``/lib/modules/6.1.0-56-cloud-amd64``.

    :raises InvalidRequestError: the directory has no list of dependencies
    """

    def __init__(self, directory: Path):
        self._directory = directory
        try:
            self._needs = _parse((directory / _DEPENDENCIES).read_text())
            built_in = (directory / _BUILT_IN).read_text().split()
        except OSError as error:
            raise exceptions.InvalidRequestError(
                f'{directory} is not a directory of kernel modules as depmod leaves it: {error}; '
                'for modules that were unpacked by hand, run "depmod --basedir DIRECTORY RELEASE"'
            ) from error
        self._built_in = set(map(_name, built_in))
        self._paths = {_name(path): path for path in self._needs}

    def load_order(self, names: Iterable[str]) -> list[Path]:
        """Return the files of modules and of what they need, each after what it needs.

        Modules that are built into the kernel need no file.

        :raises InvalidRequestError: the kernel has no such module
        """
        order: list[str] = []
        for name in names:
            if name in self._built_in:
                continue
            if name not in self._paths:
                raise exceptions.InvalidRequestError(
                    f'the kernel of {self._directory} has no module {name}'
                )
            path = self._paths[name]
            # depmod lists needs in the order opposite to loading.
            order += [one for one in (*reversed(self._needs[path]), path) if one not in order]
        return [self._directory / path for path in order]


def copy_uncompressed(module: Path, target: Path) -> None:
    """Copy the file of a module; a small ``insmod`` reads no compressed ones.

    :raises StorageCommandError: it is compressed by zstd, which is not installed
    """
    match module.suffix:
        case '.xz':
            target.write_bytes(lzma.decompress(module.read_bytes()))
        case '.gz':
            target.write_bytes(gzip.decompress(module.read_bytes()))
        case '.zst':
            commands.run('zstd', '--decompress', '--quiet', '--force', '-o', target, module)
        case _:
            shutil.copyfile(module, target)


def uncompressed_name(module: Path) -> str:
    """Return the name of a module's file without its compression: ``xfs.ko`` for ``xfs.ko.xz``."""
    return module.name.partition('.ko')[0] + '.ko'


def _parse(text: str) -> dict[str, list[str]]:
    rows = (line.partition(':') for line in text.splitlines())
    return {module: needed.split() for module, colon, needed in rows if colon}


def _name(path: str) -> str:
    return path.rpartition('/')[2].partition('.ko')[0].replace('-', '_')
