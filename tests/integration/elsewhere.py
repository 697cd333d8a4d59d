"""Run as a program, `elsewhere.py FILE ARGUMENTS...`: a program where, for us, there is what Windows has.

Libraries keep theirs, which they have for every system. Of ours, none may import a module that Windows lacks,
and the names that its `os` lacks are gone; a folder cannot be opened; `msvcrt` locks one byte, as
`os.lockf` does here."""

from __future__ import annotations

import asyncio.unix_events
import builtins
import errno
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import joblib  # type: ignore[import-untyped]

LACKING = {"fcntl", "grp", "posix", "pwd", "resource", "termios", "tty"}
NAMES = ("O_DIRECTORY", "O_NOFOLLOW", "fchmod", "fchown", "geteuid", "getuid", "getpgid", "setsid")
LOADED = (asyncio.unix_events, joblib, shutil, subprocess, tempfile)  # before the names go that they look at
import_before, open_before = builtins.__import__, os.open


def import_here(name: str, scope: Any = None, *rest: Any, **more: Any) -> Any:
    ours = scope is not None and str(scope.get("__name__", "")).startswith("eigenveil")
    if ours and name in LACKING:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return import_before(name, scope, *rest, **more)


def open_here(path: Any, *rest: Any, **more: Any) -> int:
    if Path(path).is_dir():
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    return open_before(path, *rest, **more)


def locking(handle: int, mode: int, count: int) -> None:
    os.lockf(handle, os.F_TLOCK if mode else os.F_ULOCK, count)


def main(file: str, *arguments: str) -> None:
    msvcrt: Any = ModuleType("msvcrt")
    msvcrt.LK_NBLCK, msvcrt.locking = 2, locking
    sys.modules["msvcrt"] = msvcrt
    for name in NAMES:
        delattr(os, name)
    builtins.__import__, os.open = import_here, open_here  # type: ignore[assignment]
    sys.argv = [file, *arguments]
    runpy.run_path(file, run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
