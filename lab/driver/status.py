# SPDX-License-Identifier: Apache-2.0
"""Show the state of everything that the lab runs, as a table or JSON."""

import dataclasses
import http.client
import json
import os
import re
import subprocess
import time
import urllib.error
import urllib.request

from driver import cpu_split, environment, machine_profile, processes
from driver.errors import LabError
from driver.settings import LAB_DIR
from hci_profile import profile as profiles

API_SERVICES = ('keystone', 'placement', 'glance', 'neutron', 'nova', 'cinder', 'trove')
COMMAND_TIMEOUT_SEC = 60


@dataclasses.dataclass
class Row:
    """One line of the table. ``ok`` is None for information without a verdict."""

    kind: str
    name: str
    state: str
    ok: bool | None
    detail: str = ''


def show(settings, args) -> int:
    """Print the table; return 0 if everything is healthy, 1 otherwise."""
    if not (settings.root / 'etc' / 'supervisord.conf').exists():
        raise LabError('there is no lab yet: run make lab first')
    rows = [
        row
        for part in (_processes, _ceph, _endpoints, _guests, _cpus, _databases)
        for row in part(settings)
    ]
    if args.format == 'json':
        print(json.dumps([dataclasses.asdict(row) for row in rows], indent=1))
    else:
        print(_table(rows))
    return 0 if all(row.ok is not False for row in rows) else 1


def _processes(settings):
    if not processes.supervisord_pid(settings):
        yield Row('process', 'supervisord', 'STOPPED', False, 'run make lab to start it')
        return
    memory = _memory_by_group(settings)
    for line in _supervised(settings, settings.root):
        fields = line.split(None, 2)
        detail = fields[2] if len(fields) > 2 else ''
        match = re.match(r'pid (\d+), uptime (.*)', detail)
        if match:
            mib = memory.get(int(match[1]), 0)
            detail = f'{mib:.0f} MiB, up {match[2]}'
        yield Row('process', fields[0], fields[1], fields[1] == 'RUNNING', detail)
    yield from _processes_of_second_host(settings)


def _processes_of_second_host(settings):
    home = settings.second_host
    if not processes.of_second_host(settings):
        return
    for line in _supervised(settings, home):
        name, state, *rest = line.split(None, 2)
        # Their process ids are those of the host's own namespace.
        detail = re.sub(r'^pid \d+, uptime', 'up', ''.join(rest))
        yield Row('process', f'{home.name} {name}', state, state == 'RUNNING', detail)


def _supervised(settings, home):
    """Return what the supervisord of a home says of its programs, one line for each."""
    control = settings.root / 'ansible/bin/supervisorctl'
    command = [str(control), '-c', str(home / 'etc/supervisord.conf'), 'status']
    return [line for line in _run(settings, command).splitlines() if len(line.split()) > 1]


def _memory_by_group(settings):
    """Return {process group: MiB}, the memory of each service with its workers."""
    total = {}
    for pid in processes.lab_pids(settings):
        try:
            group = os.getpgid(pid)
        except ProcessLookupError:
            continue
        total[group] = total.get(group, 0) + processes.rss_mib(pid)
    return total


def _ceph(settings):
    out = _run(
        settings,
        [
            str(LAB_DIR / 'bin/ceph-cluster'),
            '--root',
            str(settings.root / 'state/ceph'),
            'status',
            '--format',
            'json',
        ],
    )
    try:
        status = json.loads(out)
    except ValueError:
        yield Row('ceph', 'cluster', 'UNREACHABLE', False, out.strip()[-80:])
        return
    health = status['health']
    yield Row('ceph', 'cluster', health, health == 'HEALTH_OK', '; '.join(status['checks']))
    for pool in status['pools']:
        yield Row(
            'ceph',
            f'pool {pool["name"]}',
            'present',
            None,
            f'rule {pool["rule"]}, size {pool["size"]}, {pool["pg_num"]} PGs',
        )


def _endpoints(settings):
    for name in API_SERVICES:
        url = f'http://{settings.host_ip}:{settings.ports[name]}/'
        started = time.monotonic()
        code = _http_code(url)
        latency_ms = (time.monotonic() - started) * 1000
        yield Row(
            'endpoint',
            name,
            str(code or 'no answer'),
            code is not None and code < 500,
            f'{url} {latency_ms:.0f} ms',
        )


def _http_code(url):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=10) as response:
            return response.status
    except urllib.error.HTTPError as e:
        return e.code
    except (OSError, http.client.HTTPException):
        return None


def _guests(settings):
    for pid, name in processes.guests(settings).items():
        yield Row('guest', name, 'running', True, f'{processes.rss_mib(pid):.0f} MiB, pid {pid}')


def _cpus(settings):
    """Yield the CPUs that each OSD and each guest may use, as the kernel has them."""
    profile = profiles.find(settings.root)
    divided = profile is not None and machine_profile.is_divided(settings)
    for name, pids in cpu_split.running(settings).items():
        for pid in pids:
            cpus = cpu_split.cpus_of(pid)
            expected = machine_profile.expected_cpus(profile, name) if divided else None
            detail = 'profile hci' if divided else 'not divided'
            if divided and cpus != expected:
                detail = (
                    f'profile hci: {profiles.cpu_list(expected)}; lab/bin/lab hci apply sets it'
                )
            ok = cpus == expected if divided else None
            yield Row('CPUs', name, profiles.cpu_list(cpus) or 'gone', ok, f'{detail}, pid {pid}')


def _databases(settings):
    client = settings.root / 'venv' / 'bin' / 'openstack'
    for identity in ('tenant', 'admin'):
        try:
            variables = environment.credentials(settings, identity)
        except LabError as e:
            yield Row('database', 'all', 'UNREACHABLE', False, str(e))
            return
        out = _run(settings, [str(client), 'database', 'instance', 'list', '-f', 'json'], variables)
        try:
            instances = json.loads(out)
        except ValueError:
            yield Row('database', f'of {identity}', 'UNREACHABLE', False, out.strip()[-80:])
            continue
        for instance in instances:
            yield _database_row(instance)


def _database_row(instance):
    health = instance.get('Operating Status')
    version = f'{instance["Datastore"]} {instance["Datastore Version"]}'
    return Row(
        'database',
        instance['Name'],
        f'{instance["Status"]} {health or ""}'.strip(),
        instance['Status'] == 'ACTIVE' and health == 'HEALTHY',
        f'{version}, {instance["Size"]} GiB, {instance["ID"]}',
    )


def _run(settings, command, variables=None):
    environ = dict(os.environ, **(variables or {}))
    try:
        done = subprocess.run(
            command, text=True, capture_output=True, env=environ, timeout=COMMAND_TIMEOUT_SEC
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        return str(e)
    return done.stdout or done.stderr


def _table(rows):
    header = Row('part', 'name', 'state', None, 'detail')
    lines = [header, *rows]
    widths = [max(len(getattr(row, field)) for row in lines) for field in ('kind', 'name', 'state')]
    marks = {True: ' ', False: '!', None: ' '}
    text = [
        f'{marks[row.ok]} {row.kind:<{widths[0]}}  '
        f'{row.name:<{widths[1]}}  {row.state:<{widths[2]}}  '
        f'{row.detail}'.rstrip()
        for row in lines
    ]
    text.insert(1, '-' * max(map(len, text)))
    bad = sum(row.ok is False for row in rows)
    summary = f'{bad} unhealthy (marked !)' if bad else 'all healthy'
    text.append(f'{len(rows)} parts, {summary}')
    return '\n'.join(text)
