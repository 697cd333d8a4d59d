"""Process settings of a daemon (core dumps, open files, memory allocator), and limits for hostile bytes. A
process limits itself before it reads bytes that may be hostile. On every system: memory and processor time.
On Linux also: first in line for the out-of-memory killer, no core dump, no other program or subprocess, no
signal to another process or inspection of one, no change of its limits or priority, no network, and no writes
outside of given folders. A limit that the kernel or the architecture does not support is skipped."""

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

# Of glibc's <malloc.h>. By default it maps and zeroes each buffer of a few MiB anew, which takes as long as
# receiving its content, or retains as much memory as its largest buffer.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
RETAINED_BYTES = 32 * 2**20  # retained at the end of the heap: the buffers of a few messages in transit
MAPPED_BYTES = 8 * 2**20  # larger buffers go back to the system when they are freed
ARENAS = 2  # heaps of all threads, each with its own retained memory; the default is eight per core


def forbid_core_dumps() -> None:
    """Forbid core dumps of this process, because its memory holds sums, and at a site records."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def raise_file_limit() -> None:
    """Raise the limit of open files, often 1,024: each site takes three of a coordinator."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def reuse_buffers() -> None:
    """Let the allocator reuse the memory of messages, if it is glibc's."""
    with suppress(AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(M_TRIM_THRESHOLD, RETAINED_BYTES)
        libc.mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES)
        libc.mallopt(M_ARENA_MAX, ARENAS)


