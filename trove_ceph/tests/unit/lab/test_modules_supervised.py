# SPDX-License-Identifier: Apache-2.0
"""Programs under supervisor, with a server for its protocol on a real socket."""

import configparser
import contextlib
import os
import socket
import socketserver
import threading
import time
import xmlrpc.client
import xmlrpc.server
from pathlib import Path
from unittest import mock

import fixtures
from oslotest import base

from trove_ceph.tests.unit.lab import plugins
from trove_ceph.tests.unit.lab.lab_process import serving

supervised = plugins.load('modules/supervised.py', 'lab_modules_supervised')

_ALREADY_STARTED = 60


class _Handler(xmlrpc.server.SimpleXMLRPCRequestHandler):
    rpc_paths = ('/RPC2', '/')
    # A connection on a unix socket has no TCP options and no address.
    disable_nagle_algorithm = False

    def address_string(self):
        return 'local'

    def log_message(self, *_arguments):
        pass


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


class Daemon(xmlrpc.server.SimpleXMLRPCDispatcher):
    """A supervisord that starts nothing; tests set the states of its programs."""

    def __init__(self, home):
        super().__init__(allow_none=True)
        self.home = Path(home)
        self.calls = []
        self.loaded = {}
        self.states = {}
        self.starts = {}
        # The state of a program after its start, and its states at the following queries.
        self.becomes = {}
        self.start_fault = None
        for name in (
            'getState',
            'reloadConfig',
            'stopProcessGroup',
            'removeProcessGroup',
            'addProcessGroup',
            'startProcess',
            'getProcessInfo',
        ):
            self.register_function(getattr(self, name), f'supervisor.{name}')
        self.register_introspection_functions()

    @contextlib.contextmanager
    def answering(self):
        path = self.home / 'run' / 'supervisor.sock'
        path.unlink(missing_ok=True)
        server = _Server(str(path), _Handler)
        server._marshaled_dispatch = self._marshaled_dispatch
        server.logRequests = False
        with serving(server):
            yield

    def _sections(self):
        files = (self.home / 'etc' / 'supervisor').glob('*.conf')
        return {path.stem: path.read_text() for path in files}

    def getState(self):
        return {'statename': 'RUNNING', 'statecode': 1}

    def reloadConfig(self):
        sections = self._sections()
        added = sorted(set(sections) - set(self.loaded))
        changed = sorted(n for n in sections if n in self.loaded and self.loaded[n] != sections[n])
        return [[added, changed, sorted(set(self.loaded) - set(sections))]]

    def stopProcessGroup(self, name, wait):
        assert wait, 'a program that still runs cannot be removed'
        self.calls.append(f'stop {name}')
        self.states[name] = ['STOPPED']
        return []

    def removeProcessGroup(self, name):
        if self.states[name][0] != 'STOPPED':
            raise xmlrpc.client.Fault(91, f'STILL_RUNNING: {name}')
        self.calls.append(f'remove {name}')
        del self.loaded[name]
        return True

    def addProcessGroup(self, name):
        self.calls.append(f'add {name}')
        self.loaded[name] = self._sections()[name]
        self.states[name] = ['STOPPED']
        return True

    def startProcess(self, name, _wait):
        if self.start_fault:
            raise self.start_fault
        self.calls.append(f'start {name}')
        self.states[name] = list(self.becomes.get(name, ['RUNNING']))
        return True

    def getProcessInfo(self, name):
        if name not in self.loaded:
            raise xmlrpc.client.Fault(10, f'BAD_NAME: {name}')
        states = self.states[name]
        state = states.pop(0) if len(states) > 1 else states[0]
        if state == 'RESTARTED':
            self.starts[name] = self.starts.get(name, 100) + 1
            state = 'RUNNING'
        spawnerr = 'Exited too quickly' if state in ('FATAL', 'BACKOFF') else ''
        return {'statename': state, 'start': self.starts.get(name, 100), 'spawnerr': spawnerr}


class SupervisedTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        # Not below the usual directory: a socket's path must be short.
        self.home = Path(self.useFixture(fixtures.TempDir(rootdir='/tmp')).path)
        for name in ('run', 'log', 'etc/supervisor'):
            (self.home / name).mkdir(parents=True)
        self.daemon = Daemon(self.home)
        self.watched = self.home / 'etc' / 'api.conf'
        self.watched.write_text('debug = false\n')

    def program(self, name='api', **fields):
        return {'name': name, 'command': f'/bin/{name} --serve', 'files': [str(self.watched)]} | (
            fields
        )

    def run_module(self, *programs, timeout_sec=5):
        self.daemon.calls.clear()
        with fixtures.EnvironmentVariable('no_proxy'):
            return plugins.run(
                supervised,
                home=str(self.home),
                programs=list(programs) or [self.program()],
                timeout_sec=timeout_sec,
            )

    def touched(self, *programs):
        end = self.run_module(*programs)
        self.assertFalse(end.failed, end.result)
        self.assertEqual(bool(end.result['touched']), end.result['changed'])
        return end.result['touched']


class RunTest(SupervisedTestCase):
    def setUp(self):
        super().setUp()
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        stack.enter_context(self.daemon.answering())

    def test_starts_new_programs(self):
        programs = self.program('api'), self.program('worker')
        self.assertEqual(['api', 'worker'], self.touched(*programs))
        self.assertEqual(['add api', 'add worker', 'start api', 'start worker'], self.daemon.calls)

    def test_second_run_changes_nothing(self):
        self.touched()
        self.assertEqual([], self.touched())
        self.assertEqual([], self.daemon.calls)

    def test_changed_file_restarts_only_its_program(self):
        programs = self.program('api'), self.program('worker', files=[])
        self.touched(*programs)
        self.watched.write_text('debug = true\n')
        self.assertEqual(['api'], self.touched(*programs))
        self.assertEqual(['stop api', 'remove api', 'add api', 'start api'], self.daemon.calls)

    def test_changed_command_restarts_its_program(self):
        self.touched()
        self.assertEqual(['api'], self.touched(self.program(command='/bin/api --other')))

    def test_completes_an_interrupted_restart(self):
        self.touched()
        self.watched.write_text('debug = true\n')
        for method in ('reloadConfig', 'removeProcessGroup', 'addProcessGroup', 'startProcess'):
            killed = mock.Mock(side_effect=KeyboardInterrupt)
            with mock.patch.dict(self.daemon.funcs):
                self.daemon.funcs[f'supervisor.{method}'] = killed
                end = self.run_module()
            self.assertTrue(end.failed, method)
            self.assertEqual(['api'], self.touched(), method)
            self.assertEqual(self.daemon._sections(), self.daemon.loaded)
            self.assertEqual([], self.touched(), method)
            self.watched.write_text(f'after = {method}\n')

    def test_does_not_load_other_sections(self):
        other = self.home / 'etc/supervisor/other.conf'
        other.write_text('[program:other]\n')
        self.assertEqual(['api'], self.touched())
        self.assertNotIn('other', self.daemon.loaded)

    def test_starts_a_stopped_program(self):
        self.touched()
        for state in ('STOPPED', 'EXITED', 'FATAL'):
            self.daemon.states['api'] = [state]
            self.assertEqual(['api'], self.touched(), state)
            self.assertEqual(['start api'], self.daemon.calls)

    def test_waits_for_a_program_in_backoff(self):
        self.touched()
        self.daemon.states['api'] = ['BACKOFF', 'STARTING', 'RUNNING']
        self.assertEqual(['api'], self.touched())
        self.assertEqual([], self.daemon.calls)

    def test_accepts_a_program_that_supervisor_has_restarted(self):
        self.touched()
        self.daemon.states['api'] = ['EXITED', 'STARTING', 'RUNNING']
        self.daemon.start_fault = xmlrpc.client.Fault(_ALREADY_STARTED, 'ALREADY_STARTED: api')
        self.assertEqual(['api'], self.touched())

    def test_reports_a_missing_program(self):
        self.daemon.start_fault = xmlrpc.client.Fault(20, 'NO_FILE: /bin/api')
        end = self.run_module()
        self.assertTrue(end.failed)
        self.assertIn('NO_FILE: /bin/api', end.result['msg'])

    def test_fails_if_supervisor_gives_a_program_up(self):
        (self.home / 'log/api.log').write_text(''.join(f'{n}\n' for n in range(40)))
        self.daemon.becomes['api'] = ['STARTING', 'BACKOFF', 'FATAL']
        end = self.run_module()
        self.assertTrue(end.failed)
        self.assertEqual('api does not stay up: Exited too quickly', end.result['msg'])
        self.assertEqual(str(self.home / 'log/api.log'), end.result['log'])
        self.assertEqual([str(n) for n in range(25, 40)], end.result['stdout'].split())

    def test_fails_if_a_program_ends_repeatedly(self):
        # It runs long enough each time for supervisor not to give it up.
        self.daemon.becomes['api'] = ['RESTARTED'] * 20
        self.useFixture(fixtures.MonkeyPatch('time.sleep', lambda seconds: None))
        end = self.run_module(self.program(ready={'command': ['/bin/false']}), timeout_sec=60)
        self.assertTrue(end.failed)
        self.assertEqual(
            f'api does not stay up: started {supervised.MAX_STARTS + 1} times', end.result['msg']
        )

    def test_waits_for_a_slow_dependency(self):
        self.daemon.becomes['api'] = ['RESTARTED'] * (supervised.MAX_STARTS - 1) + ['RUNNING']
        flag = self.home / 'up'
        probe = {'command': ['/usr/bin/test', '-e', str(flag)]}
        with mock.patch('time.sleep', side_effect=lambda seconds: self._few_queries(flag)):
            self.queries = 0
            self.assertEqual(['api'], self.touched(self.program(ready=probe)))

    def _few_queries(self, flag):
        self.queries += 1
        if self.queries == supervised.MAX_STARTS - 1:
            flag.touch()

    def test_fails_if_a_running_program_does_not_answer(self):
        probe = {'unix': str(self.home / 'run/api.sock')}
        end = self.run_module(self.program(ready=probe), timeout_sec=0)
        self.assertTrue(end.failed)
        self.assertIn('api (RUNNING) does not answer on', end.result['msg'])
        self.assertIn('api.sock', end.result['msg'])

    def test_reports_a_missing_watched_file(self):
        self.watched.unlink()
        end = self.run_module()
        self.assertTrue(end.failed)
        self.assertIn('api.conf', end.result['msg'])


