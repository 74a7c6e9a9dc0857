# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys

from oslotest import base

_PROGRAM = """
import ctypes, sys, threading
from trove_ceph.storage import malloc
if sys.argv[1] == 'shared':
    malloc.share()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
together = threading.Barrier(4)
def work():
    together.wait()
    libc.malloc(1000)
    together.wait()
threads = [threading.Thread(target=work) for _ in range(4)]
for one in threads:
    one.start()
for one in threads:
    one.join()
# On standard error, one paragraph for each arena.
libc.malloc_stats()
"""


class MallocTest(base.BaseTestCase):
    def count(self, mode):
        ran = subprocess.run(
            [sys.executable, '-c', _PROGRAM, mode], capture_output=True, text=True, check=True
        )
        return ran.stderr.count('Arena ')

    def test_threads_share_one_arena(self):
        self.assertEqual(1, self.count('shared'))
        # Otherwise the assertion above would prove nothing.
        self.assertGreater(self.count('not shared'), 1)
