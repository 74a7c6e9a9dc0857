#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module: ensure that programs run under supervisor and are ready."""

import hashlib
import http.client
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
import xmlrpc.client

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: supervised
short_description: ensure programs run under supervisor and answer
description:
  - Writes a program section for each program, starts it if it does not run and
    waits until it answers. A digest of the program's configuration files is part
    of its section, so a changed file restarts it, also when an earlier run was
    interrupted between writing the file and restarting.
  - Starts supervisord itself first if it does not answer.
options:
  home:
    description: the lab's root directory
    required: true
  programs:
    description: >-
      list of name, command, and optionally user, directory, environment,
      files (configuration files or directories watched), ready (one of tcp, http,
      unix, command), stop_sec, stop_signal and priority
    required: true
  timeout_sec:
    description: the time limit for all of them to answer
    default: 240
"""

LOG_LINES = 15
# With more starts than this, a program does not just wait for a slow dependency.
MAX_STARTS = 8
# From supervisor.xmlrpc.Faults.
ALREADY_STARTED = 60
TEMPLATE = """\
[program:{name}]
command={command}
priority={priority}
directory={directory}
user={user}
environment={environment}
autostart=false
autorestart=true
startsecs=1
startretries=30
stopwaitsecs={stop_sec}
stopasgroup=true
killasgroup=true
redirect_stderr=true
stdout_logfile={home}/log/{name}.log
stdout_logfile_maxbytes=50MB
stdout_logfile_backups=1
"""


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__('localhost')
        self._path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(120)
        self.sock.connect(self._path)


class _UnixTransport(xmlrpc.client.Transport):
    def __init__(self, path):
        super().__init__()
        self._path = path

    def make_connection(self, host):
        return _UnixConnection(self._path)


class Failure(Exception):
    """A program does not run or does not answer."""

    def __init__(self, message, log=None):
        super().__init__(message)
        self.log = log


class Supervisor:
    """The supervisord of one lab."""

    def __init__(self, home):
        self.home = home
        self._proxy = xmlrpc.client.ServerProxy(
            'http://localhost',
            allow_none=True,
            transport=_UnixTransport(f'{home}/run/supervisor.sock'),
        )

    @property
    def rpc(self):
        return self._proxy.supervisor

    def ensure_started(self):
        """Start supervisord if it does not answer; return whether it was started."""
        if self._answers():
            return False
        subprocess.run(
            [f'{self.home}/ansible/bin/supervisord', '-c', f'{self.home}/etc/supervisord.conf'],
            check=True,
            capture_output=True,
            text=True,
            cwd=self.home,
        )
        deadline = time.monotonic() + 20
        while not self._answers():
            if time.monotonic() > deadline:
                raise Failure(
                    'supervisord was started but does not answer',
                    f'{self.home}/log/supervisord.log',
                )
            time.sleep(0.1)
        return True

    def _answers(self):
        try:
            return self.rpc.getState()['statename'] == 'RUNNING'
        except OSError:
            return False

    def write(self, program):
        """Write a program's section; return whether it has changed."""
        path = f'{self.home}/etc/supervisor/{program["name"]}.conf'
        text = render(program, self.home)
        try:
            with open(path) as f:
                if f.read() == text:
                    return False
        except FileNotFoundError:
            pass
        with open(path + '.new', 'w') as f:
            f.write(text)
        os.rename(path + '.new', path)
        return True

    def reload(self, names):
        """Load changed sections of the named programs, and restart and return these programs."""
        added, changed, _removed = self.rpc.reloadConfig()[0]
        for name in [n for n in changed if n in names]:
            self.rpc.stopProcessGroup(name, True)
            self.rpc.removeProcessGroup(name)
            added.append(name)
        for name in [n for n in added if n in names]:
            self.rpc.addProcessGroup(name)
        return [n for n in added if n in names]

    def ensure_running(self, name):
        """Start a stopped program; return whether it was stopped."""
        state = self.rpc.getProcessInfo(name)['statename']
        if state in ('RUNNING', 'STARTING'):
            return False
        if state != 'BACKOFF':
            try:
                self.rpc.startProcess(name, False)
            except xmlrpc.client.Fault as e:
                # Supervisor may have restarted it in the meantime.
                if e.faultCode != ALREADY_STARTED:
                    raise
        return True

    def wait_ready(self, program, deadline):
        """Wait until a program runs and answers.

        :raises Failure: the deadline has passed, or supervisor has given the program
            up; the exception has the program's log.
        """
        name, log = program['name'], f'{self.home}/log/{program["name"]}.log'
        starts = set()
        while True:
            info = self.rpc.getProcessInfo(name)
            starts.add(info['start'])
            if info['statename'] == 'FATAL' or len(starts) > MAX_STARTS:
                reason = info['spawnerr'] or f'started {len(starts)} times'
                raise Failure(f'{name} does not stay up: {reason}', log)
            if info['statename'] == 'RUNNING' and ready(program.get('ready') or {}):
                return
            if time.monotonic() > deadline:
                raise Failure(
                    f'{name} ({info["statename"]}) does not answer on {program.get("ready")}', log
                )
            time.sleep(0.2)


