# SPDX-License-Identifier: Apache-2.0
"""The command line of the image builder."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from trove_ceph.imagebuild import (
    commands,
    debian,
    disk,
    docker_archive,
    guest_image,
    inspection_kernel,
    kvm_probe,
    mysql_rootfs,
    test_root,
)
from trove_ceph.imagebuild import wheel as wheels
from trove_ceph.imagebuild.cache import DEFAULT_ROOT, Cache
from trove_ceph.imagebuild.errors import BuildError
from trove_ceph.imagebuild.progress import Progress

_CHECKOUT = Path(__file__).resolve().parents[2]

_DESCRIPTION = """\
Build the images for the lab's databases.  Results are cached under a hash of their inputs: a
repeated build takes a second, and a change rebuilds only what depends on it.

  mysql-rootfs   a directory with Debian's MySQL to chroot into     (about 40 s the first time)
  mysql-image    the same as a container image, mysql:<version>     (3 s more)
  guest          a VM image: docker, that container image, Trove's guest agent and trove_ceph
                 (3 minutes the first time, under a minute when only trove_ceph has changed)
  inspection-kernel
                 a directory with Debian's kernel for clouds, for the virtual machines that inspect
                 backups                                              (10 s the first time)
  test-root      a directory with the Debian that has a version of Ceph, for tests with that Ceph
                 (2 minutes the first time)
  kvm-probe      a check whether this machine can run guests with KVM
"""
_EPILOG = """\
examples:
  build mysql-rootfs
  build guest --project . --format json
  build guest --wheel dist/trove_ceph-1.0-py3-none-any.whl \\
              --mysql-image mysql-8.4.tar --mysql-version 8.4.6
      The archive comes from 'docker save mysql:8.4.6'; its own entrypoint is used.

