# SPDX-License-Identifier: Apache-2.0
"""Have files outlive a crash of the guest, such as those that make a replica refuse writes.

What Trove writes is in the page cache for up to half a minute. After a crash a new file may be
empty, and one that was removed before it may be gone all the same.
"""

import os


def flush(path: str) -> None:
    """Return when a file, or the removal of its name, is on the disk.

    :param path: in a directory that exists
    """
    for one in (path, os.path.dirname(path)):
        try:
            descriptor = os.open(one, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        except PermissionError:
            # An agent that is not root may not open it.
            os.sync()
            return
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
