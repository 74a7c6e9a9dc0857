# SPDX-License-Identifier: Apache-2.0
"""The image of the virtual machine in which backups are inspected: kernel, initramfs, MySQL.

It is a directory with a kernel of the distribution, the part of the initramfs that does not depend
on this package's code, and the root file system of each configured MySQL as a squashfs. A build
repeats nothing whose inputs are unchanged.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from trove_ceph import exceptions
from trove_ceph.host import commands, initramfs, kernel_modules
from trove_ceph.verification import guest_init

MANIFEST = 'manifest.json'
#: The version of the layout of the directory.
FORMAT = 1
_KERNEL, _INITRD = 'vmlinuz', 'initrd'
_SQUASHFS_TIMEOUT_SEC = 3600
# The virtual machine creates these directories itself.
_LEFT_OUT = ('dev', 'proc', 'run', 'sys', 'tmp')
BOOT = Path('/boot')
MODULES = Path('/lib/modules')
BUSYBOX = Path('/bin/busybox')

Progress = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class VmImage:
    """A complete image.

    :param roots: images of root file systems, by the directory that they were built from
    """

    kernel: Path
    initrd: Path
    release: str
    roots: Mapping[str, Path]

    def root_for(self, directory: Path) -> Path:
        """Return the image of a root file system.

        :raises NotInspectableError: the root file system is not in this image
        """
        try:
            return self.roots[str(directory)]
        except KeyError:
            raise exceptions.NotInspectableError(
                f'the virtual machine image in {self.kernel.parent} does not have {directory}; run '
                '"trove-ceph-manage storage inspection-image" again'
            ) from None


def load(directory: Path) -> VmImage:
    """Return the image in a directory.

    :raises NotInspectableError: there is none, or one of another release of trove_ceph
    """
    try:
        manifest = json.loads((directory / MANIFEST).read_text())
        if manifest['format'] != FORMAT:
            raise exceptions.NotInspectableError(
                f'the virtual machine image in {directory} has format {manifest["format"]}, '
                f'expected {FORMAT}; run "trove-ceph-manage storage inspection-image" again'
            )
        roots = {root: directory / one['file'] for root, one in manifest['roots'].items()}
        boot = manifest['boot']
        image = VmImage(
            directory / boot['kernel'], directory / boot['initrd'], boot['release'], roots
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise exceptions.NotInspectableError(
            f'there is no virtual machine image in {directory}: {error}; '
            'build it with "trove-ceph-manage storage inspection-image"'
        ) from error
    for file in (image.kernel, image.initrd, *roots.values()):
        if not file.is_file():
            raise exceptions.NotInspectableError(f'{file} is missing')
    return image


@dataclasses.dataclass(frozen=True)
class Sources:
    """The inputs of an image.

    :param kernel: such as ``/boot/vmlinuz-6.1.0-56-cloud-amd64``
    :param modules: such as ``/lib/modules/6.1.0-56-cloud-amd64``
    :param roots: root file systems with a MySQL
    :param busybox: a statically linked busybox
    """

    kernel: Path
    modules: Path
    roots: tuple[Path, ...]
    busybox: Path = BUSYBOX


def find_kernel(boot: Path = BOOT, modules: Path = MODULES) -> tuple[Path, Path]:
    """Return the newest installed kernel for clouds, else the newest one, and its modules.

    :raises InvalidRequestError: none is installed
    """
    found = []
    for kernel in boot.glob('vmlinuz-*'):
        release = kernel.name.removeprefix('vmlinuz-')
        if (modules / release).is_dir():
            numbers = [int(one) for one in re.findall(r'\d+', release)]
            found.append(('cloud' in release, numbers, kernel, modules / release))
    if not found:
        raise exceptions.InvalidRequestError(
            f'no kernel with its modules is in {boot} and {modules}; install one, such as the '
            "distribution's kernel for clouds, or name one by --kernel and --modules"
        )
    *_, kernel, its_modules = max(found)
    return kernel, its_modules


def build(directory: Path, sources: Sources, report_progress: Progress = lambda _: None) -> VmImage:
    """Build the image in a directory, or update it.

    Inspections that run keep the files that they have opened.

    :param report_progress: called with a line of text for each part that is built or kept
    :raises InvalidRequestError: a source is missing or cannot be used
    :raises StorageCommandError: a command that builds a file fails
    """
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    directory.chmod(0o755)
    before = _read_manifest(directory)
    boot = _build_boot(directory, sources, before.get('boot', {}), report_progress)
    roots = {}
    for root in sources.roots:
        roots[str(root)] = _build_root(directory, root, before.get('roots', {}), report_progress)
    manifest = {'format': FORMAT, 'boot': boot, 'roots': roots}
    with _replacing(directory / MANIFEST) as file:
        file.write_text(json.dumps(manifest, indent=2, sort_keys=True) + '\n')
    _remove_others(directory, manifest)
    return load(directory)


def _read_manifest(directory: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        found = json.loads((directory / MANIFEST).read_text())
        if isinstance(found, dict) and found.get('format') == FORMAT:
            return found
    return {}


def _build_boot(
    directory: Path, sources: Sources, before: Mapping[str, str], report_progress: Progress
) -> dict[str, str]:
    """Build or keep the kernel and the initramfs; return their entry of the manifest."""
    if not sources.kernel.is_file():
        raise exceptions.InvalidRequestError(f'{sources.kernel}: there is no such kernel')
    _check_busybox(sources.busybox)
    order = kernel_modules.KernelModules(sources.modules).load_order(guest_init.MODULES)
    digest = hashlib.sha256(guest_init.INIT.encode())
    for path in (sources.kernel, sources.busybox, *order):
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    key = digest.hexdigest()[:16]
    kernel, initrd = f'{_KERNEL}-{key}', f'{_INITRD}-{key}'
    if before.get('key') == key and (directory / kernel).is_file():
        report_progress(f'kept the kernel {sources.modules.name} and its initramfs')
    else:
        with _replacing(directory / kernel) as file:
            shutil.copyfile(sources.kernel, file)
        with _replacing(directory / initrd) as file:
            _write_initrd(file, sources.busybox, order)
        report_progress(
            f'built an initramfs for the kernel {sources.modules.name} from {sources.kernel}'
        )
    return {'key': key, 'kernel': kernel, 'initrd': initrd, 'release': sources.modules.name}


def _check_busybox(busybox: Path) -> None:
    if not busybox.is_file():
        raise exceptions.InvalidRequestError(f'{busybox} is missing; install busybox-static')
    try:
        commands.run('ldd', busybox)
    except exceptions.StorageCommandError:
        # "not a dynamic executable"
        return
    raise exceptions.InvalidRequestError(
        f'{busybox} is not linked statically; install busybox-static'
    )


def _write_initrd(target: Path, busybox: Path, modules: list[Path]) -> None:
    with tempfile.TemporaryDirectory(prefix='trove-ceph-initramfs-') as name:
        tree = Path(name)
        (tree / 'bin').mkdir(mode=0o755)
        (tree / 'modules').mkdir(mode=0o755)
        shutil.copyfile(busybox, tree / 'bin' / 'busybox')
        (tree / 'bin' / 'busybox').chmod(0o755)
        (tree / 'init').write_text(guest_init.INIT)
        (tree / 'init').chmod(0o755)
        for module in modules:
            copy = tree / 'modules' / kernel_modules.uncompressed_name(module)
            kernel_modules.copy_uncompressed(module, copy)
            copy.chmod(0o644)
        names = [kernel_modules.uncompressed_name(module) for module in modules]
        (tree / 'modules' / 'order').write_text(''.join(f'{one}\n' for one in names))
        with target.open('wb') as archive:
            initramfs.append(archive, tree)


def _build_root(
    directory: Path, root: Path, before: Mapping[str, Mapping[str, str]], report_progress: Progress
) -> dict[str, str]:
    """Build or keep the image of a root file system; return its entry of the manifest."""
    if not root.is_dir():
        raise exceptions.InvalidRequestError(f'{root}: there is no such directory')
    key = _fingerprint(root)
    name = f'root-{key}.squashfs'
    if before.get(str(root), {}).get('key') == key and (directory / name).is_file():
        report_progress(f'kept the image of {root}')
    else:
        with _replacing(directory / name) as file:
            commands.run(
                *('mksquashfs', root, file, '-noappend', '-comp', 'lz4', '-no-xattrs', '-quiet'),
                *('-no-progress', '-mkfs-time', '0', '-all-time', '0', '-e', *_LEFT_OUT),
                timeout_sec=_SQUASHFS_TIMEOUT_SEC,
            )
        size_mib = (directory / name).stat().st_size // 1024**2
        report_progress(f'built an image of {root} of {size_mib} MiB')
    return {'key': key, 'file': name}


def _fingerprint(root: Path) -> str:
    """Return a hash of the names, kinds, owners, sizes and times of all files."""
    digest = hashlib.sha256(str(root).encode())
    for directory, names, files in os.walk(root):
        if Path(directory) == root:
            names[:] = [name for name in names if name not in _LEFT_OUT]
        names.sort()
        for name in sorted(names + files):
            found = os.lstat(os.path.join(directory, name))
            facts = (name, found.st_mode, found.st_uid, found.st_gid, found.st_size)
            digest.update(repr((directory, *facts, found.st_mtime_ns)).encode())
    return digest.hexdigest()[:16]


@contextlib.contextmanager
def _replacing(file: Path) -> Iterator[Path]:
    """Yield the path of a new file that replaces a file once it is complete and on the disk."""
    unfinished = file.with_name(f'.{file.name}.new')
    unfinished.unlink(missing_ok=True)
    try:
        yield unfinished
        unfinished.chmod(0o644)
        with unfinished.open('rb') as content:
            os.fsync(content.fileno())
        unfinished.rename(file)
    finally:
        unfinished.unlink(missing_ok=True)


def _remove_others(directory: Path, manifest: Mapping[str, Any]) -> None:
    """Remove the files of earlier images."""
    boot, roots = manifest['boot'], manifest['roots'].values()
    needed = {boot['kernel'], boot['initrd'], *(one['file'] for one in roots)}
    for prefix in (_KERNEL, _INITRD, 'root'):
        for file in directory.glob(f'{prefix}-*'):
            if file.name not in needed:
                file.unlink()
