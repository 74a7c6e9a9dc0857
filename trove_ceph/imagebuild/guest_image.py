# SPDX-License-Identifier: Apache-2.0
"""Builds the guest image: a copy of the base disk with trove_ceph and the configuration."""

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from trove_ceph.imagebuild import (
    bill_of_materials,
    cache,
    components,
    disk,
    file_list,
    guest_base,
    guest_config,
    sources,
    uefi,
    wheel,
)
from trove_ceph.imagebuild.cache import Cache
from trove_ceph.imagebuild.cloud_settings import CloudSettings
from trove_ceph.imagebuild.components import Component
from trove_ceph.imagebuild.docker_archive import MysqlImage
from trove_ceph.imagebuild.profiles import Profile
from trove_ceph.imagebuild.progress import Progress
from trove_ceph.imagebuild.sources import Sources

_HERE = Path(__file__).resolve().parent
_RECIPE = (_HERE / "guest_image.py", _HERE / "disk.py")
_BILL = "bill-of-materials.cdx.json"
_LOCK = "lock.json"
_FILES = "files.txt"


@dataclass(frozen=True)
class GuestImage:
    """A bootable qcow2 image; beside it is what describes it."""

    path: Path
    hash: str
    mysql_version: str
    cached: bool

    @property
    def bill(self) -> Path:
        """Return the path of the bill of materials, in the format CycloneDX."""
        return self.path.with_name(_BILL)

    @property
    def lock(self) -> Path:
        """Return the path of the versions of its packages, for ``--lock``."""
        return self.path.with_name(_LOCK)

    @property
    def files(self) -> Path:
        """Return the path of the list of files, which an image of a trimmed profile lacks."""
        return self.path.with_name(_FILES)


@dataclass(frozen=True)
class Inputs:
    """What a guest image is made of.

    :param image: the MySQL container image it carries.
    :param wheel_file: the trove_ceph wheel it carries, if its profile has trove_ceph.
    :param constraints: pip constraints of the guest agent's environment.
    :param origin: where Debian's packages come from.
    """

    profile: Profile
    image: MysqlImage
    wheel_file: Path
    constraints: Path
    settings: CloudSettings
    origin: Sources


def ensure_guest_image(store: Cache, progress: Progress, inputs: Inputs) -> GuestImage:
    """Return the guest image, building what the cache lacks of it.

    :raises BuildError: a step fails; nothing is left in the cache of what it had begun
    """
    profile, image = inputs.profile, inputs.image
    base_key = guest_base.base_hash(
        image, inputs.constraints, profile=profile, sources=inputs.origin
    )
    contents = wheel.contents_hash(inputs.wheel_file) if profile.has_trove_ceph else ""
    recipe = cache.tree_hashes([*_RECIPE, *guest_config.recipe(profile)])
    key = cache.content_hash(base_key, contents, recipe, inputs.settings.files())
    name = f"{profile.kind}-{key}.qcow2"
    entry = store.find(profile.kind, key)
    if entry:
        return GuestImage(entry / name, key, image.mysql_version, cached=True)
    base = guest_base.ensure_guest_base(
        store,
        progress,
        image=image,
        constraints=inputs.constraints,
        profile=profile,
        sources=inputs.origin,
    )
    with store.create(profile.kind, key) as entry:
        found = _build(store, progress, base.disk, inputs, entry / name)
        _describe(entry, key, inputs, [*base.components, *found])
        manifest = {
            "base": base.hash,
            "mysql_image": image.tag,
            "mysql_version": image.mysql_version,
            "profile": profile.name,
        }
        if profile.has_trove_ceph:
            manifest |= {"wheel": inputs.wheel_file.name, "wheel_hash": contents}
        cache.write_manifest(entry, manifest)
    return GuestImage(store.root / entry.name / name, key, image.mysql_version, cached=False)


def _build(
    store: Cache, progress: Progress, base: Path, inputs: Inputs, target: Path
) -> list[Component]:
    """Write the image; return the Python distributions in it."""
    kind, layout = inputs.profile.kind, inputs.profile.layout
    log = store.log(kind)
    raw = store.scratch("guest-disk") / "disk.raw"
    with progress.stage(f"{kind}: copy the base disk"):
        disk.copy_sparse(base, raw, log=log)
    with disk.mounted(raw, layout, log=log) as root:
        if inputs.profile.has_trove_ceph:
            with progress.stage(f"{kind}: install {inputs.wheel_file.name}"):
                _install_wheel(root, inputs.wheel_file, inputs.constraints, log=log)
        with progress.stage(f"{kind}: configure"):
            guest_config.configure(root, inputs.profile, inputs.settings, log=log)
        found = components.python(_site_packages(root))
        lock = inputs.origin.locked("python")
        if lock is not None:
            inputs.origin.check_versions(lock, _python_versions(found))
        if not inputs.profile.trimmed:
            with progress.stage(f"{kind}: list the files"):
                target.with_name(_FILES).write_text(file_list.render(root))
        disk.give_back_free_space(root, log=log)
    with progress.stage(f"{kind}: write the qcow2 image"):
        disk.convert_to_qcow2(raw, target, log=log)
    shutil.rmtree(raw.parent)
    return found


def _describe(entry: Path, key: str, inputs: Inputs, found: list[Component]) -> None:
    image, origin = inputs.image, inputs.origin
    updates = inputs.profile.security_updates
    bill = bill_of_materials.render(
        profile=inputs.profile.name,
        image_hash=key,
        components=found,
        container={
            "name": image.tag,
            "version": image.mysql_version,
            "sha256": cache.file_hash(image.path),
            "components": image.components,
        },
        sources=origin.lines(guest_base.SUITE, updates=updates),
        created=int(os.environ.get("SOURCE_DATE_EPOCH") or time.time()),
    )
    (entry / _BILL).write_text(bill)
    debian = [one for one in found if one["type"] == "deb"]
    versions = {
        "guest": components.versions(one for one in debian if one["name"] not in uefi.PACKAGES),
        "loaders": components.versions(one for one in debian if one["name"] in uefi.PACKAGES),
        "mysql": components.versions(image.components),
        "python": _python_versions(found),
    }
    text = sources.lock_content(versions, snapshot=origin.snapshot)
    (entry / _LOCK).write_text(text)


def _python_versions(found: list[Component]) -> dict[str, str]:
    # The wheel is an input of its own.
    return components.versions(
        one for one in found if one["type"] == "pypi" and one["name"] != "trove-ceph"
    )


def _site_packages(root: Path) -> list[Path]:
    return list(root.glob(f"{guest_base.VENV[1:]}/lib/python3*/site-packages"))


def _install_wheel(root: Path, wheel_file: Path, constraints: Path, *, log: Path) -> None:
    inside = root / "tmp" / wheel_file.name
    shutil.copyfile(wheel_file, inside)
    shutil.copyfile(constraints, root / "tmp/constraints.txt")
    install = ["--no-compile", "--constraint=/tmp/constraints.txt"]
    install.append(f"/tmp/{wheel_file.name}[server]")
    guest_base.pip_install(root, install, log=log)
    for packages in _site_packages(root):
        for name in wheel.NOT_IN_GUESTS:
            shutil.rmtree(packages / name)
    (root / guest_base.VENV[1:] / "bin" / wheel.PROGRAM).unlink()
    guest_base.compile_all(root, "trove_ceph", log=log)
