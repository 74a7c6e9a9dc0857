# SPDX-License-Identifier: Apache-2.0
"""The database of trove_ceph's tables, for the groups of commands that need nothing else."""

import argparse
import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

from oslo_config import cfg

from trove_ceph import exceptions
from trove_ceph.cmd.manage import options


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add the option for the configuration file."""
    parser.add_argument(
        '--config-file',
        default=options.trove_conf()[0],
        metavar='PATH',
        help='the file with [database] connection '
        f'(default: the first of ${options.TROVE_CONF}, else {options.DEFAULT_TROVE_CONF})',
    )


@contextlib.contextmanager
def connect(*config_files: str) -> Iterator[Any]:
    """Return an enginefacade of the database that configuration files name.

    :raises InvalidConfigurationError: the files cannot be used
    :raises ServiceUnavailableError: the database failed in the block
    """
    # Imported here: it loads eventlet where that is installed, which warns that it is deprecated.
    warnings.filterwarnings('ignore', message=r'\s*Eventlet is deprecated')
    import oslo_db.exception
    import sqlalchemy.exc
    from oslo_db import options as db_options
    from oslo_db.sqlalchemy import enginefacade

    conf = cfg.ConfigOpts()
    conf.register_opts(db_options.database_opts, 'database')
    names = ', '.join(config_files)
    try:
        conf([], default_config_files=list(config_files))
    except cfg.Error as error:
        raise exceptions.InvalidConfigurationError(f'{names}: {error}') from error
    if not conf.database.connection:
        raise exceptions.InvalidConfigurationError(f'{names}: has no [database] connection')
    facade = enginefacade.transaction_context()
    facade.configure(connection=conf.database.connection, max_retries=1, retry_interval=1)
    try:
        yield facade
    except (oslo_db.exception.DBError, sqlalchemy.exc.SQLAlchemyError) as error:
        raise exceptions.ServiceUnavailableError(f'the database failed: {error}') from error
