"""Log lines: text or JSON, from a closed list of fields, and of an exception never its text."""

from __future__ import annotations

import ast
import asyncio
import gc
import json
import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import click
import pytest

from eigenveil.errors import Code
from eigenveil_common import command, log
from eigenveil_common.log import Format

ROOT = Path(__file__).parents[2]
SECRET = "MRN-0451"


@pytest.fixture
def handlers() -> Iterator[None]:
    root = logging.getLogger()
    before = (list(root.handlers), log.logger.level, threading.excepthook, sys.unraisablehook)
    root.handlers.clear()  # what a daemon in this process may have left
    yield
    root.handlers[:], level, threading.excepthook, sys.unraisablehook = before
    log.logger.setLevel(level)


def log_three_lines() -> None:
    """Three lines: an event, an alarm, a defect."""
    log.event("round-open", study="ab" * 32, round=3, kind="gram")
    log.log_error("different-second-answer", site="hospital-a", why='two words "quoted"\n')
    try:
        raise ValueError(f"could not read {SECRET}")
    except ValueError as problem:
        log.logger.error("defect in %s", "Contribute", exc_info=problem)


def test_text_lines(capsys: pytest.CaptureFixture[str], handlers: None) -> None:
    log.to_stderr()
    log_three_lines()
    first, second, third = capsys.readouterr().err.splitlines()
    stamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
    assert re.fullmatch(rf"{stamp} INFO round-open study={'ab' * 6} round=3 kind=gram", first)
    assert second.endswith("ERROR different-second-answer site=hospital-a why='two words \"quoted\"\\n'")
    assert re.search(r"ERROR defect in Contribute type='ValueError' at='test_log.py:\d+'$", third)
    assert SECRET not in third


@pytest.mark.parametrize("form", Format)
def test_lines_of_libraries_and_threads_show_places_only(
    capsys: pytest.CaptureFixture[str], handlers: None, form: Format
) -> None:
    """As asyncio tells of a task that nobody awaited, and Python of a thread that ended."""
    log.to_stderr(form)

    async def forgotten() -> None:
        task = asyncio.ensure_future(fail())
        await asyncio.sleep(0)
        del task
        gc.collect()

    async def fail() -> None:
        raise ValueError(f"could not read {SECRET}")

    asyncio.run(forgotten())
    thread = threading.Thread(target=lambda: int(SECRET))
    thread.start()
    thread.join()
    first, second = capsys.readouterr().err.splitlines()
    assert "library asyncio at base_events:" in first
    assert "bug" in second
    for line in (first, second):
        assert "ValueError" in line
        assert "test_log.py:" in line
        assert SECRET not in line


def test_an_unexpected_failure_of_a_command_shows_its_place_only(capsys: pytest.CaptureFixture[str]) -> None:
    @click.command()
    def broken() -> None:
        int(SECRET)

    with mock.patch.object(sys, "argv", ["broken"]):
        assert command.run(broken, "site") == Code.BUG.exit_code
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(r"error \[bug\]: ValueError at .*test_log.py:\d+: please report this line\n", err)


def test_json_lines(capsys: pytest.CaptureFixture[str], handlers: None) -> None:
    log.to_stderr(Format.JSON)
    log_three_lines()
    first, second, third = map(json.loads, capsys.readouterr().err.splitlines())
    assert first | {"time": ""} == {
        "time": "", "level": "info", "event": "round-open", "study": "ab" * 6, "round": 3, "kind": "gram",
    }  # fmt: skip
    assert second["why"] == 'two words "quoted"\n'
    assert (third["event"], third["detail"]) == ("message", "defect in Contribute")
    assert third["type"] == "ValueError"
    assert SECRET not in str(third)


def test_a_field_that_is_not_listed_is_a_defect() -> None:
    with pytest.raises(TypeError, match=r"\['records'\] are not in"):
        log.event("loaded", records=569)


def test_every_line_in_the_code_uses_listed_fields_only() -> None:
    """So that the TypeError above can never happen in a daemon."""
    found = [call for folder in ("client", "server", "common") for call in _calls(ROOT / folder)]
    assert len(found) > 50
    assert {field for _, fields in found for field in fields} <= log.FIELDS | {"level"}


def _calls(folder: Path) -> Iterator[tuple[str, list[str]]]:
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            if (
                name in ("event", "log_error", "_log_state")
                and node.args
                and isinstance(node.args[0], ast.Constant | ast.JoinedStr)
            ):
                yield path.name, [word.arg for word in node.keywords if word.arg]


def test_a_stranger_s_handshake_leaves_no_line_between_ours(tmp_path: Path) -> None:
    """In a process of its own: gRPC reads its verbosity once."""
    program = """
import eigenveil_server, asyncio, contextlib, socket, sys
from tests.server.rig import made, serving
from pathlib import Path

async def main():
    async with serving(made(Path(sys.argv[1]))) as rig:
        with socket.create_connection(("127.0.0.1", rig.ports.port)) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\\r\\n\\r\\n")
            with contextlib.suppress(ConnectionResetError):  # what it said was never read
                await asyncio.to_thread(stranger.recv, 1)

asyncio.run(main())
"""
    line = [sys.executable, "-c", program, str(tmp_path / "c")]
    environment = {key: value for key, value in os.environ.items() if key != "GRPC_VERBOSITY"}
    roots = ["", "core", "common", "server", "client", "proto"]
    environment["PYTHONPATH"] = os.pathsep.join(str(ROOT / root) for root in roots)
    done = subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == ""
