# SPDX-License-Identifier: Apache-2.0
"""Kernel limits that OSDs need above the defaults."""

from pathlib import Path

AIO_MAX = Path('/proc/sys/fs/aio-max-nr')
#: As in ``90-ceph-osd.conf`` of Ceph's packages, which only systemd applies. An OSD takes
#: about 2 300 requests, so 28 OSDs use up the kernel's default of 65 536. The kernel then refuses
#: each further io_setup, also that of mysqld.
AIO_REQUESTS = 1048576


def allow_aio(limit: Path = AIO_MAX) -> bool:
    """Raise the system-wide limit of asynchronous I/O requests; a higher limit stays.

    :returns: whether the limit was raised
    """
    if int(limit.read_text()) >= AIO_REQUESTS:
        return False
    limit.write_text(f'{AIO_REQUESTS}\n')
    return True
