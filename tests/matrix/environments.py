"""Environments that a release is tried in: a Python, a NumPy, with or without a compiler, another user."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from functools import cache
from typing import Any

from packaging.requirements import Requirement

from tests.everything.rows import Row, uncommitted
from tests.everything.tree import ROOT

PYTHONS = ("3.11", "3.12", "3.13")
USER = "nobody"
PROBE = "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2], sys.executable)"
KINDS = {
    "demo": "installed from the wheel in an empty folder, it runs the demo and verify",
    "tests": "every test that is not marked slow",
    "slow": "every slow test and the audit, hypothesis thorough",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """A Python (none named: any that is found) and what differs from the lock, a compiler and this user.

    `numpy` is a requirement, or `newest`, or empty for the locked one. Without a compiler the wheel is the
    one of Python alone."""

    name: str
    python: str = ""
    numpy: str = ""
    compiler: bool = True
    other_user: bool = False

    def user(self) -> dict[str, Any]:
        """Return the arguments of subprocess that run a program as the environment's user."""
        if not self.other_user:
            return {}
        account = pwd.getpwnam(USER)
        return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}

    def lacking(self) -> str:
        """Return why this machine cannot run the environment, or an empty string."""
        if self.other_user and os.geteuid() != 0:
            return f"needs root, to become the user {USER}"
        if not self.interpreter():
            user = f" that {USER} may run" if self.other_user else ""
            return f"needs Python {self.python or ' or '.join(PYTHONS)}{user}: name it in PYTHONS"
        return uncommitted()

    def interpreter(self) -> str:
        """Return the path of the environment's Python, or an empty string: those in PYTHONS come first."""
        named = os.environ.get("PYTHONS", "").split()
        for program in [*named, *(f"python{version}" for version in PYTHONS), "python3"]:
            version, path = probed(program, self.other_user)
            if version in ([self.python] if self.python else PYTHONS):
                return path
        return ""


@cache
def probed(program: str, other_user: bool = False) -> tuple[str, str]:
    """Return version and path of a Python that can make environments; two empty strings if it cannot."""
    user = Environment(name=program, other_user=other_user).user()
    try:
        done = subprocess.run(
            [program, "-c", PROBE], capture_output=True, text=True, check=True, cwd="/", **user
        )
    except (OSError, subprocess.CalledProcessError):
        return "", ""
    version, _, path = done.stdout.strip().partition(" ")
    return version, path


def oldest_numpy() -> str:
    """Return the requirement of the oldest NumPy that pyproject.toml allows, such as `numpy==2.4`."""
    lines = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (numpy,) = (one for one in map(Requirement, lines) if one.name == "numpy")
    (bound,) = (one.version for one in numpy.specifier if one.operator == ">=")
    return f"numpy=={bound}"


ENVIRONMENTS = {
    one.name: one
    for one in (
        *(Environment(name=version, python=version) for version in PYTHONS),
        Environment(name="newest-numpy", python=PYTHONS[-1], numpy="newest"),
        Environment(name="oldest-numpy", python=PYTHONS[0], numpy=oldest_numpy()),
        Environment(name="no-compiler", python=PYTHONS[0], compiler=False),
        Environment(name="other-user", other_user=True),
    )
}
ROWS = tuple(
    Row(
        name=f"{kind}-{name}",
        command=(sys.executable, "-m", "tests.matrix.trial", kind, name),
        promise=promise,
        lacking=one.lacking,
    )
    for kind, promise in KINDS.items()
    for name, one in ENVIRONMENTS.items()
)
