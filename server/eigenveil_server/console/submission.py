"""The draft of a study from a form: what was typed, the study that it says, and what that would be.

A coordinator that submits what a form says asks in its analyst's name: so a draft comes as a file, which is
signed and submitted on the analyst's own machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import FormData

from eigenveil.accounting.budget import studies_left
from eigenveil.accounting.digits import percent_up, shown_up
from eigenveil.accounting.zcdp import Cost
from eigenveil.dictionary.admission import Directory
from eigenveil.dictionary.dictionary import Dictionary, DictionaryColumn, range_text
from eigenveil.errors import Code, RequestError
from eigenveil.study.study import Study, Trust
from eigenveil.study.toml import study_digest, study_from_dict, study_to_toml
from eigenveil_common.command import typed as as_typed
from eigenveil_server.console.desk import Books
from eigenveil_server.console.studies import StudyLine, line
from eigenveil_server.planning.submissions import Foreseen
from eigenveil_server.storage.states import StudyState

MOST_SHOWN = 200  # columns that were not chosen
LASTING = (StudyState.AWAITING, StudyState.RUNNING, StudyState.RELEASED)
DEGREES = (0.17, 0.5)  # sines of some 10 and 30 degrees


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """The form as it stands: texts, as they were typed. `submission` is the id of whatever comes of it."""

    submission: str
    name: str = ""
    purpose: str = ""
    search: str = ""
    columns: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()
    components: str = "2"
    epsilon: str = "1"
    delta: str = "1e-6"
    expected_records: str = "10000"
    masked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnChoice:
    """A column that may be chosen."""

    name: str
    meaning: str
    bounds: str
    chosen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteChoice:
    """A site that may be asked. `offers` of how many of the chosen columns, if it says; `asks` a person."""

    name: str
    chosen: bool
    asks: bool
    lacks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A study that nobody has submitted: the file `name` holds `text`, and `command` signs and submits it. It
    names the submission, so that run twice it makes one study."""

    name: str
    text: str
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What a study would be, in words; `share` and `used` are in percent of the whole budget."""

    epsilon: str
    guarantee: str
    trust: str
    rounds: int
    kilobytes: int
    share: str
    used: str
    left: int | None
    accuracy: str
    degrees: str
    asked_people: tuple[str, ...]
    warnings: tuple[str, ...]


def typed(form: FormData) -> Typed:
    """What a form said; what is no text, or is missing, is as nothing."""

    def text(key: str) -> str:
        value = form.get(key, "")
        return value if isinstance(value, str) else ""

    def texts(key: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(one for one in form.getlist(key) if isinstance(one, str)))

    return Typed(
        submission=text("submission"),
        name=text("name").strip(),
        purpose=" ".join(text("purpose").split()),
        search=text("search").strip(),
        columns=texts("column"),
        sites=texts("site"),
        components=text("components"),
        epsilon=text("epsilon"),
        delta=text("delta"),
        expected_records=text("expected_records"),
        masked=text("masked") == "yes",
    )


def study_of(said: Typed, dictionary: Dictionary) -> Study:
    """The study that a form says, with the dictionary's units and bounds.

    Raises:
        RequestError: code `bad-study`; also for a column that the dictionary does not have.
    """
    known = dictionary.usable()
    strange = [name for name in said.columns if name not in known]
    if strange:
        raise RequestError(Code.BAD_STUDY, f"the dictionary has no column {strange[0]!r}")
    if not said.columns:
        raise RequestError(Code.BAD_STUDY, "choose the columns that the study is about")
    if not said.sites:
        raise RequestError(Code.BAD_STUDY, "choose the sites that are asked")
    data: dict[str, Any] = {
        "name": said.name,
        "purpose": said.purpose,
        "components": _whole("components", said.components),
        "privacy": {
            "epsilon": _number("epsilon", said.epsilon),
            "delta": _number("delta", said.delta),
            "trust": (Trust.SECURE_AGGREGATION if said.masked else Trust.CENTRAL).value,
        },
        "records": {"expected_records": _whole("expected records", said.expected_records)},
        "federation": {"sites": list(said.sites)},
        "columns": [_column(known[name]) for name in said.columns],
    }
    return study_from_dict(data)


def draft_of(study: Study, submission: str) -> Draft:
    """The draft of a study, for the machine on which its analyst's key lies."""
    name = f"{study.name}.toml"
    command = as_typed("eigenveil", "study", "submit", name, "--submission", submission)
    told = (
        "# A draft, and the coordinator's word: nothing is asked before its analyst signs and submits it.\n"
        f"# Read what you sign, which this command shows:\n# {command}\n"
    )
    return Draft(name=name, text=f"{told}\n{study_to_toml(study)}", command=command)