def release_free_memory() -> None:
    """Return free memory to the system, before a large allocation or an idle period."""
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes; 0 outside of Linux."""
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    return 0


# Of <linux/prctl.h>, <linux/seccomp.h>, <linux/filter.h>, <linux/audit.h>, <linux/sched.h>.
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_GET_SECCOMP, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 4, 21, 22, 38
FILTER = 2
LOAD, EQUAL, ABOVE, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000
DENY, UNKNOWN = REFUSE | errno.EPERM, REFUSE | errno.ENOSYS
NUMBER, ARCHITECTURE, ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data
OTHER_ABI_CALLS = 0x40000000  # system calls from here on belong to another ABI (x32)
THREAD = 0x00010000  # CLONE_THREAD
NETWORK = "socket"
SYSTEM_CALLS = {
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
COMMON_SYSTEM_CALLS = {
    "pidfd_send_signal": 424, "io_uring_setup": 425, "pidfd_getfd": 438, "process_madvise": 440,
    "process_mrelease": 448,
}  # fmt: skip
CLONE3 = 435  # a filter cannot read its flags; with ENOSYS libc starts threads by clone instead
# Allowed on this process alone; abort() uses tgkill.
OWN_PROCESS_CALLS = ("tgkill", "prlimit64", "sched_setaffinity")
# Of <linux/landlock.h>: write, remove, make, move and truncate.
CREATE, ADD, RESTRICT = 444, 445, 446
WRITES, ON_FILES = sum(1 << bit for bit in (1, *range(4, 13))), 1 << 1
MOVE, TRUNCATE = 1 << 13, 1 << 14  # since Landlock ABI 2 and 3
NULL = Path("/dev/null")
# Errors of a kernel or container without support for the call.
ABSENT = (errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM)


def limit_resources(*, memory: int, seconds: float) -> None:
    """Limit the process's own memory in bytes, and its processor time in seconds. Unchanged mappings of files
    do not count as own memory; all other mappings do."""
    _lower_limit(resource.RLIMIT_CORE, 0)
    _lower_limit(resource.RLIMIT_DATA, memory)
    _lower_limit(resource.RLIMIT_CPU, int(seconds) + 1)
    with suppress(OSError):  # a hardened service unit forbids it
        Path("/proc/self/oom_score_adj").write_text("1000")


def _lower_limit(limit_kind: int, most: int) -> None:
    _, hard = resource.getrlimit(limit_kind)  # the operator's limit may be lower
    least = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(limit_kind, (least, least))


def restrict_process(*, network: bool, folders: Sequence[Path]) -> None:
    """Restrict this process permanently to reading files, writing in `folders` and starting threads. Raises
    OSError: a folder cannot be opened, or the kernel supports a limit but fails to set it."""
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    _checked(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
    _checked(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _checked(libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0))
    _restrict_writes(libc, folders)
    _refuse_calls(libc, network=network)


def _checked(answer: int, about: Path | None = None) -> int:
    """Return the result of a call, or raise its error."""
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), *([] if about is None else [str(about)]))
    return answer


def _restrict_writes(libc: ctypes.CDLL, folders: Sequence[Path]) -> None:
    """Restrict writes to `folders`, if the kernel has Landlock."""
    form = libc.syscall(CREATE, None, 0, 1)
    if form < 1 and ctypes.get_errno() in ABSENT:
        return
    _checked(form)
    rights = WRITES | (MOVE if form > 1 else 0) | (TRUNCATE if form > 2 else 0)
    ruleset = _checked(libc.syscall(CREATE, struct.pack("Q", rights), 8, 0))
    try:
        for path in (*folders, *([NULL] if NULL.exists() else [])):
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
            try:
                rule = struct.pack("=Qi", ON_FILES if path == NULL else rights, descriptor)
                _checked(libc.syscall(ADD, ruleset, 1, rule, 0), path)
            finally:
                os.close(descriptor)
        _checked(libc.syscall(RESTRICT, ruleset, 0))
    finally:
        os.close(ruleset)


def _refuse_calls(libc: ctypes.CDLL, *, network: bool) -> None:
    """Make the kernel refuse system calls with EPERM."""
    known = SYSTEM_CALLS.get(platform.machine())
    if known is None or (libc.prctl(PR_GET_SECCOMP, 0, 0, 0, 0) < 0 and ctypes.get_errno() in ABSENT):
        return
    filters = b"".join(struct.pack("HBBI", *one) for one in _seccomp_filter(*known, network=network))
    program_bytes = ctypes.create_string_buffer(filters)
    program = struct.pack("HxxxxxxP", len(filters) // 8, ctypes.addressof(program_bytes))
    _checked(libc.prctl(PR_SET_SECCOMP, FILTER, program, 0, 0))


def _seccomp_filter(
    architecture: int, numbers: dict[str, int], *, network: bool
) -> list[tuple[int, int, int, int]]:
    """Return a BPF program: instructions (code, jump if true, jump if false, operand)."""
    every = numbers | COMMON_SYSTEM_CALLS
    allowed = {"clone", *OWN_PROCESS_CALLS, *([NETWORK] if network else [])}
    instructions = [
        (LOAD, 0, 0, ARCHITECTURE),
        (EQUAL, 1, 0, architecture),
        (RETURN, 0, 0, DENY),
        (LOAD, 0, 0, NUMBER),
        (ABOVE, 0, 1, OTHER_ABI_CALLS),
        (RETURN, 0, 0, DENY),
        (EQUAL, 0, 1, CLONE3),
        (RETURN, 0, 0, UNKNOWN),
        (EQUAL, 0, 4, every["clone"]),
        (LOAD, 0, 0, ARGUMENT),
        (ANY_BIT, 0, 1, THREAD),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, DENY),
    ]
    for number in (every[name] for name in every if name not in allowed):
        instructions += [(EQUAL, 0, 1, number), (RETURN, 0, 0, DENY)]
    for name in OWN_PROCESS_CALLS:
        instructions += _own_process_filter(every[name])
    return [*instructions, (RETURN, 0, 0, ALLOW)]


def _own_process_filter(number: int) -> list[tuple[int, int, int, int]]:
    """Return instructions that allow a call only on this process, by its first argument: its id or 0."""
    return [
        (EQUAL, 0, 5, number),
        (LOAD, 0, 0, ARGUMENT),
        (EQUAL, 1, 0, 0),
        (EQUAL, 0, 1, os.getpid()),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, DENY),
    ]
