"""Start of a command: Ctrl-C during module loading or at exit prints one line instead of a traceback. Only
modules that Python has loaded already, or loads fast, are imported here. Ctrl-C while Python itself starts,
before any of our code, still prints a traceback."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from types import FrameType
from typing import NoReturn

INTERRUPTED = 130


def start(module: str) -> int:
    """Load `module`, run its `main` and return the exit code. An ignored SIGINT stays ignored (nohup)."""
    handles_interrupts = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if handles_interrupts:
        signal.signal(signal.SIGINT, _leave)
        sys.unraisablehook = _unraisable
    main: Callable[[], int] = import_module(module).main
    try:
        try:
            if handles_interrupts:
                signal.signal(signal.SIGINT, signal.default_int_handler)
            return main()
        finally:
            if handles_interrupts:  # Python now ends its threads, and an exception would not be caught
                signal.signal(signal.SIGINT, _leave)
    except KeyboardInterrupt:
        _leave()


def _unraisable(thrown: sys.UnraisableHookArgs) -> None:
    """Exit on Ctrl-C in a callback or destructor, where the exception would be lost with a traceback."""
    if issubclass(thrown.exc_type, KeyboardInterrupt):
        _leave()
    sys.__unraisablehook__(thrown)


def _leave(number: int = signal.SIGINT, frame: FrameType | None = None) -> NoReturn:
    """Exit at once: within an import an exception could be swallowed or replaced by another."""
    if "--json" in sys.argv:
        sys.stdout.write('{"error": "interrupted", "message": "interrupted"}\n')
    sys.stdout.flush()
    sys.stderr.write("error [interrupted]: interrupted\n")
    sys.stderr.flush()
    os._exit(INTERRUPTED)