def _column(column: Any) -> dict[str, Any]:
    values = {key: getattr(column, key) for key in ("name", "unit", "lower", "upper", "fill")}
    return {key: value for key, value in values.items() if value is not None}


def _whole(what: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise RequestError(Code.BAD_STUDY, f"{what} must be a whole number, such as 2") from None


def _number(what: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise RequestError(Code.BAD_STUDY, f"{what} must be a number, such as 0.5") from None


def column_choices(said: Typed, dictionary: Dictionary) -> tuple[ColumnChoice, ...]:
    """The columns that are chosen, then those that what was searched for is in, as many as a page shows."""
    chosen, wanted = set(said.columns), said.search.casefold()
    every = [
        (name.name, about) for about in dictionary.columns for name in about.columns
    ]  # a category has one for each level
    first = [_choice(name, about, chosen=True) for name, about in every if name in chosen]
    others = [
        _choice(name, about, chosen=False)
        for name, about in every
        if name not in chosen and wanted in f"{name} {about.meaning} {about.unit}".casefold()
    ]
    return tuple(first + others[:MOST_SHOWN])


def _choice(name: str, about: DictionaryColumn, *, chosen: bool) -> ColumnChoice:
    bounds = f"{range_text(about.lower, about.upper)} {about.unit}".rstrip()
    return ColumnChoice(name=name, meaning=about.meaning, bounds=bounds, chosen=chosen)


def site_choices(said: Typed, directory: Directory) -> tuple[SiteChoice, ...]:
    """Every site, with what it says that it lacks of the chosen columns."""
    return tuple(
        SiteChoice(
            name=name,
            chosen=name in said.sites,
            asks=stated is not None and stated.asks,
            lacks=()
            if stated is None or stated.offers is None
            else tuple(one for one in said.columns if one not in stated.offers),
        )
        for name, stated in sorted(directory.sites.items())
    )


def same_before(books: Books, study: Study, analyst: str) -> StudyLine | None:
    """The analyst's own study that asks the very same and has, or will have, a result."""
    mine = bytes.fromhex(study_digest(study))
    for stored in books.lists.of_analyst(analyst, LASTING):
        if stored.summary.content == mine:
            return line(books, stored)
    return None


def prediction(found: Foreseen, books: Books, directory: Directory) -> Prediction:
    """What a study would be, for who is about to ask for it."""
    told, study, left = found.explanation, found.plan.study, books.left()
    whole = max(1, books.ledger.totals.limit.micro_rho)
    after = Cost(
        micro_rho=left.micro_rho - found.plan.cost.micro_rho,
        atto_delta=left.atto_delta - found.plan.cost.atto_delta,
    )
    stated = {site: directory.sites.get(site) for site in study.federation.sites}
    return Prediction(
        epsilon=shown_up(told["guarantee"]["epsilon"]),
        guarantee=told["guarantee"]["words"],
        trust=told["trust"],
        rounds=len(told["rounds"]),
        kilobytes=max(1, round(told["bytes_per_site"] / 1000)),
        share=percent_up(found.plan.cost.micro_rho, whole, 1),
        used=percent_up(whole - left.micro_rho, whole, 1),
        left=studies_left(after, found.plan.cost),
        accuracy=accuracy(found.sines),
        degrees=error_words(found.sines),
        asked_people=tuple(site for site, one in stated.items() if one is not None and one.asks),
        warnings=tuple(told["warnings"]),
    )


def accuracy(sines: Sequence[float] | None) -> str:
    """What the error to be expected means for whoever reads the result."""
    if sines is None:
        return "unknown: for this algorithm no law of its error is known"
    median = sines[1]
    if median < DEGREES[0]:
        return "good: the directions found are close to the true ones"
    if median < DEGREES[1]:
        return "rough: the directions found lean visibly away from the true ones"
    return "poor: what is found is mostly noise; allow more epsilon, fewer columns or fewer components"


def error_words(sines: Sequence[float] | None) -> str:
    if sines is None:
        return ""
    low, median, high = (f"{one:.2g}" for one in sines)
    return f"sine of the largest angle {median}; in 8 of 10 studies between {low} and {high}"
