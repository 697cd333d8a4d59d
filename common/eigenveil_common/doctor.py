"""Shared checks of the `doctor` commands: one line each, with advice and without secrets or data."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path

from eigenveil.errors import Code, EigenveilError
from eigenveil_common.command import print_result, shell_command
from eigenveil_common.files import HAS_FILE_OWNERS
from eigenveil_common.trusted_files import trust_problems

LITTLE_DISK = 2**30
NO_DISK = 64 * 2**20
SKEW_WARNING_MS = 5_000
SKEW_FAILURE_MS = 60_000


class Level(Enum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Outcome of a check: `todo` is advice, `code` the error of a failure."""

    about: str
    level: Level
    text: str
    action: str = ""
    code: Code | None = None

    def line(self) -> str:
        advice = f"; {self.action}" if self.action else ""
        return f"{self.level.value:<4}  {self.about:<14} {self.text}{advice}"

    def as_dict(self) -> dict[str, str]:
        return {"check": self.about, "level": self.level.value, "text": self.text, "action": self.action}


def ok(about: str, text: str) -> Check:
    return Check(about=about, level=Level.OK, text=text)


def warn(about: str, text: str, todo: str) -> Check:
    """Return a warning: it works now, but needs attention."""
    return Check(about=about, level=Level.WARN, text=text, action=todo)


def fail(about: str, text: str, todo: str = "", code: Code | None = None) -> Check:
    """Return a failure. The text of an EigenveilError already contains advice."""
    return Check(about=about, level=Level.FAIL, text=text, action=todo, code=code)


def examine(about: str, test: Callable[[], Check]) -> Check:
    """Return the outcome of `test`, or its error as a failed check."""
    try:
        return test()
    except EigenveilError as problem:
        return fail(about, str(problem), code=problem.code)


def show(checks: Sequence[Check], as_json: bool) -> int:
    """Print the checks and return the exit code: 1 if one failed."""
    failed = any(check.level is Level.FAIL for check in checks)
    value = {"ok": not failed, "checks": [check.as_dict() for check in checks]}
    print_result(value, as_json, "\n".join(check.line() for check in checks))
    return int(failed)


def exit_code(checks: Sequence[Check]) -> int:
    """Return the exit code of the first error among the failures; 0 if there is none."""
    return next((check.code.exit_code for check in checks if check.code is not None), 0)


def disk(folder: Path) -> Check:
    """Check the free space for the ledger and other durable files."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    text = f"{free / 2**30:.1f} GiB free for {folder}"
    if free < NO_DISK:
        return fail("disk", text, "free some space: the daemon stops when it cannot write its ledger")
    return warn("disk", text, "free some space") if free < LITTLE_DISK else ok("disk", text)


def permissions(secrets: Iterable[Path], folders: Iterable[Path], settings: Iterable[Path] = ()) -> Check:
    """Check that others cannot read the secrets or change any path; root may own `settings`."""
    if not HAS_FILE_OWNERS:
        return ok("permissions", "not checked: this system has no file modes")
    secrets, folders = list(secrets), list(folders)
    exposed = [path for path in secrets if path.exists() and stat.S_IMODE(path.stat().st_mode) & 0o077]
    if names := " ".join(map(str, exposed)):
        todo = f"run: {shell_command('chmod', '600', *exposed)}"
        return fail("permissions", f"others can read {names}", todo)
    if wrong := list(trust_problems([*secrets, *folders, *settings])):
        text = "; ".join(one.description for one in wrong)
        return fail("permissions", text, f"run: {'; '.join(one.todo for one in wrong)}")
    strange = (path for path in (*secrets, *folders) if path.exists() and path.stat().st_uid != os.geteuid())
    if names := " ".join(map(str, strange)):
        return warn("permissions", f"{names} belongs to another user", "run this as the daemon's user")
    return ok("permissions", "secrets are readable, and all files and folders writable, by their owner only")


def certificate(about: str, ends: datetime, warning: timedelta, todo: str) -> Check:
    """Check the days until a certificate expires."""
    left = ends - datetime.now(UTC)
    text = f"{left.total_seconds() / 86400:.1f} days left, until {ends:%Y-%m-%d %H:%M} UTC"
    if left <= timedelta():
        return fail(about, f"expired on {ends:%Y-%m-%d %H:%M} UTC", todo)
    return warn(about, text, todo) if left < warning else ok(about, text)


def clock(skew_ms: int) -> Check:
    """Check how far this machine's clock is ahead of the coordinator's."""
    text = f"{round(skew_ms / 1000, 1) or 0.0:+.1f} s against the coordinator's"
    todo = "synchronise both machines with a time server; certificates depend on the time"
    if abs(skew_ms) > SKEW_FAILURE_MS:
        return fail("clock", text, todo)
    return warn("clock", text, todo) if abs(skew_ms) > SKEW_WARNING_MS else ok("clock", text)
