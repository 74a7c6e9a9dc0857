# SPDX-License-Identifier: Apache-2.0
"""Loads a container image into a guest's docker store with the guest's own daemon."""

from pathlib import Path

from trove_ceph.imagebuild import commands

# The daemon runs in a chroot with its network off; it is stopped by SIGTERM so that it closes
# its database, and it is killed with the whole process namespace if the build is.
_SCRIPT = """
set -eu
dockerd --storage-driver=overlay2 --bridge=none --iptables=false --ip6tables=false \
    --host=unix:///run/docker.sock --pidfile=/run/dockerd.pid &
daemon=$!
waited=0
until docker version >/dev/null 2>&1; do
    kill -0 $daemon
    waited=$((waited + 1))
    [ $waited -lt 300 ] || { echo 'dockerd does not answer after 60 s' >&2; exit 1; }
    sleep 0.2
done
docker load
docker image inspect --format '{{.Id}}' "$1"
kill $daemon
wait $daemon || true
rm -rf /var/lib/docker/tmp /var/lib/docker/runtimes
"""


def load_image(root: Path, archive: Path, tag: str, *, log: Path) -> None:
    """Load a docker-archive into ``/var/lib/docker`` below a root.

    :param tag: the name the image must have afterwards.
    :raises BuildError: when the daemon does not start or the archive holds no such image.
    """
    # The mounts belong to the build's private namespace; this copy of them is gone with it.
    for source, target, how in (
        (str(root), root, "--bind"),
        ("/sys", root / "sys", "--rbind"),
        ("/dev", root / "dev", "--rbind"),
    ):
        commands.mount([how, source, str(target)], log=log)
    commands.mount(["-t", "tmpfs", "tmpfs", str(root / "run")], log=log)
    try:
        commands.run(["sh", "-c", _SCRIPT, "sh", tag], root=root, stdin=archive, log=log)
    finally:
        commands.unmount_all(root, log=log)
