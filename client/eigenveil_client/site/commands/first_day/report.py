"""Result of `init`: values, and lines for a person."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eigenveil.dictionary.dictionary import listed
from eigenveil.dictionary.site_rules import ANY
from eigenveil.reporting.presentation import one_line
from eigenveil_client.site.commands import setup
from eigenveil_client.site.commands.first_day.findings import findings
from eigenveil_client.site.config import SiteConfig
from eigenveil_client.site.mapping.first_look import FirstLook
from eigenveil_client.site.mapping.matching import ProposedMapping
from eigenveil_client.site.mapping.promises import SizePromises
from eigenveil_common import config
from eigenveil_common.command import shell_command

ROWS_ARE_PERSONS = "every row counts as one person"


def unknown_columns(path: Path, look: FirstLook, mapped: Sequence[ProposedMapping]) -> Iterator[str]:
    """Yield a sentence for each mapped column that the dictionary does not have, with the command that maps
    it anew, or removes it."""
    known = {one.name for one in look.dictionary.columns}
    proposed = {one.header: one for one in look.proposals}
    for one in mapped:
        if one.column not in known:
            new = proposed.get(one.header)
            option = ("--remove", one.column) if new is None else ("--set", new.setting)
            what = f"the dictionary has no column {one.column} ({one.header})"
            yield f"{what}. Run: {_map_command(path, *option)}"


def _map_command(path: Path, *options: str) -> str:
    return shell_command("eigenveil-site", "map", *options, "--config", path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Result of a first day. `unlisted`: other columns of numbers, too many to list; `enrolled`: the text of
    the enrolment; `begun`: an earlier `init` went on; `first`: the file is as `init` writes it first, with
    the open questions."""

    path: Path
    config: SiteConfig
    look: FirstLook
    mapped: Sequence[ProposedMapping]
    left: Sequence[ProposedMapping]
    promises: SizePromises | None
    unlisted: int
    enrolled: str
    begun: bool
    first: bool

    def values(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "config": str(self.path), "name": self.config.name, "columns": list(self.config.policy.columns),
            "mapped": [one.to_dict() for one in self.mapped], "open": [one.to_dict() for one in self.left],
            "promises": None if self.promises is None else config.values(self.promises),
            "offers": list(self.config.offers),
            "person": None if self.look.person is None else self.look.person.header,
        }  # fmt: skip

    def text(self) -> str:
        """Return text for a person."""
        person, lost = self.look.person, self.look.table.lost
        named = ROWS_ARE_PERSONS
        if person is not None:
            named = f"{one_line(person.header)} names the person of a row"
        wrote = f"{'went on with' if self.begun else 'wrote'} {self.path}"
        lines = [wrote, named, *findings(self.config, self.look, self.left)]
        if lost:
            lines.append(
                f"{lost} lines lack cells, have too many, or broken letters: run eigenveil-site check"
            )
        mapped = [one_line(f"{one.header} -> {one.column}") for one in self.mapped]
        lines.append(
            f"mapped columns ({len(mapped)}): {listed(mapped)}" if mapped else "no column was mapped"
        )
        if self.left:
            named = listed([one_line(one.header) for one in self.left])
            where = "as comments in the file" if self.first else f"see {_map_command(self.path)}"
            lines.append(f"open questions ({len(self.left)}), {where}: {named}")
        if self.promises is not None:
            stated = ", ".join(f"{key} = {value}" for key, value in config.values(self.promises).items())
            lines.append(f"promises from the number of persons, noised once: {stated}")
        return "\n".join([*lines, *self._warnings(), self.enrolled or setup.to_enrol(self.path)])

    def _warnings(self) -> Iterator[str]:
        if ANY in (one.header.strip() for one in self.look.table.columns):
            yield "a column of the records is named '*', which means every column: rename it there"
        if self.unlisted:
            yield f"{self.unlisted} other columns of numbers are too many to list: name them in columns"
        if not self.config.policy.columns:
            yield "columns = [] declines every study: map columns, or name those that studies may use"
        if not self.config.offers:
            command = _map_command(self.path, "--offer")
            yield f"no column is stated to the federation; to state the mapped ones: {command}"
