# SPDX-License-Identifier: Apache-2.0
"""Apply the profile of a hyper-converged host to this machine and a running lab, and undo it.

Nova and the OSDs read their parts when they start, from the playbook's files. Here is the rest: the
CPUs of what runs already, Ceph's configuration and the kernel's parameters.
"""

import json
import subprocess

from driver import cpu_split, kernel_parameters
from driver.errors import LabError
from hci_profile import profile as profiles

COMMAND_TIMEOUT_SEC = 60
#: Reports of the benchmark show what is noted in Ceph under such a key.
NOTE = 'trove-ceph-bench/profile'


def settle(settings) -> None:
    """Give the running lab the profile of the settings, after the playbook.

    :raises LabError: a process cannot have its CPUs, or Ceph does not answer.
    """
    profile = profiles.find(settings.root)
    if profile is None:
        withdraw(settings)
        return
    refused = kernel_parameters.ensure_set(_earlier(settings), profile.sysctl)
    refused |= _configure_ceph(settings, profile.ceph)
    _must(settings, 'config-key', 'set', NOTE, note(profile))
    divide(settings, profile, applied=True)
    for line in summary(profile, refused):
        print(f'lab: {line}')


def withdraw(settings) -> None:
    """Undo what :func:`settle` did for a profile; without one, change nothing."""
    kernel_parameters.restore(_earlier(settings))
    configured = _configured(settings)
    if configured.exists():
        for who, name in json.loads(configured.read_text()):
            _must(settings, 'config', 'rm', who, name)
        _must(settings, 'config-key', 'rm', NOTE)
        configured.unlink()
    mark = split_mark(settings)
    if mark.exists():
        every = frozenset(json.loads(mark.read_text())['cpus'])
        for pid in _all(cpu_split.running(settings)):
            cpu_split.set_cpus(pid, every)
        mark.unlink()


def restore_kernel(settings) -> None:
    """Undo what :func:`settle` did to this machine, for a lab that is stopped."""
    kernel_parameters.restore(_earlier(settings))


def divide(settings, profile, applied: bool) -> None:
    """Set the CPUs of running OSDs and guests; record whether they are divided.

    :raises LabError: a process cannot have its CPUs.
    """
    for name, pids in cpu_split.running(settings).items():
        cpus = expected_cpus(profile, name) if applied else frozenset(profile.cpus)
        for pid in pids:
            cpu_split.set_cpus(pid, cpus)
    split_mark(settings).write_text(json.dumps({'applied': applied, 'cpus': profile.cpus}))


def expected_cpus(profile, name: str) -> frozenset[int]:
    """Return the CPUs of an OSD or a guest while they are divided."""
    return frozenset(profile.osd_cpus if name.startswith('osd.') else profile.guest_cpus)


def is_divided(settings) -> bool:
    """Return whether OSDs and guests are to have CPUs of their own now."""
    mark = split_mark(settings)
    return mark.exists() and json.loads(mark.read_text())['applied']


def summary(profile, refused: dict[str, str]) -> list[str]:
    """Return what is applied, how it was scaled and what was refused, a line each."""
    lines = [
        f'profile hci: {describe_cpus(profile, True)}; osd_memory_target '
        f'{profile.osd_memory_target_mib} MiB for {", ".join(profile.osds)}; '
        f'Nova admits {profile.guests} guests of the flavor db.hci'
    ]
    if (profile.cpu_scale, profile.memory_scale) != (1, 1):
        lines.append(
            f'scaled down: the plan is for a host with {profile.cpu_scale} times the CPUs and '
            f'{profile.memory_scale} times the memory and disk of this machine; its MiB are '
            f'divided by {profile.memory_scale}, its CPUs by {profile.cpu_scale} and rounded to '
            'cores'
        )
    lines += [f'refused here: {name}: {reason}' for name, reason in refused.items()]
    return lines


def note(profile) -> str:
    """Return one line about the profile for the reports of the benchmark."""
    scaled = ''
    if (profile.cpu_scale, profile.memory_scale) != (1, 1):
        scaled = (
            f'; the plan is for a host with {profile.cpu_scale} times the CPUs and '
            f'{profile.memory_scale} times the memory'
        )
    return (
        f'profile hci: {describe_cpus(profile, True)}, unless a variant lifts this; '
        f'osd_memory_target {profile.osd_memory_target_mib} MiB{scaled}'
    )


def describe_cpus(profile, applied: bool) -> str:
    """Return one line about the CPUs of OSDs and guests."""
    if not applied:
        return f'OSDs and guests share the CPUs {profiles.cpu_list(profile.cpus)}'
    shared = '' if profile.host_cpus or profile.cpu_scale == 1 else ', the host with them'
    return (
        f'OSDs on the CPUs {profiles.cpu_list(profile.osd_cpus)}{shared}, guests on '
        f'{profiles.cpu_list(profile.guest_cpus)}'
    )


def split_mark(settings):
    """Return the file that records whether the CPUs are divided."""
    return settings.root / 'state' / 'cpu-split.json'


def _earlier(settings):
    return settings.root / 'state' / 'sysctl-before-hci.json'


def _configured(settings):
    return settings.root / 'state' / 'ceph-config-of-hci.json'


def _all(running):
    return [pid for pids in running.values() for pid in pids]


def _configure_ceph(settings, commands):
    """Set options of Ceph; return {option: reason} of those that this Ceph does not have."""
    configured = _configured(settings)
    # Those of an earlier plan as well, which this one may lack.
    names = json.loads(configured.read_text()) if configured.exists() else []
    names += [pair for who, name, _ in commands if (pair := [who, name]) not in names]
    # First: an interrupted run must be undone, too. Removing an option that is not set is no error.
    configured.write_text(json.dumps(names, indent=1))
    refused = {}
    for who, name, value in commands:
        done = _ceph(settings, 'config', 'set', who, name, value)
        if done.returncode:
            refused[f'{who} {name}'] = done.stderr.strip()[-200:]
    return refused


def _must(settings, *words):
    """Run a command of Ceph.

    :raises LabError: it failed.
    """
    done = _ceph(settings, *words)
    if done.returncode:
        raise LabError(
            f'ceph {" ".join(words)}: {done.stderr.strip()[-200:]}; the next make lab tries again'
        )


def _ceph(settings, *words):
    conf = settings.root / 'etc' / 'ceph' / 'ceph.conf'
    try:
        return subprocess.run(
            ['ceph', '--conf', str(conf), *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_SEC,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LabError(
            f'ceph {" ".join(words)}: {error}; make lab-status shows the OSDs'
        ) from error
