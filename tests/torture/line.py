"""What a check says in the end."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of the table: the check's number and title, whether it passed, and its figures."""

    number: int
    title: str
    passed: bool
    detail: str

    def __str__(self) -> str:
        return f"{self.number:>2}  {'ok  ' if self.passed else 'FAIL'}  {self.title:34} {self.detail}"
