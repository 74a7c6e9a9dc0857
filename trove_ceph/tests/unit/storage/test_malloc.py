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
# On standard error, a paragraph for each heap.
libc.malloc_stats()
"""


class HeapTest(base.BaseTestCase):
    def count(self, how):
        ran = subprocess.run(
            [sys.executable, '-c', _PROGRAM, how], capture_output=True, text=True, check=True
        )
        return ran.stderr.count('Arena ')

    def test_threads_share_one(self):
        self.assertEqual(1, self.count('shared'))
        # Where that changes nothing, the test above says nothing.
        self.assertGreater(self.count('not shared'), 1)
