# SPDX-License-Identifier: Apache-2.0
"""The tenant's certificates of a MySQL server, which Trove 26 manages and Trove 25 does not.

The functions take Trove's guest manager of MySQL.
"""

from typing import Any

from oslo_config import cfg

from trove_ceph import exceptions

try:
    from trove.common import ssl
except ImportError:
    # Trove 25.
    ssl = None

# The certificates are of the volume, as the users that require them are.
_OF_A_START = {'apply_overrides': False, 'is_startup': True}


def enable_own(manager: Any, conf: cfg.ConfigOpts) -> None:
    """Have the server start with the certificates of its volume, if its instance has some."""
    if _has_certificates(manager, conf):
        manager.enable_ssl_certificate(conf.ssl_mode, manager._read_ssl_files(), **_OF_A_START)


def enable_of_source(manager: Any, replica_info: dict[str, Any]) -> None:
    """Have a replica start with the certificates of its source, if the source has some.

    :param replica_info: what the source has answered
    :raises ServerFailedError: Trove's agent in this image is too old for certificates
    """
    if 'cert_container' not in replica_info:
        return
    if ssl is None:
        raise exceptions.ServerFailedError(
            'the source has certificates, which the agent in the image of this replica cannot use: '
            'build the guest image with Trove 26'
        )
    manager.enable_ssl_certificate(
        replica_info['ssl_mode'], replica_info['cert_container'], **_OF_A_START
    )


def own_certificates(manager: Any, conf: cfg.ConfigOpts) -> dict[str, Any]:
    """Return what a replica of this server needs for its certificates; empty: nothing."""
    if not _has_certificates(manager, conf):
        return {}
    return {'cert_container': manager._read_ssl_files(), 'ssl_mode': conf.ssl_mode}


def _has_certificates(manager: Any, conf: cfg.ConfigOpts) -> bool:
    return ssl is not None and manager.ssl_mode_at_least(conf.ssl_mode, ssl.MODE_BASIC)
