"""Limits of a process that works on bytes which may be damaged or hostile, set by itself before it does.

Limits of memory and of processor time, the first place when the system runs out of memory, no image of it on
the disk, no other program, no signal to another process, no look into one, no network, and no file changed
outside of stated folders. Limits of memory and time hold everywhere; what the kernel or the machine's kind
does not know of the others is left out.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import signal
import struct
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

# Of <linux/prctl.h>, <linux/seccomp.h>, <linux/filter.h>, <linux/audit.h>.
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38
FILTER = 2
LOAD, EQUAL, ABOVE, RETURN = 0x20, 0x15, 0x35, 0x06
ALLOW, DENY = 0x7FFF0000, 0x00050000 | 1  # EPERM
NUMBER, ARCHITECTURE, ARGUMENT = 0, 4, 16  # where they lie in what a filter is shown
STRANGE = 0x40000000  # from here on calls have another form of numbers
NETWORK = "socket"
KNOWN = {
    "x86_64": (0xC000003E, {
        NETWORK: 41, "kill": 62, "tkill": 200, "tgkill": 234, "rt_sigqueueinfo": 129, "ptrace": 101,
        "process_vm_readv": 310, "process_vm_writev": 311, "execve": 59, "execveat": 322, "bpf": 321,
        "mount": 165, "unshare": 272, "setns": 308,
    }),
    "aarch64": (0xC00000B7, {
        NETWORK: 198, "kill": 129, "tkill": 130, "tgkill": 131, "rt_sigqueueinfo": 138, "ptrace": 117,
        "process_vm_readv": 270, "process_vm_writev": 271, "execve": 221, "execveat": 281, "bpf": 280,
        "mount": 40, "unshare": 97, "setns": 268,
    }),
}  # fmt: skip
EVERYWHERE = {"pidfd_send_signal": 424, "io_uring_setup": 425, "pidfd_getfd": 438}
OWN = "tgkill"  # how abort() ends its own process
# Of <linux/landlock.h>: to write, remove, make, move and cut off.
CREATE, ADD, RESTRICT = 444, 445, 446
WRITES, ON_FILES = sum(1 << bit for bit in (1, *range(4, 13))), 1 << 1
MOVE, TRUNCATE = 1 << 13, 1 << 14  # from the second and the third form on
NULL = Path("/dev/null")


def limit(*, memory: int, seconds: float) -> None:
    """At most so many bytes of memory of its own, and seconds of processor time.

    What is mapped from a file and not changed is no memory of its own; what every other mapping reserves is.
    """
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_DATA, memory)
    _lower(resource.RLIMIT_CPU, int(seconds) + 1)
    with suppress(OSError):  # a hardened unit forbids it
        Path("/proc/self/oom_score_adj").write_text("1000")


def _lower(what: int, most: int) -> None:
    _, hard = resource.getrlimit(what)  # an operator may allow less
    least = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(what, (least, least))


def confine(*, network: bool, folders: Sequence[Path]) -> None:
    """Take from this process, for good, what reading a file does not need; it may write in `folders`."""
    with suppress(AttributeError, OSError):
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
        _write_only(libc, folders)
        _refuse_calls(libc, network=network)


def _write_only(libc: ctypes.CDLL, folders: Sequence[Path]) -> None:
    """Let nothing be written but what lies in `folders`, where the kernel has Landlock."""
    form = libc.syscall(CREATE, None, 0, 1)
    if form < 1:
        return
    rights = WRITES | (MOVE if form > 1 else 0) | (TRUNCATE if form > 2 else 0)
    ruleset = libc.syscall(CREATE, struct.pack("Q", rights), 8, 0)
    for path in (*folders, NULL):
        granted = rights if path != NULL else ON_FILES
        there = os.open(path, os.O_PATH | os.O_CLOEXEC)
        libc.syscall(ADD, ruleset, 1, struct.pack("=Qi", granted, there), 0)
        os.close(there)
    libc.syscall(RESTRICT, ruleset, 0)
    os.close(ruleset)


def _refuse_calls(libc: ctypes.CDLL, *, network: bool) -> None:
    """Have the kernel refuse calls, as if they were not permitted."""
    known = KNOWN.get(platform.machine())
    if known is None:
        return
    filters = b"".join(struct.pack("HBBI", *one) for one in _filter(*known, network=network))
    held = ctypes.create_string_buffer(filters)
    program = struct.pack("HxxxxxxP", len(filters) // 8, ctypes.addressof(held))
    libc.prctl(PR_SET_SECCOMP, FILTER, program, 0, 0)


def _filter(architecture: int, numbers: dict[str, int], *, network: bool) -> list[tuple[int, int, int, int]]:
    """A program of BPF: steps (code, steps to leave out if so, if not, number)."""
    every = numbers | EVERYWHERE
    refused = [every[name] for name in every if name != OWN and not (network and name == NETWORK)]
    steps = [
        (LOAD, 0, 0, ARCHITECTURE),
        (EQUAL, 1, 0, architecture),
        (RETURN, 0, 0, DENY),
        (LOAD, 0, 0, NUMBER),
        (ABOVE, 0, 1, STRANGE),
        (RETURN, 0, 0, DENY),
    ]
    for number in refused:
        steps += [(EQUAL, 0, 1, number), (RETURN, 0, 0, DENY)]
    return [
        *steps,
        (EQUAL, 1, 0, every[OWN]),
        (RETURN, 0, 0, ALLOW),
        (LOAD, 0, 0, ARGUMENT),
        (EQUAL, 0, 1, os.getpid()),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, DENY),
    ]
