"""A federation for as long as pages with notebooks are built, or tested: `eigenveil demo --keep`. As an
extension of Sphinx it lies where the notebooks look for it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

STOP_SECONDS = 60


def heed_interrupts() -> None:
    """A shell starts what runs in its background with Ctrl-C ignored, and every program that is started here
    would inherit that and never end."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def kept(folder: Path) -> Iterator[Path]:
    """The profile of its analyst, in `folder`; when the block ends the federation is stopped as by Ctrl-C.

    Raises:
        RuntimeError: it did not begin, or did not end well."""
    heed_interrupts()
    program = Path(sys.executable).with_name("eigenveil")
    command = [program, "demo", "--keep", "--json", "--out", folder]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        result = process.stdout.readline()
        try:
            if not result:
                raise RuntimeError(f"no federation began; its logs are in {folder / 'logs'}")
            yield Path(json.loads(result)["profile"])
        finally:
            process.send_signal(signal.SIGINT)
            code = process.wait(STOP_SECONDS)
    if code:
        raise RuntimeError(f"the federation ended with {code}; its logs are in {folder / 'logs'}")


def setup(app: Any) -> dict[str, bool]:
    """From before the first page is read until the last is written."""
    federation = ExitStack()
    folder = Path(__file__).parent / "notebooks" / "demo-out"
    app.connect("builder-inited", lambda app: federation.enter_context(kept(folder)))
    app.connect("build-finished", lambda app, problem: federation.close())
    return {"parallel_read_safe": False}
