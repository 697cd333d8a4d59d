"""The first and the last second of a command: Ctrl-C while its modules are loaded, or as it ends, is one
line and not a traceback.

Nothing is imported here but what Python has loaded anyway, or loads in no time. Only while Python itself
starts, before any of our code, does Ctrl-C still end in a traceback.
"""

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
    """Load `module` and run its `main`; the exit code. SIGINT stays ignored where it was, as under nohup."""
    heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if heeded:
        signal.signal(signal.SIGINT, _leave)
        sys.unraisablehook = _unraisable
    main: Callable[[], int] = import_module(module).main
    try:
        try:
            if heeded:
                signal.signal(signal.SIGINT, signal.default_int_handler)
            return main()
        finally:
            if heeded:  # from here on Python ends its threads, and nobody would catch what is raised
                signal.signal(signal.SIGINT, _leave)
    except KeyboardInterrupt:
        _leave()


def _unraisable(thrown: sys.UnraisableHookArgs) -> None:
    """What a callback or a destructor raises goes nowhere: Ctrl-C there would be lost, with a traceback."""
    if issubclass(thrown.exc_type, KeyboardInterrupt):
        _leave()
    sys.__unraisablehook__(thrown)


def _leave(number: int = signal.SIGINT, frame: FrameType | None = None) -> NoReturn:
    """End at once: an exception could be swallowed, or turned into another, in the middle of an import."""
    if "--json" in sys.argv:
        sys.stdout.write('{"error": "interrupted", "message": "interrupted"}\n')
    sys.stdout.flush()
    sys.stderr.write("error [interrupted]: interrupted\n")
    sys.stderr.flush()
    os._exit(INTERRUPTED)
