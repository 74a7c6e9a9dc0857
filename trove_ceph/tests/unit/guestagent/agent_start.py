# SPDX-License-Identifier: Apache-2.0
"""Start the parts of the agent as it does, and print the modules that it loads after preloading.

Modules of the standard library do not count: which of them are loaded late differs between versions
of Python, and they are small. It runs in an interpreter of its own. Neither docker nor a message
bus is there, no command is run, and no file is written.
"""

import json
import logging
import os
import sys
import threading
from unittest import mock

# Replaces threads by green ones, as the agent does first.
import trove.cmd  # noqa: F401
from oslo_config import cfg as oslo_cfg
from oslo_log import log
from trove.common import cfg

# Loads what the agent's entry point loads.
import trove_ceph.cmd.guest  # noqa: F401
from trove_ceph.conf import guest as guest_conf
from trove_ceph.guestagent import preload

_TIMEOUT_SEC = 120


class _Refused(logging.Handler):
    """Notices that the driver of the bus has tried to connect."""

    def __init__(self):
        super().__init__()
        self.seen = threading.Event()

    def emit(self, record):
        self.seen.set()


def main(config: str) -> None:
    preload.run()
    known = set(sys.modules)
    argv = ['trove-ceph-guestagent', '--config-file', config]
    guest_conf.register(cfg.CONF)
    log.register_options(cfg.CONF)
    cfg.parse_args(argv)
    log.setup(cfg.CONF, 'trove')
    start_service(cfg.CONF)
    connect_to_server()
    late = set(sys.modules) - known
    foreign = [name for name in late if name.partition('.')[0] not in sys.stdlib_module_names]
    print(json.dumps(sorted(foreign)), flush=True)
    # Threads wait for the bus.
    os._exit(0)


def start_service(conf: oslo_cfg.ConfigOpts) -> None:
    from trove import rpc
    from trove.common.rpc import service
    from trove.guestagent import api, dbaas

    refused = _Refused()
    logging.getLogger('oslo.messaging._drivers.impl_rabbit').addHandler(refused)
    rpc.init(conf)
    with (
        mock.patch('docker.from_env'),
        mock.patch('trove.common.utils.execute', return_value=('', '')),
    ):
        server = service.RpcService(
            key=conf.instance_rpc_encr_key,
            topic=f'guestagent.{conf.guest_id}',
            manager=dbaas.datastore_registry()[conf.datastore_manager],
            host=conf.guest_id,
            rpc_api_version=api.API.API_LATEST_VERSION,
        )
        threading.Thread(target=server.start, daemon=True).start()
        if not refused.seen.wait(_TIMEOUT_SEC):
            sys.exit('the driver of the bus has not tried to connect')


def connect_to_server() -> None:
    import sqlalchemy
    from trove.guestagent.datastore.mysql_common import service

    sqlalchemy.create_engine(service.CONNECTION_STR_FORMAT % ('user', 'password'))


if __name__ == '__main__':
    main(sys.argv[1])