class EnsureStartedTest(SupervisedTestCase):
    def test_starts_supervisord_if_it_does_not_answer(self):
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)

        def start(command, **_options):
            self.assertEqual(
                [f'{self.home}/ansible/bin/supervisord', '-c', f'{self.home}/etc/supervisord.conf'],
                command,
            )
            stack.enter_context(self.daemon.answering())

        with mock.patch('subprocess.run', side_effect=start) as run:
            self.assertEqual(['api', 'supervisord'], self.touched())
            self.assertEqual([], self.touched())
        run.assert_called_once()

    def test_fails_if_supervisord_stays_silent(self):
        clock = iter(range(0, 1000, 15))
        with (
            mock.patch('subprocess.run'),
            mock.patch('time.sleep'),
            mock.patch('time.monotonic', side_effect=lambda: next(clock)),
        ):
            end = self.run_module()
        self.assertTrue(end.failed)
        self.assertEqual('supervisord was started but does not answer', end.result['msg'])
        self.assertEqual(f'{self.home}/log/supervisord.log', end.result['log'])

    def test_reports_a_missing_supervisord(self):
        end = self.run_module()
        self.assertTrue(end.failed)
        self.assertIn('ansible/bin/supervisord', end.result['msg'])


class RenderTest(SupervisedTestCase):
    def _section(self, **fields):
        parser = configparser.RawConfigParser()
        parser.read_string(supervised.render(self.program(**fields), str(self.home)))
        return parser['program:api']

    def _digest(self, **fields):
        return self._section(**fields)['environment']

    def test_defaults(self):
        section = self._section()
        self.assertEqual('/bin/api --serve', section['command'])
        self.assertEqual(str(self.home), section['directory'])
        self.assertEqual(f'{self.home}/log/api.log', section['stdout_logfile'])
        # The module starts programs in order; supervisord must not.
        self.assertEqual('false', section['autostart'])
        self.assertEqual('root', section['user'])
        self.assertNotIn('stopsignal', section)

    def test_signal_that_stops_a_program(self):
        self.assertEqual('KILL', self._section(stop_signal='KILL')['stopsignal'])

    def test_given_fields(self):
        section = self._section(user='mysql', directory='/d', stop_sec=60, priority=3)
        found = [section[key] for key in ('user', 'directory', 'stopwaitsecs', 'priority')]
        self.assertEqual(['mysql', '/d', '60', '3'], found)

    def test_environment(self):
        # A percent sign begins an expansion in supervisor's files.
        text = self._section(environment={'B': '50%', 'A': 1})['environment']
        self.assertTrue(text.startswith('A="1",B="50%%",LAB_CONFIG_DIGEST="'), text)

    def test_digest_depends_on_the_content(self):
        first = self._digest()
        os.utime(self.watched, (1, 1))
        self.assertEqual(first, self._digest())
        self.watched.write_text('debug = true\n')
        self.assertNotEqual(first, self._digest())
        self.watched.write_text('debug = false\n')
        self.assertEqual(first, self._digest())

    def test_digest_of_a_directory(self):
        folder = self.home / 'etc' / 'api.d'
        (folder / 'deep').mkdir(parents=True)
        files = [str(folder)]
        seen = [self._digest(files=files)]
        (folder / 'deep' / 'a').write_text('1')
        seen.append(self._digest(files=files))
        (folder / 'deep' / 'a').write_text('2')
        seen.append(self._digest(files=files))
        (folder / 'deep' / 'a').rename(folder / 'b')
        seen.append(self._digest(files=files))
        self.assertEqual(4, len(set(seen)))
        self.assertEqual(seen[-1], self._digest(files=files))


