"""What a study is made of, from what is public of a federation: its dictionary, its sites, their patience."""

from __future__ import annotations

from eigenveil.dictionary.admission import PERSON_SECONDS
from eigenveil.dictionary.dictionary import Dictionary
from eigenveil.errors import Code, RequestError
from eigenveil.study.checks import refuse
from eigenveil_client.analyst.federation import FederationView


def dictionary_of(view: FederationView) -> Dictionary:
    """The federation's dictionary.

    Raises:
        RequestError: code `not-found`, none was published.
    """
    if view.dictionary is None:
        raise RequestError(
            Code.NOT_FOUND,
            f"{view.name} has published no dictionary; name one with --dictionary, such as clinical, or ask "
            "the operator to publish one",
        )
    return view.dictionary


def offering(view: FederationView | None, columns: tuple[str, ...]) -> tuple[str, ...]:
    """The sites that do not say that they lack one of these."""
    sites = () if view is None else view.sites
    found = tuple(one.name for one in sites if one.offers is None or set(columns) <= set(one.offers))
    if not found:
        raise refuse("no site offers all of these columns; see `eigenveil columns`, or name sites")
    return found


def patience(view: FederationView | None, sites: tuple[str, ...]) -> float | None:
    """The deadline that people at these sites need, if the coordinator does not wait for them long enough."""
    if view is None or view.approval_seconds >= PERSON_SECONDS:
        return None
    stated = {one.name: one.statement for one in view.sites}
    asking = (one for name in sites if (one := stated.get(name)) is not None)
    return PERSON_SECONDS if any(one.asks for one in asking) else None
