"""Lines of `init` about what it took without a question, and what it left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from eigenveil.reporting.presentation import one_line
from eigenveil_client.site.config import SiteConfig
from eigenveil_client.site.mapping.first_look import FirstLook
from eigenveil_client.site.mapping.matching import ProposedMapping
from eigenveil_common.command import is_interactive

MOST_SHOWN = 8  # names of columns
COUNTS_NOTE = "These counts are confidential: they stay here, and no command and no daemon sends them"


def findings(config: SiteConfig, look: FirstLook, left: Sequence[ProposedMapping]) -> Iterator[str]:
    """Yield lines: the table of several, the row of several, words for "no value", columns without a mapping
    (`left`: those in question), and rows that look like a sum."""
    rules, person = config.column, config.person_header
    if look.taken:
        yield one_line(f"read: {look.taken}")
    if look.rows is not None and any(rule.rows and rule.by == look.rows.by for rule in rules):
        yield one_line(f"of several rows of a person {look.rows.text}; it is a choice of the analysis")
    cells = _missing_cells(config, look)
    if cells and is_interactive(as_json=False):  # else the text may stand in a log
        shown = ", ".join(f"{word!r} in {times} cells" for word, times in sorted(cells.items()))
        yield one_line(f"no value (missing): {shown} of the rows looked at. {COUNTS_NOTE}")
    elif cells:
        yield one_line(f"no value (missing): {', '.join(map(repr, sorted(cells)))}")
    used = {person, *(one.header.strip() for one in left)}
    used |= {name for rule in rules for name in (rule.header, rule.by, rule.years_since) if name}
    rest = [one.header for one in look.table.columns if one.header.strip() not in used]
    if rest:
        more = f" and {len(rest) - MOST_SHOWN} more" if len(rest) > MOST_SHOWN else ""
        yield one_line(f"not mapped ({len(rest)}): {', '.join(rest[:MOST_SHOWN])}{more}")
    for one in look.table.columns:
        if one.header.strip() == person and one.totals:
            named = ", ".join(map(repr, one.totals))
            yield one_line(f"warning: {named} in {person} looks like a row of sums or means: remove that row")


def _missing_cells(config: SiteConfig, look: FirstLook) -> Counter[str]:
    """Return the cells of mapped columns that hold each word for "no value"."""
    mapped = {rule.header for rule in config.column}
    missing = {word.lower() for rule in config.column for word in (*rule.missing, *config.records.missing)}
    cells = Counter[str]()
    for one in look.table.columns:
        if one.header.strip() in mapped:
            folded = {word.lower(): (word, times) for word, times in one.missing_cells}  # times: in any case
            cells.update(dict(found for word, found in folded.items() if word in missing))
    return cells
