"""What a daemon asks of the operating system before it holds anything, and gives back."""

from __future__ import annotations

import ctypes
import resource
from contextlib import suppress
from pathlib import Path

# Of glibc's <malloc.h>. Left to itself it maps and zeroes each buffer of a few MiB anew, which takes as long
# as receiving what is written to it, or keeps as much as the largest that it ever gave.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
KEPT_BYTES = 32 * 2**20  # at the end of the heap: the buffers of a few messages on their way
MAPPED_BYTES = 8 * 2**20  # what is as large goes back to the system as soon as it is free
ARENAS = 2  # heaps of all threads: each keeps KEPT_BYTES, and glibc would make eight for every core


def forbid_core_dumps() -> None:
    """No image of this process reaches the disk, however it ends: it holds sums, and at a site records."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def allow_files() -> None:
    """As many open files as the system lets this process have: what it starts with is often 1,024, and each
    site takes three of a coordinator."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def keep_buffers() -> None:
    """Use the memory of messages again for the next ones, where the allocator can be told."""
    with suppress(AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
        libc.mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES)
        libc.mallopt(M_ARENA_MAX, ARENAS)


def give_back() -> None:
    """Let the system have what is free: before much is needed, and where nothing comes for a while."""
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def resident_bytes() -> int:
    """Return what this process has of the machine's memory at this moment; 0 where the system does not tell
    (outside of Linux)."""
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    return 0
