"""How bad a column of the records may be before a site answers no study about it."""

from __future__ import annotations

from dataclasses import dataclass

from eigenveil_common.config import Rule, check_rules, key

SHARE = Rule(
    holds=lambda value: 0 <= value <= 1, words="{key} must be a share of the records, between 0 and 1"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityRules:
    """The site's own thresholds, as shares of the persons in the whole file, for each column of a study:
    fields are keys of site.toml. What is compared with them stays at the site; they are public.

    Raises:
        RequestError: code `bad-config`.
    """

    max_missing: float = key(0.5, SHARE, "A column that lacks more is not answered about.")
    max_unreadable: float = key(0.01, SHARE, "The same for cells that are no number.")
    max_out_of_bounds: float = key(0.01, SHARE, "The same for numbers that are not plausible.")

    def __post_init__(self) -> None:
        check_rules(self)
