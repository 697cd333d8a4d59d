"""Number of a site's persons, noised and charged once, and the promises that follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from rich.text import Text

from eigenveil.errors import Code, RequestError
from eigenveil.study.checks import parse_toml
from eigenveil_client.records.isolated import reader
from eigenveil_client.site import config as site_config
from eigenveil_client.site.config import SiteConfig
from eigenveil_client.site.mapping.promises import SizePromises, count_cost, size_promises
from eigenveil_client.site.state.store_access import has_state, open_site_store
from eigenveil_common.command import errors
from eigenveil_common.files import make_folder, read_text


def is_counted(loaded: SiteConfig) -> bool:
    """Return True if the number is stored already: it stays the same, at no further cost."""
    if not has_state(loaded):
        return False
    with open_site_store(loaded) as store:
        return store.person_counts.stored() is not None


def states_sizes(path: Path, loaded: SiteConfig) -> bool:
    """Return True if site.toml has the sizes that followed from the number of persons, or edited ones: all
    three are written at once, and the first file has no memory."""
    return is_counted(loaded) and "memory_mib" in parse_toml(read_text(path)).get("engine", {})


def noised_promises(loaded: SiteConfig, own: Mapping[str, int] | None = None) -> SizePromises:
    """Return promises for a site's records and the columns of its dictionary, from its number of persons,
    which is noised and charged once, and at least its own memory; `own` as of `size_promises`. Raises
    RequestError: the records cannot be read, the budget is too small, or `own` contradicts the number."""
    make_folder(loaded.identity, mode=0o700)  # where the ledger's position is noted, also before enrolment
    with open_site_store(loaded) as store:
        cost, yearly = count_cost(loaded.policy), loaded.policy.yearly
        noised, sigma = store.noised_persons(lambda: _persons(loaded), cost, yearly)
    columns = len(site_config.dictionary_in_force(loaded).usable())
    found = size_promises(noised, sigma, columns, loaded.policy, own)
    return replace(found, memory_mib=max(found.memory_mib, loaded.engine.memory_mib))


def _persons(loaded: SiteConfig) -> int:
    """Return the number of persons in the records."""
    limits, ruled = loaded.engine.reading, [name for rule in loaded.column for name in rule.columns]
    with errors.status(Text(f"counting the persons of {loaded.records}")):
        one = (ruled or reader.columns(loaded.records, limits))[0]
        found = reader.profile(
            loaded.records, loaded.column, {one: None}, loaded.person_header or None, limits
        )
    quality = found[0].quality
    if quality is None:
        raise RequestError(Code.BAD_DATA, f"the persons cannot be counted: {found[0].problem}")
    return quality.persons