class ReadyTest(SupervisedTestCase):
    def _listening(self, family, address):
        listener = socket.socket(family, socket.SOCK_STREAM)
        self.addCleanup(listener.close)
        listener.bind(address)
        listener.listen()
        return listener

    def test_without_a_probe(self):
        self.assertTrue(supervised.ready({}))

    def test_tcp(self):
        listener = self._listening(socket.AF_INET, ('127.0.0.1', 0))
        probe = {'tcp': f'127.0.0.1:{listener.getsockname()[1]}'}
        self.assertTrue(supervised.ready(probe))
        listener.close()
        self.assertFalse(supervised.ready(probe))

    def test_unix(self):
        path = str(self.home / 'run/s.sock')
        self.assertFalse(supervised.ready({'unix': path}))
        listener = self._listening(socket.AF_UNIX, path)
        self.assertTrue(supervised.ready({'unix': path}))
        # A socket that a killed program left behind does not answer.
        listener.close()
        self.assertFalse(supervised.ready({'unix': path}))

    def test_command(self):
        self.assertTrue(supervised.ready({'command': ['/bin/true']}))
        self.assertFalse(supervised.ready({'command': ['/bin/false']}))

    def _answer(self, reply):
        listener = self._listening(socket.AF_INET, ('127.0.0.1', 0))

        def serve():
            connection, _address = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(reply)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        self.addCleanup(thread.join)
        return {'http': f'http://127.0.0.1:{listener.getsockname()[1]}/'}

    def test_http(self):
        self.useFixture(fixtures.EnvironmentVariable('no_proxy', '*'))
        empty = b'\r\nContent-Length: 0\r\n\r\n'
        for reply, well in (
            (b'HTTP/1.1 200 OK' + empty, True),
            (b'HTTP/1.1 401 Unauthorized' + empty, True),
            (b'HTTP/1.1 503 Service Unavailable' + empty, False),
            (b'nonsense\r\n', False),
            (b'', False),
        ):
            self.assertEqual(well, supervised.ready(self._answer(reply)), reply)
        self.assertFalse(supervised.ready({'http': 'http://127.0.0.1:1/'}))

    def test_probe_does_not_hang(self):
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.addCleanup(listener.close)
        listener.bind(str(self.home / 'run/full.sock'))
        listener.listen(0)
        began = time.monotonic()
        probe = {'unix': str(self.home / 'run/full.sock')}
        answers = [supervised._connects(socket.AF_UNIX, probe['unix']) for _ in range(2)]
        self.assertTrue(answers[0])
        self.assertLess(time.monotonic() - began, 60)
