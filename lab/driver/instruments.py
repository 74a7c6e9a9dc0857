# SPDX-License-Identifier: Apache-2.0
"""Tempest and the benchmark, which test and measure the lab, in an environment of their own."""

import os
import pathlib
import time

from driver import processes, up
from driver.errors import LabError
from driver.settings import LAB_DIR

PLAYBOOK = 'instruments.yml'
#: For the lab's own programs that run with the instruments' interpreter.
ENVIRONMENT = {
    'PYTHONPATH': str(LAB_DIR),
    'PYTHONDONTWRITEBYTECODE': '1',
    # Libraries warn of their own future on the terminal.
    'PYTHONWARNINGS': 'ignore',
}


def install(settings) -> pathlib.Path:
    """Install the instruments for a running lab; return the folder of their programs.

    :raises LabError: the lab does not run, or an instrument cannot be installed.
    """
    started = time.monotonic()
    require_up(settings)
    with up.exclusive():
        if up.run_playbook(settings, started, PLAYBOOK):
            raise LabError(
                'the instruments are not complete; the failed task is above. '
                f'All logs: {settings.root}/log'
            )
    return settings.root / 'instruments' / 'bin'


def run_module(settings, name: str, options) -> int:
    """Install the instruments and run a module of the lab with their interpreter.

    :param name: of the module; its first argument is the root of the lab
    :returns: the exit code.
    """
    programs = install(settings)
    command = [str(programs / 'python'), '-m', name, str(settings.root), *options]
    return up.call(command, os.environ | ENVIRONMENT)


def require_up(settings) -> None:
    """Return if the cloud runs.

    :raises LabError: the cloud was never complete, or is stopped.
    """
    if not (settings.root / 'state' / 'installed').exists():
        raise LabError('there is no cloud yet: run make lab first')
    if not processes.supervisord_pid(settings):
        raise LabError('the lab is stopped: run make lab to start it')
