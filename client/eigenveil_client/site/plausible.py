"""What a site takes for plausible of its columns: the dictionary in its site.toml, or the one that ships.

Nothing that a study says has a part in it: else an analyst could ask, study after study, how many values lie
beyond a bound, and read the answer off what the site declines.
"""

from __future__ import annotations

from pathlib import Path

from eigenveil.dictionary.dictionary import Dictionary
from eigenveil.dictionary.toml import parse_dictionary
from eigenveil_client.records.apart.reader import Reader
from eigenveil_client.records.quality import Range, Ranges
from eigenveil_client.site.config import SiteConfig
from eigenveil_common.examples import example
from eigenveil_common.files import read_text


def reader(config: SiteConfig) -> Reader:
    """What reads this site's records for studies.

    Raises:
        RequestError: its dictionary cannot be read.
    """
    known = ranges(dictionary(config.dictionary))
    return Reader(
        config.records, config.column, known, config.scratch, config.engine.reading,
        config.policy.maximum_records,
    )  # fmt: skip


def dictionary(path: Path | None) -> Dictionary:
    """The dictionary in `path`; without one, that which ships.

    Raises:
        RequestError: it cannot be read.
    """
    return parse_dictionary(example("dictionary") if path is None else read_text(path))


def ranges(known: Dictionary) -> Ranges:
    """Between what the values of each column lie: its plausible range, or else its bounds."""
    return {
        column.name: Range(
            lower=one.lower if one.plausible_lower is None else one.plausible_lower,
            upper=one.upper if one.plausible_upper is None else one.plausible_upper,
            unit=one.unit,
        )
        for one in known.columns
        for column in one.columns
    }
