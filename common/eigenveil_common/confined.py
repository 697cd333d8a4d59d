"""Limits of a process that works on bytes which may be damaged or hostile, set by itself before it does.

Limits of memory and of processor time, the first place when the system runs out of memory, no image of it on
the disk, no other program, no process of its own, no signal to another one, no look into one and no limit or
rank of one changed, no network, and no file changed outside of stated folders. Limits of memory and time hold
everywhere. What the kernel or the machine's kind does not know of the others is left out; any other reason
why one cannot be set is an error.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import signal
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

# Of <linux/prctl.h>, <linux/seccomp.h>, <linux/filter.h>, <linux/audit.h>, <linux/sched.h>.
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_GET_SECCOMP, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 4, 21, 22, 38
FILTER = 2
LOAD, EQUAL, ABOVE, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000
DENY, UNKNOWN = REFUSE | errno.EPERM, REFUSE | errno.ENOSYS
NUMBER, ARCHITECTURE, ARGUMENT = 0, 4, 16  # where they lie in what a filter is shown
STRANGE = 0x40000000  # from here on calls have another form of numbers
THREAD = 0x00010000  # CLONE_THREAD
NETWORK = "socket"
KNOWN = {
    "x86_64": (0xC000003E, {
        NETWORK: 41, "clone": 56, "fork": 57, "vfork": 58, "kill": 62, "tkill": 200, "tgkill": 234,
        "rt_sigqueueinfo": 129, "rt_tgsigqueueinfo": 297, "ptrace": 101, "process_vm_readv": 310,
        "process_vm_writev": 311, "execve": 59, "execveat": 322, "bpf": 321, "mount": 165, "unshare": 272,
        "setns": 308, "prlimit64": 302, "perf_event_open": 298, "userfaultfd": 323, "keyctl": 250,
        "add_key": 248, "request_key": 249, "setpriority": 141, "ioprio_set": 251, "sched_setaffinity": 203,
        "sched_setparam": 142, "sched_setscheduler": 144, "sched_setattr": 314, "kcmp": 312,
        "migrate_pages": 256, "move_pages": 279,
    }),
    "aarch64": (0xC00000B7, {
        NETWORK: 198, "clone": 220, "kill": 129, "tkill": 130, "tgkill": 131, "rt_sigqueueinfo": 138,
        "rt_tgsigqueueinfo": 240, "ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271,
        "execve": 221, "execveat": 281, "bpf": 280, "mount": 40, "unshare": 97, "setns": 268,
        "prlimit64": 261, "perf_event_open": 241, "userfaultfd": 282, "keyctl": 219, "add_key": 217,
        "request_key": 218, "setpriority": 140, "ioprio_set": 30, "sched_setaffinity": 122,
        "sched_setparam": 118, "sched_setscheduler": 119, "sched_setattr": 274, "kcmp": 272,
        "migrate_pages": 238, "move_pages": 239,
    }),
}  # fmt: skip
EVERYWHERE = {
    "pidfd_send_signal": 424, "io_uring_setup": 425, "pidfd_getfd": 438, "process_madvise": 440,
    "process_mrelease": 448,
}  # fmt: skip
CLONE3 = 435  # its flags lie where no filter looks; who is told that there is none starts a thread by clone
OWN = ("tgkill", "prlimit64", "sched_setaffinity")  # the first is how abort() ends its own process
# Of <linux/landlock.h>: to write, remove, make, move and cut off.
CREATE, ADD, RESTRICT = 444, 445, 446
WRITES, ON_FILES = sum(1 << bit for bit in (1, *range(4, 13))), 1 << 1
MOVE, TRUNCATE = 1 << 13, 1 << 14  # from the second and the third form on
NULL = Path("/dev/null")
# What a kernel answers that does not know what it is asked for, or a container that lets nobody ask.
ABSENT = (errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM)


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
    """Take from this process, for good, what reading a file does not need; it may write in `folders`, and
    start threads.

    Raises:
        OSError: a folder cannot be opened, or the kernel knows a limit and refuses to set it.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    _done(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
    _done(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _done(libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0))
    _write_only(libc, folders)
    _refuse_calls(libc, network=network)


def _done(answer: int, about: Path | None = None) -> int:
    """What a call answered, or its error."""
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), *([] if about is None else [str(about)]))
    return answer


def _write_only(libc: ctypes.CDLL, folders: Sequence[Path]) -> None:
    """Let nothing be written but what lies in `folders`, where the kernel has Landlock."""
    form = libc.syscall(CREATE, None, 0, 1)
    if form < 1 and ctypes.get_errno() in ABSENT:
        return
    _done(form)
    rights = WRITES | (MOVE if form > 1 else 0) | (TRUNCATE if form > 2 else 0)
    ruleset = _done(libc.syscall(CREATE, struct.pack("Q", rights), 8, 0))
    try:
        for path in (*folders, *([NULL] if NULL.exists() else [])):
            _grant(libc, ruleset, path, rights if path != NULL else ON_FILES)
        _done(libc.syscall(RESTRICT, ruleset, 0))
    finally:
        os.close(ruleset)


def _grant(libc: ctypes.CDLL, ruleset: int, path: Path, rights: int) -> None:
    there = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        _done(libc.syscall(ADD, ruleset, 1, struct.pack("=Qi", rights, there), 0), path)
    finally:
        os.close(there)


def _refuse_calls(libc: ctypes.CDLL, *, network: bool) -> None:
    """Have the kernel refuse calls, as if they were not permitted."""
    known = KNOWN.get(platform.machine())
    if known is None or (libc.prctl(PR_GET_SECCOMP, 0, 0, 0, 0) < 0 and ctypes.get_errno() in ABSENT):
        return
    filters = b"".join(struct.pack("HBBI", *one) for one in _filter(*known, network=network))
    held = ctypes.create_string_buffer(filters)
    program = struct.pack("HxxxxxxP", len(filters) // 8, ctypes.addressof(held))
    _done(libc.prctl(PR_SET_SECCOMP, FILTER, program, 0, 0))


def _filter(architecture: int, numbers: dict[str, int], *, network: bool) -> list[tuple[int, int, int, int]]:
    """A program of BPF: steps (code, steps to leave out if so, if not, number)."""
    every = numbers | EVERYWHERE
    left = {"clone", *OWN, *([NETWORK] if network else [])}
    steps = [
        (LOAD, 0, 0, ARCHITECTURE),
        (EQUAL, 1, 0, architecture),
        (RETURN, 0, 0, DENY),
        (LOAD, 0, 0, NUMBER),
        (ABOVE, 0, 1, STRANGE),
        (RETURN, 0, 0, DENY),
        (EQUAL, 0, 1, CLONE3),
        (RETURN, 0, 0, UNKNOWN),
        (EQUAL, 0, 4, every["clone"]),
        (LOAD, 0, 0, ARGUMENT),
        (ANY_BIT, 0, 1, THREAD),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, DENY),
    ]
    for number in (every[name] for name in every if name not in left):
        steps += [(EQUAL, 0, 1, number), (RETURN, 0, 0, DENY)]
    for name in OWN:
        steps += _of_itself(every[name])
    return [*steps, (RETURN, 0, 0, ALLOW)]


def _of_itself(number: int) -> list[tuple[int, int, int, int]]:
    """A call whose first argument says which process it is about: this one. 0 as well, which is whoever calls
    (and of tgkill nobody)."""
    return [
        (EQUAL, 0, 5, number),
        (LOAD, 0, 0, ARGUMENT),
        (EQUAL, 1, 0, 0),
        (EQUAL, 0, 1, os.getpid()),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, DENY),
    ]
