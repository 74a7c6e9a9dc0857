# SPDX-License-Identifier: Apache-2.0
"""Builds the guest image: a copy of the base disk with trove_ceph and the configuration."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from trove_ceph.imagebuild import cache, disk, guest_base, guest_config, wheel
from trove_ceph.imagebuild.cache import Cache
from trove_ceph.imagebuild.docker_archive import MysqlImage
from trove_ceph.imagebuild.guest_base import GuestBase
from trove_ceph.imagebuild.progress import Progress

KIND = "guest"

_HERE = Path(__file__).resolve().parent
_RECIPE = (
    _HERE / "guest_image.py",
    _HERE / "guest_config.py",
    _HERE / "disk.py",
    _HERE / "files" / "guest",
    _HERE / "files" / "guest-masked-units.txt",
)


@dataclass(frozen=True)
class GuestImage:
    """A bootable qcow2 image."""

    path: Path
    hash: str
    mysql_version: str
    cached: bool


def ensure_guest_image(
    store: Cache,
    progress: Progress,
    *,
    image: MysqlImage,
    wheel_file: Path,
    constraints: Path,
    mirror: str | None,
) -> GuestImage:
    """Return the guest image, building what the cache lacks of it.

    :param image: the MySQL container image it carries.
    :param wheel_file: the trove_ceph wheel it carries.
    :param constraints: pip constraints of the guest agent's environment.
    """
    base_key = guest_base.base_hash(image, constraints)
    contents = wheel.contents_hash(wheel_file)
    key = cache.content_hash(base_key, contents, cache.tree_hashes(_RECIPE))
    name = f"{KIND}-{key}.qcow2"
    entry = store.find(KIND, key)
    if entry:
        return GuestImage(entry / name, key, image.mysql_version, cached=True)
    base = guest_base.ensure_guest_base(
        store, progress, image=image, constraints=constraints, mirror=mirror
    )
    with store.create(KIND, key) as entry:
        _build(store, progress, base, wheel_file, constraints, target=entry / name)
        manifest = {
            "base": base.hash,
            "mysql_image": image.tag,
            "mysql_version": image.mysql_version,
            "wheel": wheel_file.name,
            "wheel_hash": contents,
            "packages": base.packages,
        }
        cache.write_manifest(entry, manifest)
    return GuestImage(store.root / entry.name / name, key, image.mysql_version, cached=False)


def _build(
    store: Cache,
    progress: Progress,
    base: GuestBase,
    wheel_file: Path,
    constraints: Path,
    *,
    target: Path,
) -> None:
    log = store.log(KIND)
    raw = store.scratch("guest-disk") / "disk.raw"
    with progress.stage(f"{KIND}: copy the base disk"):
        disk.copy_sparse(base.disk, raw, log=log)
    with disk.mounted(raw, log=log) as root:
        with progress.stage(f"{KIND}: install {wheel_file.name}"):
            _install_wheel(root, wheel_file, constraints, log=log)
        with progress.stage(f"{KIND}: configure"):
            guest_config.configure(root, log=log)
        disk.give_back_free_space(root, log=log)
    with progress.stage(f"{KIND}: write the qcow2 image"):
        disk.convert_to_qcow2(raw, target, log=log)
    shutil.rmtree(raw.parent)


def _install_wheel(root: Path, wheel_file: Path, constraints: Path, *, log: Path) -> None:
    inside = root / "tmp" / wheel_file.name
    shutil.copyfile(wheel_file, inside)
    shutil.copyfile(constraints, root / "tmp/constraints.txt")
    install = ["--no-compile", "--constraint=/tmp/constraints.txt"]
    install.append(f"/tmp/{wheel_file.name}[server]")
    guest_base.pip_install(root, install, log=log)
    for tests in root.glob(f"{guest_base.VENV[1:]}/lib/python3*/site-packages/trove_ceph/tests"):
        shutil.rmtree(tests)
    guest_base.compile_all(root, "trove_ceph", log=log)
