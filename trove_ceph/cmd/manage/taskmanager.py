# SPDX-License-Identifier: Apache-2.0
"""What the commands share that run where trove-taskmanager runs, with its configuration."""

import contextlib
import warnings
from collections.abc import Iterator

from trove_ceph import exceptions


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Import the packages of trove-taskmanager in the block.

    :raises ServiceUnavailableError: one of them is missing
    """
    # They load much of OpenStack, and eventlet warns that it is deprecated.
    warnings.filterwarnings('ignore', message=r'\s*Eventlet is deprecated')
    try:
        yield
    except ModuleNotFoundError as error:
        raise exceptions.ServiceUnavailableError(
            f'the Python package {error.name} is missing: run this where trove-taskmanager runs'
        ) from error


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Translate errors of Trove's database access.

    :raises ServiceUnavailableError: the database failed in the block
    """
    import oslo_db.exception
    import sqlalchemy.exc

    try:
        yield
    except (oslo_db.exception.DBError, sqlalchemy.exc.SQLAlchemyError) as error:
        raise exceptions.ServiceUnavailableError(f'the database failed: {error}') from error
