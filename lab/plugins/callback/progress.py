# SPDX-License-Identifier: Apache-2.0
"""Show the progress of the lab and the duration of each part."""

import os
import sys
import time

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: progress
type: stdout
short_description: one line for each part of the lab, details on failure
description:
  - Prints a line for each role with its duration, and for each task that takes
    longer than a few seconds. On failure prints the task, its message, the
    last lines of its log and the path of the log.
"""

SLOW_TASK_SEC = 4.0
LOG_LINES = 15


class CallbackModule(CallbackBase):
    """The lab's output."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = 'stdout'
    CALLBACK_NAME = 'progress'

    def __init__(self):
        super().__init__()
        self._run_started = float(os.environ.get('LAB_STARTED', time.time()))
        self._roles = []
        self._role = None
        self._role_started = self._task_started = 0.0
        self._role_changed = 0
        self._task_name = ''
        self._live = sys.stdout.isatty()

    def v2_playbook_on_play_start(self, play):
        self._roles = [role.get_name() for role in play.get_roles()]

    def v2_playbook_on_task_start(self, task, is_conditional):
        self._end_task()
        role = task._role.get_name() if task._role else ''
        if role != self._role:
            self._end_role()
            self._role, self._role_changed = role, 0
            self._role_started = time.time()
            if not self._live:
                self._print(f'{self._position()} {role} …')
        self._task_name = task.get_name().split(' : ', 1)[-1]
        self._task_started = time.time()
        self._transient(f'{self._position()} {role}: {self._task_name}')

    def v2_runner_on_ok(self, result):
        if result._result.get('changed'):
            self._role_changed += 1

    def v2_runner_on_failed(self, result, ignore_errors=False):
        if ignore_errors:
            return
        data = self._first_failure(result._result)
        self._print(f'\nFAILED  {self._role}: {self._task_name}')
        for key in ('msg', 'stderr', 'stdout'):
            text = str(data.get(key) or '').strip()
            if text:
                self._print_tail(text)
        log = data.get('log')
        if log:
            self._print(f'  log: {log}')

    def v2_runner_on_unreachable(self, result):
        self.v2_runner_on_failed(result)

    def v2_playbook_on_stats(self, stats):
        self._end_task()
        self._end_role()
        failed = any(
            stats.summarize(host)[kind]
            for host in stats.processed
            for kind in ('failures', 'unreachable')
        )
        changed = sum(stats.changed.values())
        word = 'stopped' if failed else 'done'
        self._print(f'{word} after {_minutes(self._elapsed())}, {changed} changed')

    def _end_task(self):
        duration_sec = time.time() - self._task_started
        if self._task_started and duration_sec >= SLOW_TASK_SEC:
            self._print(f'          {duration_sec:6.1f} s  {self._task_name}')
        self._task_started = 0.0

    def _end_role(self):
        if self._role is None:
            return
        duration_sec = time.time() - self._role_started
        changed = f', {self._role_changed} changed' if self._role_changed else ''
        self._print(
            f'{self._position()} {self._role:<12} {duration_sec:6.1f} s'
            f'{changed}   (elapsed {_minutes(self._elapsed())})'
        )
        self._role = None

    def _position(self):
        total = len(self._roles)
        number = self._roles.index(self._role) + 1 if self._role in self._roles else 0
        return f'[{number:2}/{total}]'

    def _elapsed(self):
        return time.time() - self._run_started

    def _print(self, text):
        clear = '\r\033[K' if self._live else ''
        print(f'{clear}{text}', flush=True)
        self._display.display(text, log_only=True)

    def _print_tail(self, text):
        lines = text.splitlines()
        if len(lines) > LOG_LINES:
            self._print(f'  | … {len(lines) - LOG_LINES} lines before')
        for line in lines[-LOG_LINES:]:
            self._print(f'  | {line}')

    def _transient(self, text):
        if self._live:
            print(f'\r\033[K{text[:100]}', end='', flush=True)

    @staticmethod
    def _first_failure(data):
        for item in data.get('results') or []:
            if item.get('failed'):
                return item
        return data


def _minutes(seconds):
    return f'{int(seconds) // 60}:{int(seconds) % 60:02}'
