# SPDX-License-Identifier: Apache-2.0
"""Writes the MySQL container image as a docker-archive, the format of ``docker load``.

The archive holds one layer and is reproducible: the same root directory gives the same bytes.
Format: https://github.com/moby/docker-image-spec/blob/main/v1.2.md
"""

import io
import json
import tarfile
from dataclasses import dataclass
from pathlib import Path

from trove_ceph.imagebuild import cache, commands
from trove_ceph.imagebuild.cache import Cache
from trove_ceph.imagebuild.components import Component
from trove_ceph.imagebuild.mysql_rootfs import MysqlRootfs
from trove_ceph.imagebuild.progress import Progress

KIND = "mysql-image"
REPOSITORY = "mysql"

_TIMESTAMP = 1735689600
_CREATED = "2025-01-01T00:00:00Z"
_EXCLUDED = (
    *("./proc/*", "./sys/*", "./dev/*", "./tmp/*", "./boot", "./run/mysqld/*"),
    *("./var/lib/mysql/*", "./var/lib/apt/lists/*", "./var/cache/*", "./var/log/*"),
    *("./etc/resolv.conf", "./etc/hostname", "./etc/machine-id", "./usr/bin/sysbench"),
    *("./usr/share/sysbench", "./usr/share/perl", "./usr/lib/x86_64-linux-gnu/perl"),
    # Tools for formats and chores that no managed instance has; 8 MB each.
    *("./usr/bin/myisam*", "./usr/bin/mysql_migrate_keyring", "./usr/bin/perror"),
    *("./usr/bin/mysqlslap", "./usr/bin/mysqlimport", "./usr/bin/mysqlshow"),
    *("./usr/bin/mysql_secure_installation", "./usr/bin/ibd2sdi", "./usr/bin/innochecksum"),
)
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class MysqlImage:
    """A docker-archive of MySQL, tagged ``mysql:<version>``.

    :param components: the packages in it; empty if they are not known.
    """

    path: Path
    hash: str
    mysql_version: str
    components: list[Component]
    cached: bool

    @property
    def tag(self) -> str:
        """Return the name under which a container daemon knows the image."""
        return f"{REPOSITORY}:{self.mysql_version}"


def given_image(path: Path, mysql_version: str) -> MysqlImage:
    """Return an image that an operator brings, for example the official one."""
    return MysqlImage(path.resolve(), cache.file_hash(path)[:16], mysql_version, [], cached=True)


def ensure_mysql_image(store: Cache, progress: Progress, rootfs: MysqlRootfs) -> MysqlImage:
    """Return the image of a MySQL root file system, writing it if the cache has none."""
    here = Path(__file__).resolve()
    key = cache.content_hash(rootfs.hash, rootfs.mysql_version, cache.tree_hashes([here]))
    entry = store.find(KIND, key)
    if entry:
        path = entry / "image.tar"
        return MysqlImage(path, key, rootfs.mysql_version, rootfs.components, cached=True)
    with store.create(KIND, key) as entry, progress.stage(f"{KIND}: write the archive"):
        layer = entry / "layer.tar"
        _write_layer(rootfs.path, layer, log=store.log(KIND))
        image_id = write_archive(entry / "image.tar", layer, rootfs.mysql_version)
        layer.unlink()
        manifest = {"mysql_version": rootfs.mysql_version, "image_id": image_id}
        cache.write_manifest(entry, manifest)
    path = store.root / entry.name / "image.tar"
    return MysqlImage(path, key, rootfs.mysql_version, rootfs.components, cached=False)


def _write_layer(root: Path, layer: Path, *, log: Path) -> None:
    argv = ["tar", "--create", "--sort=name", "--numeric-owner", "--format=gnu"]
    argv += [f"--mtime=@{_TIMESTAMP}", f"--directory={root}", f"--file={layer}"]
    argv += [f"--exclude={pattern}" for pattern in _EXCLUDED]
    commands.run([*argv, "."], log=log)


def image_config(diff_id: str, mysql_version: str) -> dict:
    """Return the image's configuration.

    :param diff_id: ``sha256:`` and the hash of the uncompressed layer.
    """
    major_minor = mysql_version.rsplit(".", 1)[0]
    return {
        "architecture": "amd64",
        "os": "linux",
        "created": _CREATED,
        "config": {
            "Env": [
                f"PATH={_PATH}",
                f"MYSQL_MAJOR={major_minor}",
                f"MYSQL_VERSION={mysql_version}",
            ],
            # tini reaps the process that confirms the first start.
            "Entrypoint": ["/usr/bin/tini", "--", "docker-entrypoint.sh"],
            "Cmd": ["mysqld"],
            "ExposedPorts": {"3306/tcp": {}, "33060/tcp": {}},
            "Volumes": {"/var/lib/mysql": {}},
        },
        "rootfs": {"type": "layers", "diff_ids": [diff_id]},
        "history": [{"created": _CREATED, "created_by": "Debian mysql-server-core"}],
    }


def write_archive(target: Path, layer: Path, mysql_version: str) -> str:
    """Write a docker-archive with one layer.

    :returns: the image's id, ``sha256:`` and the hash of its configuration.
    """
    layer_hash = cache.file_hash(layer)
    config = json.dumps(image_config(f"sha256:{layer_hash}", mysql_version), sort_keys=True)
    config_hash = cache.content_digest(config.encode())
    manifest = [
        {
            "Config": f"{config_hash}.json",
            "RepoTags": [f"{REPOSITORY}:{mysql_version}"],
            "Layers": [f"{layer_hash}/layer.tar"],
        }
    ]
    with tarfile.open(target, "w", format=tarfile.GNU_FORMAT) as archive:
        _add(archive, f"{config_hash}.json", config.encode())
        _add(archive, "manifest.json", json.dumps(manifest).encode())
        member = tarfile.TarInfo(f"{layer_hash}/layer.tar")
        member.size, member.mtime = layer.stat().st_size, _TIMESTAMP
        with open(layer, "rb") as stream:
            archive.addfile(member, stream)
    return f"sha256:{config_hash}"


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mtime = len(content), _TIMESTAMP
    archive.addfile(member, io.BytesIO(content))
