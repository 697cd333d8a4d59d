"""What one rule of a site says of one plan, in words for its people."""

from __future__ import annotations

import json
from dataclasses import dataclass

from eigenveil.accounting.digits import shown
from eigenveil.errors import Code, RequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One rule applied to one plan."""

    rule: str
    passed: bool
    text: str


class ForbiddenByRule(RequestError):
    """A plan fails rules of a site, of which `rule` is the first; code `site-policy`."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(Code.POLICY, text)
        self.rule = rule


def at_most(rule: str, name: str, asked: float, most: float) -> Verdict:
    """Whether what is `asked` for stays within what the site allows."""
    return Verdict(rule=rule, passed=asked <= most, text=f"{name} {shown(asked)}; at most {shown(most)}")


def at_least(rule: str, name: str, stated: int, least: int, *, lowering: bool = False) -> Verdict:
    """Whether what a study states as `name` reaches what the site insists on, which may be `lowering` it."""
    passed = stated >= least
    todo = "" if passed else ": raise it in the study"
    if todo and lowering:
        todo += f", or lower the site's {rule}"
    return Verdict(rule=rule, passed=passed, text=f"the study's {name} {stated}; at least {least}{todo}")


def allowing(*analysts: str) -> str:
    """The line of site.toml that lets these ask."""
    return f"analysts = {json.dumps(analysts)}"
