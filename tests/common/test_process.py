"""What a daemon asks of the operating system."""

from __future__ import annotations

import subprocess
import sys

FREED = """
from pathlib import Path
from eigenveil_common.process_limits import release_free_memory, reuse_buffers

def resident() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("VmRSS")]
    return int(line.split()[1]) // 1024

reuse_buffers()
before, messages = resident(), [b"x" * (3 * 2**20 + i) for i in range(10)]
small = [bytes(1000 + i) for i in range(2000)]
del messages
kept = resident() - before
release_free_memory()
print(kept, resident() - before)
"""


def test_buffers_of_messages_are_kept_until_they_are_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True, check=True)
    kept, left = map(int, done.stdout.split())
    assert kept >= 25  # MiB
    assert left <= 10


THREADS = """
import ctypes, resource
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Lock
from eigenveil_common.process_limits import reuse_buffers, resident_bytes

reuse_buffers()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
together, alone, before = Barrier(12), Lock(), resident_bytes()

def use(number):
    together.wait()
    with alone:
        pieces = [libc.malloc(2**20) for _ in range(24)]
        for piece in pieces:
            ctypes.memset(piece, 1, 2**20)
        for piece in pieces[::-1]:
            libc.free(piece)
    together.wait()

with ThreadPoolExecutor(12) as threads:
    list(threads.map(use, range(12)))
    print((resident_bytes() - before) // 2**20)
"""


def test_what_threads_have_used_once_and_nobody_needs_is_kept_for_few_of_them() -> None:
    """12 threads that used 24 MiB each in turn: 288 MiB, where each thread has a heap of its own."""
    done = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, check=True)
    assert int(done.stdout) <= 96