Progress goes to standard error, the result to standard output.  Building needs root.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; print a message instead of a traceback for errors of the build."""
    arguments = _parser().parse_args(argv)
    progress = Progress(quiet=arguments.quiet)
    try:
        result = arguments.action(arguments, progress)
    except BuildError as error:
        print(f"error: {progress.current}: {error}", file=sys.stderr)
        for line in error.log_tail():
            print(f"  | {line}", file=sys.stderr)
        if error.log:
            print(f"  the complete output is in {error.log}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"interrupted: {progress.current}; the next run continues", file=sys.stderr)
        return 130
    if arguments.format == "json":
        print(json.dumps(result, sort_keys=True))
    else:
        print(result[arguments.headline])
    return 0


def _parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="build", description=_DESCRIPTION, epilog=_EPILOG, formatter_class=form
    )
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--cache",
        type=Path,
        default=Path(os.environ.get("TROVE_CEPH_CACHE", DEFAULT_ROOT)),
        help="directory of the cache (default: $TROVE_CEPH_CACHE or %(default)s)",
    )
    common.add_argument(
        "--mirror",
        metavar="URL",
        help="Debian mirror (default: that of this machine's apt)",
    )
    common.add_argument("--format", choices=("text", "json"), default="text")
    common.add_argument("--quiet", action="store_true", help="no progress on standard error")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")

    rootfs = subparsers.add_parser("mysql-rootfs", parents=[common], help="print its directory")
    rootfs.set_defaults(action=_build_rootfs, headline="path")

    image = subparsers.add_parser("mysql-image", parents=[common], help="print the archive's path")
    _add_mysql_options(image)
    image.set_defaults(action=_build_image, headline="path")

    guest = subparsers.add_parser("guest", parents=[common], help="print the qcow2 image's path")
    _add_mysql_options(guest)
    source = guest.add_mutually_exclusive_group()
    source.add_argument("--wheel", type=Path, help="trove_ceph wheel to install in the guest")
    source.add_argument(
        "--project",
        type=Path,
        metavar="DIR",
        default=_CHECKOUT,
        help="checkout to build that wheel from (default: %(default)s)",
    )
    guest.add_argument(
        "--constraints",
        type=Path,
        metavar="FILE",
        default=_CHECKOUT / "lab" / "constraints.txt",
        help="pip constraints of the guest agent's environment (default: %(default)s)",
    )
    guest.set_defaults(action=_build_guest, headline="path")

    kernel = subparsers.add_parser(
        "inspection-kernel", parents=[common], help="print its directory"
    )
    kernel.set_defaults(action=_build_kernel, headline="path")

    root = subparsers.add_parser(
        "test-root",
        parents=[common],
        help="print its directory; / if this machine is of the Debian that has that Ceph",
    )
    root.add_argument(
        "--ceph",
        type=int,
        required=True,
        choices=test_root.SUITES,
        help="the major version of Ceph",
    )
    root.add_argument(
        "--packages", required=True, metavar="NAME,...", help="Debian packages, Ceph's included"
    )
    root.set_defaults(action=_build_test_root, headline="path")

    probe = subparsers.add_parser("kvm-probe", parents=[common], help="print kvm or qemu")
    probe.set_defaults(action=_probe_kvm, headline="virt_type")
    return parser


def _add_mysql_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--mysql-image",
        type=Path,
        metavar="FILE",
        help="use this docker-archive instead of Debian's MySQL; needs --mysql-version",
    )
    parser.add_argument("--mysql-version", metavar="X.Y.Z", help="the version in --mysql-image")


def _need_root(progress: Progress) -> None:
    progress.current = "preparation"
    if os.geteuid() != 0:
        raise BuildError("building needs root")


def _prepare(progress: Progress) -> None:
    _need_root(progress)
    commands.enter_private_mounts()


def _locked(arguments: argparse.Namespace, progress: Progress):
    store = Cache(arguments.cache)
    return store, store.locked(lambda: progress.note("another build is running; waiting for it"))


def _build_rootfs(arguments: argparse.Namespace, progress: Progress) -> dict:
    _prepare(progress)
    store, lock = _locked(arguments, progress)
    with lock:
        rootfs = mysql_rootfs.ensure_mysql_rootfs(store, progress, mirror=arguments.mirror)
    return {
        "path": str(rootfs.path),
        "hash": rootfs.hash,
        "mysql_version": rootfs.mysql_version,
        "cached": rootfs.cached,
    }


def _mysql_image(arguments, store: Cache, progress: Progress) -> docker_archive.MysqlImage:
    if arguments.mysql_image:
        if not arguments.mysql_version:
            raise BuildError("--mysql-image needs --mysql-version")
        if not arguments.mysql_image.is_file():
            raise BuildError(f"--mysql-image {arguments.mysql_image}: no such file")
        return docker_archive.given_image(arguments.mysql_image, arguments.mysql_version)
    rootfs = mysql_rootfs.ensure_mysql_rootfs(store, progress, mirror=arguments.mirror)
    return docker_archive.ensure_mysql_image(store, progress, rootfs)


def _build_image(arguments: argparse.Namespace, progress: Progress) -> dict:
    _prepare(progress)
    store, lock = _locked(arguments, progress)
    with lock:
        image = _mysql_image(arguments, store, progress)
    return {
        "path": str(image.path),
        "hash": image.hash,
        "tag": image.tag,
        "mysql_version": image.mysql_version,
        "cached": image.cached,
    }


def _build_guest(arguments: argparse.Namespace, progress: Progress) -> dict:
    _prepare(progress)
    if not arguments.constraints.is_file():
        raise BuildError(f"--constraints {arguments.constraints}: no such file")
    store, lock = _locked(arguments, progress)
    with lock:
        wheel = arguments.wheel or wheels.ensure_wheel(store, progress, arguments.project)
        guest = guest_image.ensure_guest_image(
            store,
            progress,
            image=_mysql_image(arguments, store, progress),
            wheel_file=wheel,
            constraints=arguments.constraints,
            mirror=arguments.mirror,
        )
    return {
        "path": str(guest.path),
        "hash": guest.hash,
        "mysql_version": guest.mysql_version,
        "cached": guest.cached,
        "min_disk_gib": disk.MIN_DISK_GIB,
    }


def _build_kernel(arguments: argparse.Namespace, progress: Progress) -> dict:
    # It mounts nothing, and a mount namespace would keep the file systems of others mounted.
    _need_root(progress)
    store, lock = _locked(arguments, progress)
    with lock:
        kernel = inspection_kernel.ensure_kernel(store, progress)
    return {
        "path": str(kernel.path),
        "hash": kernel.hash,
        "release": kernel.release,
        "cached": kernel.cached,
    }


def _build_test_root(arguments: argparse.Namespace, progress: Progress) -> dict:
    if test_root.suite_of(arguments.ceph) == test_root.host_codename():
        return {"path": "/"}
    _prepare(progress)
    store, lock = _locked(arguments, progress)
    with lock:
        root = test_root.ensure_test_root(
            store,
            progress,
            ceph=arguments.ceph,
            packages=arguments.packages.split(","),
            mirror=arguments.mirror,
        )
    return {
        "path": str(root.path),
        "hash": root.hash,
        "ceph_version": root.ceph_version,
        "cached": root.cached,
    }


def _probe_kvm(arguments: argparse.Namespace, progress: Progress) -> dict:
    _prepare(progress)
    store, lock = _locked(arguments, progress)
    with lock:
        debian.ensure_host_packages(progress, store.log("kvm-probe"))
        return {"virt_type": kvm_probe.probe(store, progress)}
