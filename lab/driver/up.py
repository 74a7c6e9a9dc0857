# SPDX-License-Identifier: Apache-2.0
"""Bring the cloud up: tools first, then the playbook."""

import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

from driver import machine_profile, preflight, processes, release
from driver.errors import LabError
from driver.settings import LAB_DIR, STOCK

LOCK = '/run/lock/trove-ceph-lab.lock'
APT_ATTEMPTS = 3
ORPHAN_TIMEOUT_SEC = 30
SECOND_COMPUTE_PLAYBOOK = 'second_compute.yml'
WARM_GUESTS_PLAYBOOK = 'warm_guests.yml'
WARM_GUESTS_CONF = 'trove-taskmanager.d/warm-guests.conf'


def check(settings, args) -> int:
    """Check whether the machine can run the lab."""
    preflight.check(settings)
    print('lab: this machine can run the lab')
    return 0


def up(settings, args) -> int:
    """Install missing packages, start everything, run the main job."""
    started = time.monotonic()
    preflight.check(settings)
    with exclusive():
        settings.root.mkdir(parents=True, exist_ok=True)
        settings.mark.touch()
        if not processes.supervisord_pid(settings):
            # Processes that a dead supervisord left would block its successor.
            processes.terminate(processes.lab_pids(settings), ORPHAN_TIMEOUT_SEC)
        # A stopped process would not answer.
        processes.resume(processes.of_second_host(settings))
        ensure_tools(settings)
        release.record(settings)
        code = run_playbook(settings, started)
        if not code and settings.values['second_compute']:
            code = run_playbook(settings, started, SECOND_COMPUTE_PLAYBOOK)
        if code:
            raise LabError(
                'the cloud is not complete; the failed task is above. '
                'The next run continues from there. '
                f'All logs: {settings.root}/log'
            )
        machine_profile.settle(settings)
        (settings.root / 'state' / 'installed').touch()
        if args.cloud_only:
            return 0
        return run_main_job(settings, started) or keep_warm_guests(settings, started)


def keep_warm_guests(settings, started: float) -> int:
    """Have the task manager keep the pool of warm guests; return the exit code."""
    has_pool = (settings.root / 'etc' / WARM_GUESTS_CONF).exists()
    if not has_pool and not settings.values['warm_guests']:
        return 0
    if settings.values['backups'] == STOCK:
        # Trove's own reads no settings of guests.
        return 0
    return run_playbook(settings, started, WARM_GUESTS_PLAYBOOK)


def run_main_job(settings, started: float) -> int:
    """Create the tenant's database and report on it; return the exit code."""
    command = [
        str(settings.root / 'venv' / 'bin' / 'python'),
        '-m',
        'main_job',
        str(settings.root / 'run' / 'settings.json'),
    ]
    environ = dict(os.environ, PYTHONPATH=str(LAB_DIR), LAB_STARTED=repr(_epoch(started)))
    return call(command, environ)


@contextlib.contextmanager
def exclusive():
    """Hold the lock that prevents two runs at the same time."""
    with open(LOCK, 'a') as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise LabError(f'another run is in progress (it holds {LOCK})') from None
        # A playbook may outlive its driver, and must keep the lock.
        os.set_inheritable(lock.fileno(), True)
        yield


def ensure_tools(settings) -> None:
    """Install Ansible, uv and supervisor into an environment of their own.

    :raises LabError: a package cannot be installed.
    """
    tools = settings.root / 'ansible'
    digest = _tools_digest()
    mark = tools / '.complete'
    if mark.exists() and mark.read_text() == digest:
        return
    print('lab: installing Ansible …', flush=True)
    (settings.root / 'log').mkdir(exist_ok=True)
    log = settings.root / 'log' / 'tools.log'
    if not _has_venv():
        _apt(['python3-venv'], log)
    shutil.rmtree(tools, ignore_errors=True)
    _logged(['/usr/bin/python3', '-m', 'venv', str(tools)], log)
    _logged(
        [
            str(tools / 'bin' / 'pip'),
            'install',
            '--quiet',
            '-r',
            str(LAB_DIR / 'tools-requirements.txt'),
            '-c',
            str(LAB_DIR / 'constraints.txt'),
        ],
        log,
    )
    mark.write_text(digest)


def run_playbook(settings, started: float, playbook: str = 'site.yml') -> int:
    """Run one of the lab's playbooks with the settings; return its exit code.

    :param started: ``time.monotonic()`` of the run's start, from which the
        playbook computes the elapsed time.
    :raises LabError: the settings name another release of OpenStack than the lab has.
    """
    release.require(settings)
    variables = settings.root / 'run' / 'settings.json'
    variables.parent.mkdir(parents=True, exist_ok=True)
    variables.write_text(json.dumps(settings.playbook_vars(), indent=1))
    environ = dict(os.environ)
    # With this variable Python writes no bytecode, and every service of the
    # cloud would compile its modules at each start.
    environ.pop('PYTHONDONTWRITEBYTECODE', None)
    environ |= {
        'ANSIBLE_CONFIG': str(LAB_DIR / 'ansible.cfg'),
        'ANSIBLE_LOG_PATH': str(settings.root / 'log' / 'ansible.log'),
        'LAB_STARTED': repr(_epoch(started)),
        'LC_ALL': 'C.UTF-8',
    }
    command = [
        str(settings.root / 'ansible' / 'bin' / 'ansible-playbook'),
        '-i',
        'localhost,',
        str(LAB_DIR / playbook),
        '-e',
        f'@{variables}',
    ]
    return call(command, environ)


def call(command, environ) -> int:
    """Run a command in the foreground, with the lock if it is held; return its exit code."""
    process = subprocess.Popen(
        command, env=environ, cwd=LAB_DIR, stdin=subprocess.DEVNULL, close_fds=False
    )
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.wait()
        raise


def _epoch(started):
    return time.time() - (time.monotonic() - started)


def _tools_digest():
    digest = hashlib.sha256()
    for name in ('tools-requirements.txt', 'constraints.txt'):
        digest.update((LAB_DIR / name).read_bytes())
    return digest.hexdigest()


def _has_venv():
    return (
        subprocess.run(
            ['/usr/bin/python3', '-c', 'import ensurepip, venv'], capture_output=True
        ).returncode
        == 0
    )


def _apt(packages, log):
    environ = dict(os.environ, DEBIAN_FRONTEND='noninteractive')
    install = [
        'apt-get',
        '-o',
        'DPkg::Lock::Timeout=600',
        'install',
        '-y',
        '--no-install-recommends',
        *packages,
    ]
    for attempt in range(APT_ATTEMPTS):
        try:
            _logged(['apt-get', 'update'], log, environ)
            return _logged(install, log, environ)
        except LabError:
            if attempt == APT_ATTEMPTS - 1:
                raise


def _logged(command, log: pathlib.Path, environ=None):
    with open(log, 'ab') as out:
        done = subprocess.run(
            command, env=environ, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
        )
    if done.returncode:
        tail = log.read_text(errors='replace').splitlines()[-10:]
        print('\n'.join(f'  | {line}' for line in tail), file=sys.stderr)
        raise LabError(f'{command[0]} failed with exit code {done.returncode}; see {log}')
