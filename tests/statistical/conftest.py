"""The table of audits at the end of a run: what was claimed, and what an attacker could prove."""

from __future__ import annotations

from typing import Any, cast

import pytest


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """One line an audit, from the properties that the tests recorded."""
    audits: list[tuple[str, int, float, float]] = [
        cast("tuple[str, int, float, float]", value)
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
        for name, value in report.user_properties
        if name == "audit"
    ]
    if not audits:
        return
    terminalreporter.section("audits: mu claimed, and its lower bound at 99 % confidence")
    for name, samples, claimed, bound in sorted(audits):
        numbers = f"claimed {claimed:6.3f}   proven {bound:6.3f}   {bound / claimed:5.2f}"
        terminalreporter.write_line(f"{name:45} {samples:>8} a side   {numbers}")
