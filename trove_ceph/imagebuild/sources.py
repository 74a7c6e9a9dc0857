# SPDX-License-Identifier: Apache-2.0
"""Where Debian's packages come from: a mirror, or a snapshot of a day, and a lock of versions.

A mirror has other versions next month. A snapshot never changes; a lock is the list of the versions
of one build, and makes a build from other versions fail.
"""

import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trove_ceph.imagebuild import commands
from trove_ceph.imagebuild.errors import BuildError

SNAPSHOT_SERVICE = "https://snapshot.debian.org/archive"
LOCK_FORMAT = 1

_SNAPSHOT = re.compile(r"\d{8}T\d{6}Z")
_APT_HELPER = "/usr/lib/apt/apt-helper"
_SHOWN_DIFFERENCES = 6
# The parts of a lock, each a mapping from names to versions.
_PARTS = ("guest", "loaders", "mysql", "python")


@dataclass(frozen=True)
class Sources:
    """Where packages come from.

    :param mirror: URL of a Debian mirror; None: that of this machine's apt.
    :param security_mirror: URL of the archive of security updates; None: as apt, or Debian's own.
    :param snapshot: date of both, as in ``20261101T000000Z``; None: they are no snapshot.
    :param lock: versions by part of the image; empty: any version.
    """

    mirror: str | None = None
    security_mirror: str | None = None
    snapshot: str | None = None
    lock: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def key(self) -> list[Any]:
        """Return what decides the contents of a build; empty if the day of the build does."""
        return [self.snapshot, self.lock] if self.snapshot or self.lock else []

    def locked(self, part: str) -> Mapping[str, str] | None:
        """Return the versions of a part of the image; None: there is no lock."""
        return self.lock[part] if self.lock else None

    def resolved_mirror(self) -> str:
        """Return the URL of the mirror.

        :raises BuildError: none was named, and this machine's apt knows none
        """
        return (self.mirror or _of_apt("Debian")).rstrip("/")

    def resolved_security_mirror(self) -> str:
        """Return the URL of the security archive: what was named, apt's, or that of the mirror."""
        if self.security_mirror:
            return self.security_mirror.rstrip("/")
        if self.mirror:
            raise BuildError(
                f"--mirror {self.mirror} needs --security-mirror: this profile installs security "
                "updates, which are not on that mirror"
            )
        return _of_apt("Debian-Security")

    def lines(self, suite: str, *, updates: bool = False) -> list[str]:
        """Return the lines of apt's list of sources.

        :param updates: with the updates of the suite, and its security archive.
        """
        mirror = self.resolved_mirror()
        lines = [f"deb {mirror} {suite} main"]
        if updates:
            lines.append(f"deb {mirror} {suite}-updates main")
            lines.append(f"deb {self.resolved_security_mirror()} {suite}-security main")
        return lines

    def check(self, suite: str, *, updates: bool, log: Path) -> None:
        """Read the index of each source once, so that an unreachable mirror is told by its name.

        :raises BuildError: one cannot be read
        """
        if not Path(_APT_HELPER).exists():
            return
        for line in self.lines(suite, updates=updates):
            _, url, name, _ = line.split()
            index = f"{url}/dists/{name}/InRelease"
            target = log.with_suffix(".inrelease")
            limits = ["-o", "Acquire::Retries=2", "-o", "Acquire::http::Timeout=30"]
            argv = [_APT_HELPER, *limits, "download-file", index, str(target)]
            try:
                commands.run(argv, log=log)
            except BuildError as error:
                raise BuildError(
                    f"cannot read {index}; check the mirror (--mirror, --security-mirror, "
                    "--snapshot), the network and http_proxy",
                    log=log,
                ) from error
            finally:
                target.unlink(missing_ok=True)

    @staticmethod
    def check_versions(expected: Mapping[str, str], found: Mapping[str, str]) -> None:
        """Compare versions with those of the lock.

        :raises BuildError: they differ
        """
        differences = [
            f"{name} {found.get(name, 'is not installed')}, locked {expected.get(name, 'not')}"
            for name in sorted({*expected, *found})
            if expected.get(name) != found.get(name)
        ]
        if differences:
            shown = "; ".join(differences[:_SHOWN_DIFFERENCES])
            raise BuildError(
                f"{len(differences)} packages are not of the version in the lock: {shown}; name "
                "the --snapshot of the lock, or build without --lock for newer versions"
            )


def snapshot(date: str, service: str, lock: Mapping[str, Mapping[str, str]]) -> Sources:
    """Return the sources of a day.

    :param date: as in ``20261101T000000Z``.
    :param service: URL below which ``debian/DATE`` and ``debian-security/DATE`` are.
    :raises BuildError: the date has another form
    """
    moment(date)
    top = service.rstrip("/")
    return Sources(
        mirror=f"{top}/debian/{date}",
        security_mirror=f"{top}/debian-security/{date}",
        snapshot=date,
        lock=lock,
    )


def moment(date: str) -> int:
    """Return the seconds since 1970 of a snapshot's date.

    :raises BuildError: the date has another form, or there is no such day
    """
    try:
        if not _SNAPSHOT.fullmatch(date):
            raise ValueError(date)
        parsed = datetime.strptime(date, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError as error:
        raise BuildError(f"--snapshot {date} is no date such as 20261101T000000Z") from error
    return int(parsed.timestamp())


def read_lock(path: Path) -> dict[str, dict[str, str]]:
    """Return the versions in a lock that an earlier build wrote.

    :raises BuildError: it cannot be read, or has another format
    """
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise BuildError(f"--lock {path} cannot be read: {error}") from error
    if not isinstance(content, dict) or content.get("format") != LOCK_FORMAT:
        raise BuildError(
            f"--lock {path} is no lock of format {LOCK_FORMAT}; a build writes one beside the image"
        )
    versions = content.get("versions")
    if not isinstance(versions, dict) or set(versions) != set(_PARTS):
        raise BuildError(f"--lock {path}: versions needs the keys {', '.join(_PARTS)}")
    for part, listed in versions.items():
        if not isinstance(listed, dict) or not all(isinstance(v, str) for v in listed.values()):
            raise BuildError(f"--lock {path}: versions of {part} are no names with versions")
    return versions


def lock_content(versions: Mapping[str, Mapping[str, str]], *, snapshot: str | None) -> str:
    """Return the text of a lock."""
    if set(versions) != set(_PARTS):
        raise ValueError(f"versions of {sorted(versions)}, expected {_PARTS}")
    content = {"format": LOCK_FORMAT, "snapshot": snapshot, "versions": versions}
    return json.dumps(content, indent=1, sort_keys=True) + "\n"


def _of_apt(label: str) -> str:
    """Return the URL of an archive of Debian that this machine's apt is configured for.

    :raises BuildError: when apt knows no such archive, as on Ubuntu
    """
    form = "$(CREATED_BY)|$(ORIGIN)|$(LABEL)|$(REPO_URI)"
    try:
        argv = ["apt-get", "indextargets", "--format", form]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        rows = done.stdout.splitlines()
    except FileNotFoundError:
        rows = []
    for line in rows:
        created_by, origin, found, uri = line.split("|", 3)
        if (created_by, origin, found) == ("Packages", "Debian", label):
            return uri.rstrip("/")
    option = "--mirror" if label == "Debian" else "--security-mirror"
    raise BuildError(
        f"apt on this machine has no archive with the label {label} (or 'apt-get update' never "
        f"ran); name one with {option} URL"
    )
