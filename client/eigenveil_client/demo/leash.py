"""Run as a program: become another one that ends when the process that started this one does.

`subprocess` offers a function to run between fork and exec instead, but a process that talks gRPC has
threads, and its children then died of signal 6 or 11 before they became anything.
"""

import ctypes
import os
import signal
import sys
from contextlib import suppress

PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> None:
    """Linux; elsewhere the command outlives a parent that is killed outright."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            sys.exit("who started this is gone")
    os.execv(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
