# SPDX-License-Identifier: Apache-2.0
"""The first process of the virtual machine: a script for the shell of busybox.

It creates the same view as bubblewrap does on a host: the read-only root file system of the MySQL
server, without the directories that describe the machine, and small writable directories. It runs
the program there, on the serial line, and ends the virtual machine when the program ends.
"""

import shlex
from collections.abc import Sequence

from trove_ceph.host import qemu_machine
from trove_ceph.verification import program

#: The names of the disks.
VOLUME, ROOT = 'volume', 'root'
#: A kernel argument: print GREETING to the console and end.
PROBE = 'trove_ceph.probe'
GREETING = 'trove-ceph: the virtual machine runs'
#: The script that runs the program, beside this one.
START = 'start'
#: The kernel modules to load; a kernel can have some of them built in.
MODULES = (
    *('virtio_pci', 'virtio_blk', 'virtio_console', 'virtio_rng', 'squashfs', 'crc32c_generic'),
    'xfs',
)

INIT = f"""\
#!/bin/busybox sh
busybox() {{
    /bin/busybox "$@"
}}
say() {{
    echo "trove-ceph: $*" >/dev/console
}}
end() {{
    say "$*"
    busybox poweroff -f
    busybox sleep 60
}}
# Print the device node of the disk with the given serial number.
find_disk() {{
    for disk in /sys/block/vd*; do
        if [ "$(busybox cat "$disk/serial" 2>/dev/null)" = "$1" ]; then
            echo "/dev/${{disk##*/}}"
            return
        fi
    done
}}
find_line() {{
    for port in /sys/class/virtio-ports/*; do
        if [ "$(busybox cat "$port/name" 2>/dev/null)" = {qemu_machine.LINE} ]; then
            echo "/dev/${{port##*/}}"
            return
        fi
    done
}}
# Run a function until it prints something.
await() {{
    tries=0
    until [ -n "$($1 $2)" ]; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || end "there is no $2"
        busybox sleep 0.1
    done
    $1 $2
}}

busybox mkdir -p /proc /sys /dev /image /view
busybox mount -t proc proc /proc
busybox mount -t sysfs sysfs /sys
busybox mount -t devtmpfs devtmpfs /dev 2>/dev/null
while read -r module; do
    busybox insmod "/modules/$module" || end "cannot load $module"
done </modules/order
case " $(busybox cat /proc/cmdline) " in
    *" {PROBE} "*)
        echo '{GREETING}' >/dev/console
        busybox poweroff -f
        ;;
esac

root=$(await find_disk {ROOT})
volume=$(await find_disk {VOLUME})
line=$(await find_line {qemu_machine.LINE})
busybox mount -t squashfs -o ro,nosuid,nodev "$root" /image || end 'cannot mount the root'

busybox mount -t tmpfs -o mode=755,size=1m,nosuid view /view
for entry in /image/*; do
    name=${{entry##*/}}
    case $name in dev | proc | run | sys | tmp) continue ;; esac
    if [ -L "$entry" ]; then
        busybox ln -s "$(busybox readlink "$entry")" "/view/$name"
    elif [ -d "$entry" ]; then
        busybox mkdir "/view/$name"
        busybox mount --bind "$entry" "/view/$name"
    fi
done
cd /view || end 'there is no view'
busybox mkdir -p dev proc run tmp .{program.DIRECTORY}
busybox mount --bind {program.DIRECTORY} .{program.DIRECTORY}
busybox mount -t proc -o nosuid,nodev,noexec,hidepid=2 proc proc
busybox mount -t tmpfs -o nosuid,nodev,mode=1777,size=64m tmp tmp
busybox mount -t tmpfs -o nosuid,nodev,noexec,mode=755,size=32m run run
busybox mount -t tmpfs -o nosuid,noexec,mode=755,size=64k dev dev
busybox mknod -m 666 dev/null c 1 3
busybox mknod -m 666 dev/zero c 1 5
busybox mknod -m 666 dev/full c 1 7
busybox mknod -m 666 dev/random c 1 8
busybox mknod -m 666 dev/urandom c 1 9
busybox ln -s /proc/self/fd dev/fd
number=$(busybox cat "/sys/block/${{volume##*/}}/dev")
busybox mknod -m 600 dev/volume b "${{number%:*}}" "${{number#*:}}"
busybox mount -o remount,ro,nosuid,noexec dev dev
busybox mount -o remount,ro,nosuid view /view
/bin/busybox sh /{START} <>"$line" >&0
end "the program ended with $?"
"""


def start(words: Sequence[str], environment: dict[str, str]) -> str:
    """Return the script that runs a program in the view."""
    variables = [f'{name}={value}' for name, value in environment.items()]
    command = ['chroot', '/view', '/usr/bin/env', '-i', *variables, *words]
    return f'exec /bin/busybox {shlex.join(command)}\n'
