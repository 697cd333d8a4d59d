"""The first second of a command: Ctrl-C while its modules are loaded is one line, not a traceback.

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
    main: Callable[[], int] = import_module(module).main
    try:
        if heeded:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return main()
    except KeyboardInterrupt:
        _leave()


def _leave(number: int = signal.SIGINT, frame: FrameType | None = None) -> NoReturn:
    """End at once: an exception could be swallowed, or turned into another, in the middle of an import."""
    if "--json" in sys.argv:
        sys.stdout.write('{"error": "interrupted", "message": "interrupted"}\n')
    sys.stdout.flush()
    sys.stderr.write("error [interrupted]: interrupted\n")
    sys.stderr.flush()
    os._exit(INTERRUPTED)
