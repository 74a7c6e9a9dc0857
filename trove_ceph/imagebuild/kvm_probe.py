# SPDX-License-Identifier: Apache-2.0
"""Check whether this machine runs ordinary guests with KVM.

The existence of ``/dev/kvm`` proves nothing: on some nested hosts every ordinary guest hangs.
So two guests are booted: a boot sector that writes one letter, which fails fast if KVM is
useless, and then the kernel of the guest image.
"""

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from trove_ceph.imagebuild import guest_base
from trove_ceph.imagebuild.cache import Cache
from trove_ceph.imagebuild.profiles import EMULATED
from trove_ceph.imagebuild.progress import Progress

KVM = "kvm"
EMULATION = "qemu"

_DEVICE = Path("/dev/kvm")
_BOOT_LIMIT_SEC = 10
_POLL_SEC = 0.1
# mov dx, 0x3f8 (first serial port); mov al, 'K'; out dx, al; hlt; jmp to the hlt
_BOOT_SECTOR = bytes.fromhex("baf803b04beef4ebfd").ljust(510, b"\0") + b"\x55\xaa"
_KERNEL_ARGUMENTS = "console=ttyS0 loglevel=4 panic=-1"


def probe(store: Cache, progress: Progress) -> str:
    """Return ``kvm`` if a guest boots with it within ten seconds, otherwise ``qemu``.

    Call with the cache locked.  Without a guest kernel in the cache the result is ``qemu``.
    """
    if not _DEVICE.exists():
        progress.note(f"kvm-probe: there is no {_DEVICE}")
        return EMULATION
    work = store.scratch("kvm-probe")
    sector = work / "boot.img"
    sector.write_bytes(_BOOT_SECTOR)
    drive = ["-drive", f"file={sector},format=raw,if=ide"]
    with progress.stage("kvm-probe: boot a boot sector"):
        booted = boots(drive, "K", work / "sector.log", limit_sec=_BOOT_LIMIT_SEC)
    if not booted:
        progress.note("kvm-probe: a guest hangs under KVM on this machine")
        return EMULATION
    kernel = _newest_kernel(store)
    if kernel is None:
        progress.note("kvm-probe: there is no guest kernel in the cache to test KVM with")
        return EMULATION
    direct = ["-kernel", str(kernel), "-initrd", str(kernel.with_name(guest_base.INITRD))]
    direct += ["-append", _KERNEL_ARGUMENTS]
    with progress.stage("kvm-probe: boot the guest's kernel"):
        booted = boots(direct, "initrd: started", work / "kernel.log", limit_sec=_BOOT_LIMIT_SEC)
    return KVM if booted else EMULATION


def boots(
    media: Sequence[str], expected: str, serial: Path, *, limit_sec: float, accelerator: str = KVM
) -> bool:
    """Return whether a guest writes the expected text to its serial port in time.

    :param media: QEMU arguments that name the boot medium or kernel.
    :param serial: file for the serial port's output.
    """
    argv = ["qemu-system-x86_64", "-accel", accelerator, "-m", "256", "-smp", "1"]
    argv += ["-display", "none", "-no-reboot", "-nodefaults", "-serial", f"file:{serial}", *media]
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as guest:
        try:
            deadline = time.monotonic() + limit_sec
            while time.monotonic() < deadline:
                if serial.exists() and expected in serial.read_text(errors="replace"):
                    return True
                if guest.poll() is not None:
                    return False
                time.sleep(_POLL_SEC)
            return False
        finally:
            guest.kill()


def _newest_kernel(store: Cache) -> Path | None:
    kernels = store.root.glob(f"{EMULATED.base_kind}-*/{guest_base.KERNEL}")
    return max(kernels, key=lambda path: path.stat().st_mtime, default=None)
