"""Draft of a study from a form: the form's fields, the study, and its prediction.

A coordinator that submitted a form itself would act in the analyst's name. So a draft is a file, which is
signed and submitted on the analyst's machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import FormData

from eigenveil.accounting.budget import studies_left
from eigenveil.accounting.formatting import percent_up, shown_up
from eigenveil.accounting.zcdp import Cost
from eigenveil.dictionary.dictionary import Dictionary, DictionaryColumn, range_text
from eigenveil.dictionary.directory import Directory
from eigenveil.errors import Code, RequestError
from eigenveil.study.study import Study, Trust
from eigenveil.study.toml import study_digest, study_from_dict, study_to_toml
from eigenveil_common.command import shell_command as as_typed
from eigenveil_server.console.page_context import ConsoleData
from eigenveil_server.console.studies import StudyLine, line
from eigenveil_server.planning.submissions import StudyPreview
from eigenveil_server.storage.states import StudyState

MOST_SHOWN = 200  # columns that are not selected
LASTING = (StudyState.AWAITING, StudyState.RUNNING, StudyState.RELEASED)
DEGREES = (0.17, 0.5)  # sines of about 10 and 30 degrees


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyForm:
    """Fields of the form as typed. `submission` is the id of the study to submit."""

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
    """Column that can be selected."""

    name: str
    meaning: str
    bounds: str
    chosen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteChoice:
    """Site that can be selected. `asks` is True if a person there decides; `lacks`: columns not offered."""

    name: str
    chosen: bool
    asks: bool
    lacks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """Study before its submission: the file `name` contains `text`, and `command` signs and submits it.

    The command names the submission, so that running it twice makes one study.
    """

    name: str
    text: str
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionPrediction:
    """Prediction of a study as texts; `share` and `used` are in percent of the total budget."""

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
    approving_sites: tuple[str, ...]
    warnings: tuple[str, ...]


def read_form(form: FormData) -> StudyForm:
    """Return the fields of a form; missing values and files are empty."""

    def text(key: str) -> str:
        value = form.get(key, "")
        return value if isinstance(value, str) else ""

    def texts(key: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(one for one in form.getlist(key) if isinstance(one, str)))

    return StudyForm(
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


def study_of(form: StudyForm, dictionary: Dictionary) -> Study:
    """Return the study of a form, with the units and bounds of the dictionary.

    Raises:
        RequestError: code `bad-study`, also for a column that is not in the dictionary.
    """
    known = dictionary.usable()
    unknown = [name for name in form.columns if name not in known]
    if unknown:
        raise RequestError(Code.BAD_STUDY, f"the dictionary has no column {unknown[0]!r}")
    if not form.columns:
        raise RequestError(Code.BAD_STUDY, "select at least one column")
    if not form.sites:
        raise RequestError(Code.BAD_STUDY, "select at least one site")
    data: dict[str, Any] = {
        "name": form.name,
        "purpose": form.purpose,
        "components": _whole("components", form.components),
        "privacy": {
            "epsilon": _number("epsilon", form.epsilon),
            "delta": _number("delta", form.delta),
            "trust": (Trust.SECURE_AGGREGATION if form.masked else Trust.CENTRAL).value,
        },
        "records": {"expected_records": _whole("expected records", form.expected_records)},
        "federation": {"sites": list(form.sites)},
        "columns": [_column(known[name]) for name in form.columns],
    }
    return study_from_dict(data)


def draft_of(study: Study, submission: str) -> Draft:
    """Return the draft of a study, for the machine with its analyst's key."""
    name = f"{study.name}.toml"
    command = as_typed("eigenveil", "study", "submit", name, "--submission", submission)
    explanation = (
        "# A draft made by the coordinator: no query is sent before its analyst signs and submits it.\n"
        f"# This command shows the study before you sign it:\n# {command}\n"
    )
    return Draft(name=name, text=f"{explanation}\n{study_to_toml(study)}", command=command)


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


def column_choices(form: StudyForm, dictionary: Dictionary) -> tuple[ColumnChoice, ...]:
    """Return the selected columns, then those that match the search, as many as fit a page."""
    chosen, wanted = set(form.columns), form.search.casefold()
    every = [
        (name.name, about) for about in dictionary.columns for name in about.columns
    ]  # a categorical column has one for each level
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


def site_choices(form: StudyForm, directory: Directory) -> tuple[SiteChoice, ...]:
    """Return all sites, with the selected columns that each does not offer."""
    return tuple(
        SiteChoice(
            name=name,
            chosen=name in form.sites,
            asks=stated is not None and stated.needs_approval,
            lacks=()
            if stated is None or stated.columns is None
            else tuple(one for one in form.columns if one not in stated.columns),
        )
        for name, stated in sorted(directory.sites.items())
    )


def earlier_same_study(data: ConsoleData, study: Study, analyst: str) -> StudyLine | None:
    """Return the analyst's own identical study that has, or will have, a result; None if there is none."""
    mine = bytes.fromhex(study_digest(study))
    for stored in data.lists.of_analyst(analyst, LASTING):
        if stored.summary.content == mine:
            return line(data, stored)
    return None


def prediction(found: StudyPreview, data: ConsoleData, directory: Directory) -> SubmissionPrediction:
    """Return the prediction of a study for its analyst."""
    explanation, study, left = found.explanation, found.plan.study, data.left()
    whole = max(1, data.ledger.totals.limit.micro_rho)
    after = Cost(
        micro_rho=left.micro_rho - found.plan.cost.micro_rho,
        atto_delta=left.atto_delta - found.plan.cost.atto_delta,
    )
    stated = {site: directory.sites.get(site) for site in study.federation.sites}
    return SubmissionPrediction(
        epsilon=shown_up(explanation["guarantee"]["epsilon"]),
        guarantee=explanation["guarantee"]["text"],
        trust=explanation["trust"],
        rounds=len(explanation["rounds"]),
        kilobytes=max(1, round(explanation["bytes_per_site"] / 1000)),
        share=percent_up(found.plan.cost.micro_rho, whole, 1),
        used=percent_up(whole - left.micro_rho, whole, 1),
        left=studies_left(after, found.plan.cost),
        accuracy=accuracy(found.sines),
        degrees=error_text(found.sines),
        approving_sites=tuple(site for site, one in stated.items() if one is not None and one.needs_approval),
        warnings=tuple(explanation["warnings"]),
    )


def accuracy(sines: Sequence[float] | None) -> str:
    """Return the expected accuracy as a text."""
    if sines is None:
        return "unknown: there is no error model for this algorithm"
    median = sines[1]
    if median < DEGREES[0]:
        return "good: the directions found are close to the true ones"
    if median < DEGREES[1]:
        return "rough: the directions found differ visibly from the true ones"
    return "low: the result is mostly noise; use more epsilon, fewer columns or fewer components"


def error_text(sines: Sequence[float] | None) -> str:
    if sines is None:
        return ""
    low, median, high = (f"{one:.2g}" for one in sines)
    return f"sine of the largest angle {median}; in 8 of 10 studies between {low} and {high}"
