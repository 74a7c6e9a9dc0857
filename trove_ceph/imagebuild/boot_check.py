# SPDX-License-Identifier: Apache-2.0
"""Boots a guest image in QEMU, and examines the guest through its first serial port.

A config drive has a script that cloud-init runs at the end of the boot. It prints facts on the
console. The image is not changed: writes go to a temporary file.
"""

import json
import re
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from trove_ceph.imagebuild.errors import BuildError
from trove_ceph.imagebuild.progress import Progress

BIOS = "bios"
UEFI = "uefi"
FIRMWARES = (BIOS, UEFI)

_OVMF = (Path("/usr/share/OVMF/OVMF_CODE_4M.fd"), Path("/usr/share/OVMF/OVMF_VARS_4M.fd"))
_PROGRAMS = {"qemu-system-x86_64": "qemu-system-x86", "genisoimage": "genisoimage"}
_FACT = re.compile(r"^.*?trove-ceph-check: (\w+)=(.*?)\s*$", re.MULTILINE)
_LIMIT_SEC = 1200
_POLL_SEC = 0.5
# The guest is emulated, so that the check works on each machine. The processor lacks an instruction
# that QEMU 7.2 emulates wrongly.
_CPU = "Nehalem,-cx16"
_SCRIPT = Path(__file__).resolve().parent / "files" / "boot-check"


def boot(image: Path, firmware: str, progress: Progress, *, work: Path) -> dict[str, str]:
    """Boot an image and return what the guest reports, by the names of the facts.

    :param firmware: one of :data:`FIRMWARES`.
    :param work: an empty directory.
    :raises BuildError: a program is missing, or the guest does not report in 20 minutes
    """
    _need_programs(firmware)
    drive = _config_drive(work)
    serial = work / "serial.log"
    argv = _command(image, firmware, drive, serial, work)
    with progress.stage(f"check: boot {image.name} from {firmware}"):
        log = work / "qemu.log"
        with open(log, "wb") as output:
            guest = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
        try:
            return _wait(guest, serial, log)
        finally:
            guest.kill()
            guest.wait()


def facts(console: str) -> dict[str, str]:
    """Return the facts in the output of a serial port."""
    return dict(_FACT.findall(console.replace("\r", "")))


def problems(found: Mapping[str, str], firmware: str) -> list[str]:
    """Return what makes a guest unfit for production; empty if nothing does."""
    arguments = found["cmdline"].split()
    unsafe = {"mitigations=off", "nokaslr", "apparmor=0", "tsc=reliable"} & set(arguments)
    checks = {
        f"it booted from {found['firmware']}, not {firmware}": found["firmware"] == firmware,
        f"its kernel has the arguments {' '.join(sorted(unsafe))}": not unsafe,
        f"AppArmor is not among {found['lsm']}": "apparmor" in found["lsm"].split(","),
        f"AppArmor is {found['apparmor']}": found["apparmor"].startswith("active"),
        f"a processor is vulnerable: {found['mitigations']}": "Vulnerable"
        not in (found["mitigations"]),
        f"systemd-timesyncd is {found['time']}": found["time"] == "active",
        f"the resolver is {found['resolver']}": found["resolver"].startswith("active "),
        f"it detects duplicates of IPv6 addresses: {found['dad']}": found["dad"] == "0",
        f"the agent is {found['agent']}": found["agent"] == "enabled",
        f"docker is {found['docker']}": found["docker"].startswith("active mysql:"),
        f"containers are confined by {found['confinement']}": "apparmor" in found["confinement"],
    }
    return [problem for problem, fit in checks.items() if not fit]


def _need_programs(firmware: str) -> None:
    missing = {name: package for name, package in _PROGRAMS.items() if not shutil.which(name)}
    if firmware == UEFI:
        missing |= {str(path): "ovmf" for path in _OVMF if not path.exists()}
    if missing:
        raise BuildError(
            f"missing: {', '.join(missing)}; install the packages "
            f"{' '.join(sorted(set(missing.values())))}"
        )


def _config_drive(work: Path) -> Path:
    latest = work / "config/openstack/latest"
    latest.mkdir(parents=True)
    identity = {"uuid": "2f6b1f0e-check", "hostname": "check", "name": "check"}
    (latest / "meta_data.json").write_text(json.dumps(identity))
    shutil.copyfile(_SCRIPT, latest / "user_data")
    target = work / "config.iso"
    argv = ["genisoimage", "-quiet", "-R", "-J", "-V", "config-2", "-o", str(target)]
    subprocess.run([*argv, str(work / "config")], check=True)
    return target


def _command(image: Path, firmware: str, drive: Path, serial: Path, work: Path) -> list[str]:
    argv = ["qemu-system-x86_64", "-machine", "q35", "-m", "1536", "-smp", "1"]
    argv += ["-display", "none", "-no-reboot", "-nodefaults", "-snapshot"]
    argv += ["-accel", "tcg,tb-size=256", "-cpu", _CPU]
    if firmware == UEFI:
        code, variables = _OVMF
        copied = work / variables.name
        shutil.copyfile(variables, copied)
        argv += ["-drive", f"if=pflash,format=raw,readonly=on,file={code}"]
        argv += ["-drive", f"if=pflash,format=raw,file={copied}"]
    argv += ["-drive", f"if=virtio,format=qcow2,file={image}"]
    argv += ["-device", "virtio-scsi-pci", "-device", "scsi-cd,drive=config"]
    argv += ["-drive", f"if=none,id=config,format=raw,readonly=on,file={drive}"]
    argv += ["-netdev", "user,id=net,restrict=on", "-device", "virtio-net-pci,netdev=net"]
    argv += ["-device", "virtio-rng-pci", "-serial", f"file:{serial}"]
    return argv


def _wait(guest: subprocess.Popen, serial: Path, log: Path) -> dict[str, str]:
    deadline = time.monotonic() + _LIMIT_SEC
    while True:
        ended = guest.poll() is not None
        console = serial.read_text(errors="replace") if serial.exists() else ""
        found = facts(console)
        if "end" in found:
            del found["end"]
            return found
        if ended:
            said = log.read_text(errors="replace").strip()
            raise BuildError(f"QEMU ended before the guest reported: {said}{_tail(console)}")
        if time.monotonic() > deadline:
            raise BuildError(f"the guest did not report in {_LIMIT_SEC} s{_tail(console)}")
        time.sleep(_POLL_SEC)


def _tail(console: str) -> str:
    lines = console.replace("\r", "").splitlines()[-15:]
    return f"; its console ends:\n{chr(10).join(lines)}" if lines else "; its console is empty"
