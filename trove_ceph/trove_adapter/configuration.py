# SPDX-License-Identifier: Apache-2.0
"""Trove's configuration and database, for commands that are not services of Trove."""

from collections.abc import Sequence

from oslo_config import cfg
from trove.common import cfg as trove_cfg
from trove.db import get_db_api

from trove_ceph import exceptions
from trove_ceph.conf import taskmanager as taskmanager_conf


def load(program: str, config_files: Sequence[str]) -> cfg.ConfigOpts:
    """Read the configuration of trove-taskmanager and connect Trove's models to its database.

    :param program: the name of the command
    :raises InvalidConfigurationError: a configuration file cannot be used
    """
    conf = trove_cfg.CONF
    taskmanager_conf.register(conf)
    try:
        trove_cfg.parse_args([program], list(config_files))
    except cfg.Error as error:
        raise exceptions.InvalidConfigurationError(f'{", ".join(config_files)}: {error}') from error
    get_db_api().configure_db()
    return conf
