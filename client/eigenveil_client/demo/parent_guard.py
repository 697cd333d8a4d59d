"""Program that executes a command which ends when its parent process ends. `preexec_fn` of `subprocess` is no
alternative: a process that uses gRPC has threads, and its children died of signal 6 or 11 between fork and
exec."""

import ctypes
import os
import signal
import sys
from contextlib import suppress

PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> None:
    """Execute `command`, which ends with its parent on Linux; elsewhere it survives a killed parent."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            sys.exit("the parent process has ended")
    os.execv(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
