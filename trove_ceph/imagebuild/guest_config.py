# SPDX-License-Identifier: Apache-2.0
"""Configures a guest: users, units, udev, cloud-init.

The files of each guest are in ``files/guest-common``, those of guests with trove_ceph in
``files/guest``, and those of a profile in ``files/guest-<profile>``.
"""

import os
import shutil
from pathlib import Path

from trove_ceph.imagebuild import commands
from trove_ceph.imagebuild.cloud_settings import CloudSettings
from trove_ceph.imagebuild.guest_base import VENV
from trove_ceph.imagebuild.profiles import Profile

AGENT_USER = "trove"
AGENT_UID = 1000
# The user that Trove gives the database's container by default.
DATABASE_USER = "database"
DATABASE_UID = 1001

_FILES = Path(__file__).resolve().parent / "files"
_AGENT_DIRECTORIES = (
    *("etc/trove", "etc/trove/certs", "etc/trove/conf.d"),
    *("var/lib/trove", "var/log/trove", "opt/trove-guestagent"),
)
_ENABLED_UNITS = (
    *("containerd.service", "docker.service", "docker.socket", "docker-hostnic.socket"),
    *("guest-agent.service", "systemd-networkd.service"),
    *("ssh.service", "serial-getty@ttyS0.service"),
)
_MASKED_GENERATORS = (
    *("systemd-gpt-auto-generator", "systemd-hibernate-resume-generator"),
    *("systemd-rc-local-generator", "systemd-ssh-generator", "systemd-system-update-generator"),
    *("systemd-sysv-generator", "systemd-tpm2-generator"),
)
# Each rule file costs emulated seconds while devices appear; these name disks and networks.
_UDEV_RULES_KEPT = (
    *("50-udev-default.rules", "60-block.rules", "60-persistent-storage.rules"),
    *("60-qemu-guest-agent.rules", "80-drivers.rules", "80-net-setup-link.rules"),
    *("90-qemu-guest-agent.rules", "99-systemd.rules"),
)


def configure(root: Path, profile: Profile, settings: CloudSettings, *, log: Path) -> None:
    """Turn the mounted base system into a Trove guest.

    :param settings: what the image has for one cloud.
    """
    _install_files(root, profile)
    _write_fstab(root, profile)
    _configure_identity(root, profile)
    _make_users(root, log)
    _make_agent_directories(root, profile)
    for name, text in settings.files().items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    _configure_units(root, profile, log)
    if profile.trimmed:
        _mask_generators(root)
        _trim_udev(root)
        _skip_login_sessions(root)
    # ConditionNeedsUpdate= units compare these with /usr and stay away.
    for name in ("etc/.updated", "var/.updated"):
        (root / name).touch()


def recipe(profile: Profile) -> list[Path]:
    """Return the files and directories that decide how a guest of a profile is configured."""
    return [*_trees(profile), _masked_units(profile), Path(__file__).resolve()]


def _trees(profile: Profile) -> list[Path]:
    names = ["guest-common", "guest", f"guest-{profile.name}"]
    if not profile.has_trove_ceph:
        names.remove("guest")
    return [_FILES / name for name in names]


def _masked_units(profile: Profile) -> Path:
    return _FILES / f"masked-units-{profile.name}.txt"


def _install_files(root: Path, profile: Profile) -> None:
    for tree in _trees(profile):
        for source in sorted(path for path in tree.rglob("*") if path.is_file()):
            name = source.relative_to(tree)
            target = root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            shutil.copyfile(source, target)
            target.chmod(0o755 if os.access(source, os.X_OK) else 0o644)
    (root / "etc/sudoers.d/60-trove-guest").chmod(0o440)


def _write_fstab(root: Path, profile: Profile) -> None:
    # An emulated guest does not check its root: a journal that is replayed is enough.
    checked = 0 if profile.trimmed else 1
    options = "defaults,noatime,errors=remount-ro"
    line = f"{profile.layout.root_device} / ext4 {options} 0 {checked}\n"
    (root / "etc/fstab").write_text(line)


def _configure_identity(root: Path, profile: Profile) -> None:
    (root / "etc/machine-id").write_text("")
    _link(root / "etc/mtab", "../proc/self/mounts")
    # A trimmed guest has no systemd-resolved, and nothing writes the file: it talks to addresses.
    stub = "/run/systemd/resolve/" + ("resolv.conf" if profile.trimmed else "stub-resolv.conf")
    _link(root / "etc/resolv.conf", stub)


def _make_users(root: Path, log: Path) -> None:
    agent = ["--uid", str(AGENT_UID), "--create-home", "--shell", "/bin/bash"]
    agent += ["--groups", "sudo,docker", AGENT_USER]
    commands.run(["useradd", *agent], root=root, log=log)
    commands.run(["groupadd", "--gid", str(DATABASE_UID), DATABASE_USER], root=root, log=log)
    database = ["--uid", str(DATABASE_UID), "--gid", str(DATABASE_UID), "--no-create-home"]
    commands.run(["useradd", *database, DATABASE_USER], root=root, log=log)


def _make_agent_directories(root: Path, profile: Profile) -> None:
    for name in _AGENT_DIRECTORIES:
        path = root / name
        path.mkdir(parents=True, exist_ok=True)
        os.chown(path, AGENT_UID, 0)
    agent = "trove-ceph-guestagent" if profile.has_trove_ceph else "trove-guestagent"
    for program in ("trove-docker-plugin", agent):
        _link(root / "usr/local/bin" / program, f"{VENV}/bin/{program}")


def _configure_units(root: Path, profile: Profile, log: Path) -> None:
    units = root / "etc/systemd/system"
    listed = _masked_units(profile).read_text().splitlines()
    for unit in (line for line in listed if line and not line.startswith("#")):
        _link(units / unit, "/dev/null")
    own = ["guest-configured.service", "trove-database.service"] if profile.has_trove_ceph else []
    enabled = [*_ENABLED_UNITS, *own, *profile.units]
    commands.run(["systemctl", "enable", *enabled], root=root, log=log)


def _mask_generators(root: Path) -> None:
    for generator in _MASKED_GENERATORS:
        _link(root / "etc/systemd/system-generators" / generator, "/dev/null")


def _trim_udev(root: Path) -> None:
    for rules in (root / "usr/lib/udev/rules.d").glob("*.rules"):
        if rules.name not in _UDEV_RULES_KEPT:
            _link(root / "etc/udev/rules.d" / rules.name, "/dev/null")


def _skip_login_sessions(root: Path) -> None:
    """Start no user manager for a login: logind is masked and would be waited for."""
    path = root / "etc/pam.d/common-session"
    lines = path.read_text().splitlines(True)
    path.write_text("".join(line for line in lines if "pam_systemd.so" not in line))


def _link(path: Path, target: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(target)
