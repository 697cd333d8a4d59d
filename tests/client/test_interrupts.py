"""Ctrl-C at any moment of a command's life: no traceback, and 130 unless it had ended."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest

from eigenveil.study.checks import toml_text
from tests.repo.tree import PACKAGES, ROOT
from tests.server.rig import study_toml

SCRIPTS: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
# What is run, and the seconds in which it is interrupted, from its first line of ours on.
COMMANDS = {
    "eigenveil simulate study.toml --data records.csv --repeat 2000": 4.0,
    "eigenveil compare study.toml --data records.csv --repeat 50": 5.0,
    "eigenveil plan study.toml": 3.0,
    "eigenveil demo --out demo": 6.0,
    "eigenveil study list --profile nowhere": 1.5,
    "eigenveil-site check --config site.toml": 2.0,
    "eigenveil-coordinator init --dir new --federation north": 2.0,
}
MOMENTS = 2


def prepared(folder: Path) -> None:
    (folder / "study.toml").write_text(study_toml(sites=("anna", "bert")))
    values = np.random.default_rng(3).uniform(-1, 1, (400, 4))
    np.savetxt(folder / "records.csv", values, delimiter=",", header="c0,c1,c2,c3", comments="")
    site = {"name": "anna", "records": "records.csv", "identity": "i", "state": "s.db"}
    (folder / "site.toml").write_text(toml_text(site))


def interrupted(words: list[str], folder: Path, after: float) -> tuple[int, str]:
    """Run a command and press Ctrl-C; its exit code, and what it said to standard error."""
    module, function = SCRIPTS[words[0]].split(":")
    start = "import sys; sys.path[:0] = sys.argv.pop(1).split(':'); "
    start += f"from {module} import {function} as run; print(flush=True); sys.exit(run())"
    path = ":".join(map(str, PACKAGES.values()))
    arguments = [sys.executable, "-c", start, path, *words[1:]]
    with subprocess.Popen(
        arguments, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as one:
        assert one.stdout is not None
        one.stdout.readline()
        time.sleep(after)
        one.send_signal(signal.SIGINT)
        _, message = one.communicate(timeout=60)
    return one.returncode, message


@pytest.mark.parametrize(
    "command",
    [pytest.param(one, marks=pytest.mark.slow if COMMANDS[one] > 1.5 else ()) for one in COMMANDS],
)
def test_ctrl_c_at_any_moment_is_one_line_and_130(command: str, tmp_path: Path) -> None:
    prepared(tmp_path)
    chance = random.Random(command)
    for _ in range(MOMENTS):
        after = chance.uniform(0.0, COMMANDS[command])
        code, message = interrupted(command.split(), tmp_path, after)
        assert "Traceback" not in message, f"after {after:.2f} s"
        assert code == 130 or ("interrupted" not in message and "simulate" not in command), (
            f"{code} {message}"
        )


# Where an exception goes nowhere, or comes when nobody is left to catch it.
LATE = {
    "a destructor": "class Late:\n    def __del__(self): press()\ndef main():\n    Late()\n    return 0\n",
    "the end": "import atexit\ndef main():\n    atexit.register(press)\n    return 0\n",
}


@pytest.mark.parametrize("where", LATE)
def test_ctrl_c_where_nothing_would_catch_it_is_one_line_too(where: str, tmp_path: Path) -> None:
    press = "import os, signal\ndef press():\n    os.kill(os.getpid(), signal.SIGINT)\n    sum(range(1000))\n"
    (tmp_path / "late.py").write_text(press + LATE[where])
    start = "import sys; sys.path[:0] = sys.argv.pop(1).split(':'); "
    start += "from eigenveil_common.start import start; sys.exit(start('late'))"
    path = ":".join(map(str, (tmp_path, *PACKAGES.values())))
    done = subprocess.run([sys.executable, "-c", start, path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "error [interrupted]: interrupted\n")
