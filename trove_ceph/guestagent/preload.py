# SPDX-License-Identifier: Apache-2.0
"""Do what Trove's agent does late in its start, but does not need its configuration for.

An agent that is started before cloud-init has written its configuration has time. Trove loads many
modules by name, once it has read its configuration: the driver of the message bus, those of the
database, the replication strategy. On an emulated processor that takes ten seconds.

A unit test starts the agent's parts in a fresh interpreter, and fails for each module that is
loaded after :func:`run` and is not listed here.
"""

import contextlib
import gc
import importlib
import inspect

import stevedore
from oslo_utils import eventletutils

#: Loaded by name or within a function.
MODULES = (
    'futurist',
    'kombu.transport.pyamqp',
    'oslo_messaging._drivers.impl_rabbit',
    'sqlalchemy.dialects.mysql.pymysql',
    'trove.common.rpc.service',
    'trove.guestagent.strategies.replication.mysql_gtid',
)
# Loaded by oslo.log where threads are green ones.
_GREEN_MODULES = ('oslo_log.pipe_mutex',)
# Trove's search for these reads the metadata of all installed packages, once for all entry points.
_ENTRY_POINTS = 'trove.guestagent.module.drivers'


def run() -> None:
    """Load the modules; one that another version of a library lacks is left out."""
    # The collector would visit all objects again and again while only new ones appear.
    gc.disable()
    try:
        _load()
        gc.collect()
        gc.freeze()
    finally:
        gc.enable()


def _load() -> None:
    green = eventletutils.is_monkey_patched('thread')
    for name in MODULES + (_GREEN_MODULES if green else ()):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    stevedore.ExtensionManager(_ENTRY_POINTS, on_load_failure_callback=_ignore)
    # Trove's RPC service asks for the source of each caller, which resolves the paths of all
    # modules; the standard library remembers them.
    inspect.stack()


def _ignore(*_failure: object) -> None:
    """Leave the error to the agent, which loads the same entry point."""
