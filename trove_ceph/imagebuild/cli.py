# SPDX-License-Identifier: Apache-2.0
"""The command line of the image builder."""

import argparse
import errno
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from trove_ceph.imagebuild import (
    boot_check,
    cloud_settings,
    commands,
    debian,
    disk,
    docker_archive,
    guest_base,
    guest_image,
    inspection_kernel,
    kvm_probe,
    mysql_rootfs,
    profiles,
    sources,
    test_root,
)
from trove_ceph.imagebuild import wheel as wheels
from trove_ceph.imagebuild.cache import DEFAULT_ROOT, Cache
from trove_ceph.imagebuild.cloud_settings import CloudSettings
from trove_ceph.imagebuild.errors import BuildError
from trove_ceph.imagebuild.profiles import Profile
from trove_ceph.imagebuild.progress import Progress
from trove_ceph.imagebuild.sources import Sources

# Of the directory for the cache, or of the disk that it is on.
_OF_CACHE = (errno.EACCES, errno.EDQUOT, errno.ENOSPC, errno.EROFS)

_DESCRIPTION = """\
Build the images for databases.  Results are cached under a hash of their inputs: a repeated build
takes a second, and a change rebuilds only what depends on it.

  mysql-rootfs   a directory with Debian's MySQL to chroot into     (about 40 s the first time)
  mysql-image    the same as a container image, mysql:<version>     (3 s more)
  guest          a VM image: docker, that container image, Trove's guest agent and trove_ceph
                 (3 minutes the first time, under a minute when only trove_ceph has changed)
  check          a check that boots a guest image of the profile kvm
  inspection-kernel
                 a directory with Debian's kernel for clouds, for the virtual machines that inspect
                 backups                                              (10 s the first time)
  test-root      a directory with the Debian that has a version of Ceph, for tests with that Ceph
                 (2 minutes the first time)
  kvm-probe      a check whether this machine can run guests with KVM
"""
_EPILOG = """\
examples:
  trove-ceph-image guest --profile kvm --message-bus-ca ca.pem
  trove-ceph-image guest --profile kvm --snapshot 20261101T000000Z --lock lock.json
  trove-ceph-image guest --mysql-image mysql-8.4.tar --mysql-version 8.4.6
      The archive comes from 'docker save mysql:8.4.6'; its own entrypoint is used.

Progress goes to standard error, the result to standard output.  Building needs root.  In a checkout
the same program is lab/images/build.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; print a message instead of a traceback for errors of the build."""
    arguments = make_parser().parse_args(argv)
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
    except OSError as error:
        if error.errno not in _OF_CACHE:
            raise
        print(
            f"error: {progress.current}: {error}; make room in {arguments.cache}, or name another "
            "directory with --cache",
            file=sys.stderr,
        )
        return 1
    except KeyboardInterrupt:
        print(f"interrupted: {progress.current}; the next run continues", file=sys.stderr)
        return 130
    if arguments.format == "json":
        print(json.dumps(result, sort_keys=True))
    else:
        print(result[arguments.headline])
    return 0


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog=wheels.PROGRAM, description=_DESCRIPTION, epilog=_EPILOG, formatter_class=form
    )
    common = _common_options()
    origin = _source_options()
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, action: Any, headline: str, *parents: Any, text: str) -> Any:
        added = subparsers.add_parser(name, parents=[common, *parents], help=text, description=text)
        added.set_defaults(action=action, headline=headline)
        return added

    command("mysql-rootfs", _build_rootfs, "path", origin, text="print its directory")
    image = command("mysql-image", _build_image, "path", origin, text="print the archive's path")
    _add_mysql_options(image)
    guest = command("guest", _build_guest, "path", origin, text="print the qcow2 image's path")
    _add_mysql_options(guest)
    _add_guest_options(guest)
    check = command(
        "check", _check, "summary", text="boot an image of the profile kvm, and examine the guest"
    )
    check.add_argument("image", type=Path, metavar="IMAGE", help="the image; it is not changed")
    check.add_argument(
        "--firmware",
        choices=boot_check.FIRMWARES,
        default=boot_check.BIOS,
        help="what starts the boot loader; uefi needs the package ovmf (default: %(default)s)",
    )
    command("inspection-kernel", _build_kernel, "path", text="print its directory")
    root = command(
        "test-root",
        _build_test_root,
        "path",
        origin,
        text="print its directory; / if this machine is of the Debian that has that Ceph",
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
    command("kvm-probe", _probe_kvm, "virt_type", text="print kvm or qemu")
    return parser


def _common_options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(
        "--cache",
        type=Path,
        default=Path(os.environ.get("TROVE_CEPH_CACHE", DEFAULT_ROOT)),
        help="directory of the cache (default: $TROVE_CEPH_CACHE or %(default)s)",
    )
    parser.add_argument(
        "--format", choices=("text", "json"), default="text", help="form of the result"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error")
    return parser


def _source_options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    origin = parser.add_mutually_exclusive_group()
    origin.add_argument(
        "--mirror", metavar="URL", help="Debian mirror (default: that of this machine's apt)"
    )
    origin.add_argument(
        "--snapshot",
        metavar="DATE",
        help="take packages from the snapshot of that moment, such as 20261101T000000Z, which is "
        "also the time in what is built unless SOURCE_DATE_EPOCH is set",
    )
    parser.add_argument(
        "--snapshot-service",
        metavar="URL",
        default=sources.SNAPSHOT_SERVICE,
        help="where snapshots are, as debian/DATE and debian-security/DATE (default: %(default)s)",
    )
    parser.add_argument(
        "--security-mirror",
        metavar="URL",
        help="mirror of Debian's security updates, which the profile kvm installs (default: that "
        "of this machine's apt)",
    )
    parser.add_argument(
        "--lock",
        type=Path,
        metavar="FILE",
        help="fail if a package has another version than in this file, which an earlier build of "
        "a guest wrote beside its image",
    )
    return parser


def _add_guest_options(guest: argparse.ArgumentParser) -> None:
    guest.add_argument(
        "--profile",
        choices=sorted(profiles.PROFILES),
        default=profiles.EMULATED.name,
        help="kvm is for production; emulated is for hosts without KVM, and has unsafe kernel "
        "arguments; stock has Trove's own agent without trove_ceph, to measure against "
        "(default: %(default)s)",
    )
    guest.add_argument(
        "--message-bus-ca",
        type=Path,
        metavar="FILE",
        help="PEM file with the CA of RabbitMQ's certificate; guests have it as "
        f"/{cloud_settings.BUS_CA}",
    )
    guest.add_argument(
        "--time-server",
        action="append",
        default=[],
        metavar="HOST",
        type=_time_server,
        help="NTP server of guests of the profile kvm; may be repeated (default: those that DHCP "
        "offers, then Debian's)",
    )
    guest.add_argument(
        "--dry-run",
        action="store_true",
        help="print as JSON what would be built, and what is missing here; needs no root",
    )
    source = guest.add_mutually_exclusive_group()
    source.add_argument("--wheel", type=Path, help="trove_ceph wheel to install in the guest")
    source.add_argument(
        "--project",
        type=Path,
        metavar="DIR",
        help="checkout to build that wheel from (default: the checkout or the installation that "
        "this program belongs to)",
    )
    guest.add_argument(
        "--constraints",
        type=Path,
        metavar="FILE",
        help="pip constraints of the guest agent's environment (default: the versions that this "
        "release was tested with)",
    )


def _time_server(name: str) -> str:
    try:
        return cloud_settings.time_server(name)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


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
        raise BuildError("building needs root; run it with sudo")


def _prepare(progress: Progress) -> None:
    _need_root(progress)
    commands.enter_private_mounts()


def _locked(
    arguments: argparse.Namespace, progress: Progress
) -> tuple[Cache, AbstractContextManager[None]]:
    store = Cache(arguments.cache)
    return store, store.locked(lambda: progress.note("another build is running; waiting for it"))


def _origin(arguments: argparse.Namespace) -> Sources:
    lock = sources.read_lock(arguments.lock) if arguments.lock else {}
    if not arguments.snapshot:
        return Sources(
            mirror=arguments.mirror, security_mirror=arguments.security_mirror, lock=lock
        )
    os.environ.setdefault("SOURCE_DATE_EPOCH", str(sources.moment(arguments.snapshot)))
    return sources.snapshot(arguments.snapshot, arguments.snapshot_service, lock)


def _build_rootfs(arguments: argparse.Namespace, progress: Progress) -> dict:
    _prepare(progress)
    origin = _origin(arguments)
    store, lock = _locked(arguments, progress)
    with lock:
        rootfs = mysql_rootfs.ensure_mysql_rootfs(store, progress, sources=origin)
    return {
        "path": str(rootfs.path),
        "hash": rootfs.hash,
        "mysql_version": rootfs.mysql_version,
        "cached": rootfs.cached,
    }


def _check_mysql_options(arguments: argparse.Namespace) -> None:
    if arguments.mysql_image:
        if not arguments.mysql_version:
            raise BuildError("--mysql-image needs --mysql-version")
        if not arguments.mysql_image.is_file():
            raise BuildError(f"--mysql-image {arguments.mysql_image}: no such file")


def _mysql_image(
    arguments: argparse.Namespace, store: Cache, progress: Progress, origin: Sources
) -> docker_archive.MysqlImage:
    if arguments.mysql_image:
        return docker_archive.given_image(arguments.mysql_image, arguments.mysql_version)
    rootfs = mysql_rootfs.ensure_mysql_rootfs(store, progress, sources=origin)
    return docker_archive.ensure_mysql_image(store, progress, rootfs)


def _build_image(arguments: argparse.Namespace, progress: Progress) -> dict:
    _prepare(progress)
    _check_mysql_options(arguments)
    origin = _origin(arguments)
    store, lock = _locked(arguments, progress)
    with lock:
        image = _mysql_image(arguments, store, progress, origin)
    return {
        "path": str(image.path),
        "hash": image.hash,
        "tag": image.tag,
        "mysql_version": image.mysql_version,
        "cached": image.cached,
    }


def _settings(arguments: argparse.Namespace, profile: Profile) -> CloudSettings:
    if arguments.time_server and profile.trimmed:
        raise BuildError(
            f"--time-server: guests of the profile {profile.name} have the clock of their "
            f"hypervisor; use --profile {profiles.KVM.name}"
        )
    ca = cloud_settings.read_ca(arguments.message_bus_ca) if arguments.message_bus_ca else ""
    return CloudSettings(bus_ca=ca, time_servers=tuple(arguments.time_server))


def _constraints(arguments: argparse.Namespace) -> Path:
    path = arguments.constraints or wheels.default_constraints()
    if path is None:
        raise BuildError(
            "this installation has no list of tested versions; name one with --constraints"
        )
    if not path.is_file():
        raise BuildError(f"--constraints {path}: no such file")
    return path


def _wheel(arguments: argparse.Namespace, store: Cache, progress: Progress, work: Path) -> Path:
    """Return the wheel for the guest.

    :param work: directory for one that is packed from the installation.
    """
    if arguments.wheel:
        return arguments.wheel
    project = arguments.project or wheels.checkout()
    if project is None:
        return wheels.pack_installed(work)
    return wheels.ensure_wheel(store, progress, project)


def _build_guest(arguments: argparse.Namespace, progress: Progress) -> dict:
    progress.current = "arguments"
    profile = profiles.PROFILES[arguments.profile]
    _check_mysql_options(arguments)
    settings, constraints = _settings(arguments, profile), _constraints(arguments)
    origin = _origin(arguments)
    if arguments.dry_run:
        arguments.format = "json"
        return _dry_run(arguments, profile, settings, constraints, origin)
    _prepare(progress)
    store, lock = _locked(arguments, progress)
    with lock, tempfile.TemporaryDirectory(prefix="trove-ceph-image-") as work:
        inputs = guest_image.Inputs(
            profile=profile,
            image=_mysql_image(arguments, store, progress, origin),
            wheel_file=_wheel(arguments, store, progress, Path(work)),
            constraints=constraints,
            settings=settings,
            origin=origin,
        )
        guest = guest_image.ensure_guest_image(store, progress, inputs)
    result = {
        "path": str(guest.path),
        "hash": guest.hash,
        "mysql_version": guest.mysql_version,
        "cached": guest.cached,
        "min_disk_gib": disk.MIN_DISK_GIB,
        "profile": profile.name,
        "bill_of_materials": str(guest.bill),
        "lock": str(guest.lock),
    }
    return result if profile.trimmed else result | {"files": str(guest.files)}


def _dry_run(
    arguments: argparse.Namespace,
    profile: Profile,
    settings: CloudSettings,
    constraints: Path,
    origin: Sources,
) -> dict:
    """Return what a build would do, having checked all that can be checked without root."""
    with tempfile.TemporaryDirectory(prefix="trove-ceph-image-") as work:
        wheel: dict[str, str] = {}
        if arguments.wheel or not (arguments.project or wheels.checkout()):
            path = arguments.wheel or wheels.pack_installed(Path(work))
            wheel = {"name": path.name, "hash": wheels.contents_hash(path)}
    suite, updates = guest_base.SUITE, profile.security_updates
    return {
        "profile": profile.name,
        "kernel_arguments": profile.kernel_arguments,
        "packages": sorted({*guest_base.PACKAGES, *profile.packages}),
        "sources": origin.lines(suite, updates=updates),
        "constraints": str(constraints),
        "pins": len(guest_base.pinned(constraints)),
        "wheel": wheel or {"project": str(arguments.project or wheels.checkout())},
        "files": sorted(f"/{name}" for name in settings.files()),
        "missing": debian.missing_tools(uefi=bool(profile.layout.esp_mib)),
    }


def _check(arguments: argparse.Namespace, progress: Progress) -> dict:
    progress.current = "arguments"
    if not arguments.image.is_file():
        raise BuildError(f"{arguments.image}: no such file")
    with tempfile.TemporaryDirectory(prefix="trove-ceph-image-") as work:
        facts = boot_check.boot(arguments.image, arguments.firmware, progress, work=Path(work))
    problems = boot_check.problems(facts, arguments.firmware)
    if problems:
        raise BuildError(f"{arguments.image} is not fit for production: {'; '.join(problems)}")
    shown = "\n".join(f"{name}: {value}" for name, value in sorted(facts.items()))
    return {"summary": shown, "facts": facts, "firmware": arguments.firmware}


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
            sources=_origin(arguments),
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
