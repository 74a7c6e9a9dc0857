# SPDX-License-Identifier: Apache-2.0
"""Settings and processes of a lab that exists only for one test."""

import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import fixtures
from driver import processes, settings
from oslotest import base

_LISTEN = """
import socket, time
s = socket.create_server(('127.0.0.1', 0))
print(s.getsockname()[1], flush=True)
time.sleep(60)
"""


@contextlib.contextmanager
def serving(server):
    """Run a socket server in a thread.

    Its own loop polls, and would never end once Trove's eventlet has patched the threads.
    """
    done = threading.Event()
    server.socket.settimeout(0.05)

    def serve():
        while not done.is_set():
            server._handle_request_noblock()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        done.set()
        thread.join()
        server.server_close()


machine_pids = processes.pids


def _descendants():
    parents = {pid: processes._parent(pid) for pid in machine_pids()}
    found, fresh = set(), {os.getpid()}
    while fresh:
        found |= fresh
        fresh = {pid for pid, parent in parents.items() if parent in fresh} - found
    return sorted(found)


class LabTestCase(base.BaseTestCase):
    """A lab on a machine that has only the processes that this test started.

    The tests terminate real processes: a lab that runs on this machine must be out of reach, even
    if the code under test is wrong.
    """

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MonkeyPatch('driver.processes.pids', _descendants))
        self.directory = Path(self.useFixture(fixtures.TempDir()).path)
        self.root = self.directory / 'lab'
        environ = {'ROOT': str(self.root), 'CACHE': str(self.directory / 'cache')}
        self.settings = settings.load(
            environ={settings.PREFIX + key: value for key, value in environ.items()}
        )

    def write(self, name, text=''):
        """Write a file of the lab, creating the lab."""
        self.root.mkdir(exist_ok=True)
        self.settings.mark.touch()
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def spawn(self, code, *arguments, root=None, title=sys.executable, program=sys.executable):
        """Start Python code, as a child of a lab's supervisord if ``root`` is given.

        :param title: the first word of its command line.
        :param program: the name of the link to the interpreter, which becomes the process's name.
        """
        mark = {'SUPERVISOR_SERVER_URL': f'unix://{root}/run/supervisor.sock'} if root else {}
        process = subprocess.Popen(
            [title, '-c', code, *arguments],
            executable=self.directory / program,
            env=mark,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        process.first_line = process.stdout.readline().strip()
        return process

    def listen(self, root=None):
        """Start a process that listens; return it and its port."""
        process = self.spawn(_LISTEN, root=root)
        return process, int(process.first_line)

    def wait_for_zombie(self, process):
        """Wait until a killed process is a zombie; its entry stays, because it is not reaped."""
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

    def sleep(self, *arguments, **options):
        code = 'import time; print("up", flush=True); time.sleep(60)'
        return self.spawn(code, *arguments, **options)

    def sleep_as(self, name, *arguments, **options):
        """Start a sleeping process with this name."""
        link = self.directory / name
        if not link.exists():
            link.symlink_to(os.path.realpath(sys.executable))
        return self.sleep(*arguments, program=name, **options)

    def guest(self, name, root, server_id='server'):
        """Start a process that looks like the guest of a server of the Nova with this root."""
        return self.sleep_as(
            'qemu-system-x86_64',
            '-name',
            f'guest={name},debug-threads=on',
            '-uuid',
            server_id,
            '-blockdev',
            f'{{"filename":"{root}/state/nova/instances/u/disk"}}',
        )
