# SPDX-License-Identifier: Apache-2.0
"""Run other programs so that an interrupted build leaves neither processes nor mounts behind.

The build runs in a mount namespace of its own and every long command in a PID namespace of its
own.  When the build dies, even by SIGKILL, the kernel kills the commands, and with the last of
them removes their mounts and loop devices.
"""

import ctypes
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from trove_ceph.imagebuild.errors import BuildError

_CLONE_NEWNS = 0x00020000
_MS_REC = 0x4000
_MS_PRIVATE = 1 << 18

_PASSED_ON = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
# The time that programs write into what they make, in seconds since 1970.
_TIME = "SOURCE_DATE_EPOCH"


def enter_private_mounts() -> None:
    """Move this process into its own mount namespace, from which no mount propagates.

    :raises BuildError: the kernel refuses it, usually because the process is not root.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS) != 0 or (
        libc.mount(b"none", b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None) != 0
    ):
        reason = os.strerror(ctypes.get_errno())
        raise BuildError(f"cannot make a private mount namespace: {reason}; run as root")


def base_environment(**extra: str) -> dict[str, str]:
    """Return the environment of commands: fixed, except for proxies and SOURCE_DATE_EPOCH."""
    environment = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "DEBIAN_FRONTEND": "noninteractive",
        # Compiled modules have sets of constants in the order of their hashes.
        "PYTHONHASHSEED": "0",
    }
    environment.update(
        {name: os.environ[name] for name in (*_PASSED_ON, _TIME) if name in os.environ}
    )
    environment.update(extra)
    return environment


def pip_environment() -> dict[str, str]:
    """Return the environment for pip, with the caller's PIP_* and PBR_* settings."""
    settings = {k: v for k, v in os.environ.items() if k.startswith(("PIP_", "PBR_"))}
    return base_environment(**settings)


def contained(argv: Sequence[str], *, root: Path | None = None) -> list[str]:
    """Wrap a command so that it and all its children die with this process.

    :param root: the command's root directory, with a /proc of its own.
    """
    wrapper = ["setpriv", "--pdeathsig", "KILL"]
    wrapper += ["unshare", "--mount", "--pid", "--fork", "--kill-child=SIGKILL"]
    if root is not None:
        wrapper.append(f"--root={root}")
    return [*wrapper, "--mount-proc", *argv]


def run(
    argv: Sequence[str],
    *,
    log: Path,
    root: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: Path | None = None,
) -> None:
    """Run a command to its end, and append its output to a log.

    :param root: the command's root directory.
    :raises BuildError: the command exits with another status than 0.
    """
    with open(log, "ab") as output, open(stdin or os.devnull, "rb") as source:
        output.write(f"+ {shlex.join(argv)}\n".encode())
        output.flush()
        status = subprocess.run(
            contained(argv, root=root),
            stdin=source,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(env) if env is not None else base_environment(),
            check=False,
        ).returncode
    if status != 0:
        raise BuildError(f"{shlex.join(argv[:4])} ... ended with status {status}", log=log)


def capture(argv: Sequence[str], *, root: Path | None = None) -> str:
    """Return the output of a short command.

    :raises BuildError: the command exits with another status than 0.
    """
    done = subprocess.run(
        contained(argv, root=root),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=base_environment(),
        check=False,
    )
    if done.returncode != 0:
        raise BuildError(f"{shlex.join(argv)} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


@contextmanager
def host_network_files(root: Path) -> Iterator[dict[str, str]]:
    """Give commands in a root directory the machine's name resolution and certificates.

    :returns: their environment; it has the machine's pip settings, with the certificate store
        replaced by the copy that is inside the root during the block.
    """
    certificates = root / "tmp/host-ca-certificates.crt"
    source = os.environ.get("PIP_CERT") or "/etc/ssl/certs/ca-certificates.crt"
    resolver = root / "etc/resolv.conf"
    before = resolver.readlink() if resolver.is_symlink() else None
    resolver.unlink(missing_ok=True)
    shutil.copyfile("/etc/resolv.conf", resolver)
    shutil.copyfile(source, certificates)
    inside = f"/{certificates.relative_to(root)}"
    environment = pip_environment()
    environment.pop("PIP_FIND_LINKS", None)
    try:
        yield environment | {"PIP_CERT": inside, "SSL_CERT_FILE": inside}
    finally:
        certificates.unlink()
        resolver.unlink()
        if before is not None:
            resolver.symlink_to(before)


def mount(arguments: Sequence[str], *, log: Path) -> None:
    """Run mount(8) in this process's private namespace.

    :raises BuildError: mount(8) fails.
    """
    _plain(["mount", *arguments], log=log)


def unmount_all(path: Path, *, log: Path) -> None:
    """Unmount everything at a path and below it."""
    _plain(["umount", "--recursive", str(path)], log=log)


def _plain(argv: Sequence[str], *, log: Path) -> None:
    with open(log, "ab") as output:
        status = subprocess.run(
            argv, stdout=output, stderr=subprocess.STDOUT, env=base_environment(), check=False
        ).returncode
    if status != 0:
        raise BuildError(f"{shlex.join(argv)} ended with status {status}", log=log)