def render(program, home):
    """Return the supervisor section of a program."""
    environment = dict(program.get('environment') or {})
    environment['LAB_CONFIG_DIGEST'] = digest(program.get('files') or [])
    pairs = ','.join(
        f'{key}="{str(value).replace("%", "%%")}"' for key, value in sorted(environment.items())
    )
    section = TEMPLATE.format(
        name=program['name'],
        command=program['command'],
        home=home,
        priority=program.get('priority', 50),
        user=program.get('user', 'root'),
        directory=program.get('directory', home),
        environment=pairs,
        stop_sec=program.get('stop_sec', 10),
    )
    if 'stop_signal' in program:
        section += f'stopsignal={program["stop_signal"]}\n'
    return section


def digest(paths):
    """Return one digest over files, and over all files below directories."""
    total = hashlib.sha256()
    for path in paths:
        for name in sorted(_files_below(path)):
            total.update(name.encode())
            with open(name, 'rb') as f:
                total.update(f.read())
    return total.hexdigest()[:16]


def _files_below(path):
    if not os.path.isdir(path):
        yield path
        return
    for folder, _folders, names in os.walk(path):
        for name in names:
            yield os.path.join(folder, name)


def ready(probe):
    """Return whether a program answers its probe."""
    if 'tcp' in probe:
        host, port = probe['tcp'].rsplit(':', 1)
        return _connects(socket.AF_INET, (host, int(port)))
    if 'unix' in probe:
        return _connects(socket.AF_UNIX, probe['unix'])
    if 'http' in probe:
        return _http_answers(probe['http'])
    if 'command' in probe:
        return (
            subprocess.run(
                probe['command'], capture_output=True, stdin=subprocess.DEVNULL
            ).returncode
            == 0
        )
    return True


def _connects(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as s:
        s.settimeout(2)
        try:
            s.connect(address)
        except OSError:
            return False
    return True


def _http_answers(url):
    try:
        urllib.request.urlopen(url, timeout=30).close()
    except urllib.error.HTTPError as e:
        return e.code < 500
    except (OSError, http.client.HTTPException):
        return False
    return True


def run(supervisor, programs, timeout_sec):
    """Ensure that the programs run and answer; return the names of started programs."""
    touched = set()
    if supervisor.ensure_started():
        touched.add('supervisord')
    names = [program['name'] for program in programs]
    for program in programs:
        supervisor.write(program)
    touched.update(supervisor.reload(names))
    for name in names:
        if supervisor.ensure_running(name):
            touched.add(name)
    deadline = time.monotonic() + timeout_sec
    for program in programs:
        supervisor.wait_ready(program, deadline)
    return sorted(touched)


def main():
    module = AnsibleModule(
        argument_spec={
            'home': {'type': 'path', 'required': True},
            'programs': {'type': 'list', 'elements': 'dict', 'required': True},
            'timeout_sec': {'type': 'int', 'default': 240},
        }
    )
    # Probes of this machine must not go through a proxy for downloads.
    os.environ['no_proxy'] = '*'
    try:
        touched = run(
            Supervisor(module.params['home']),
            module.params['programs'],
            module.params['timeout_sec'],
        )
    except Failure as e:
        tail = ''
        if e.log and os.path.exists(e.log):
            with open(e.log, errors='replace') as f:
                tail = ''.join(f.readlines()[-LOG_LINES:])
        module.fail_json(msg=str(e), stdout=tail, log=e.log)
    except (OSError, subprocess.CalledProcessError, xmlrpc.client.Fault) as e:
        module.fail_json(msg=f'supervisor: {e}')
    module.exit_json(changed=bool(touched), touched=touched)


if __name__ == '__main__':
    main()
