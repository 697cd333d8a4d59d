"""Form for the draft of a study: its inputs, the draft, and the prediction of its study. The coordinator
would act in the analyst's name if it submitted a form. So a draft is a file for the analyst."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from starlette.datastructures import FormData

from eigenveil.accounting.budget import studies_left
from eigenveil.dictionary.dictionary import Dictionary, DictionaryColumn, range_text
from eigenveil.dictionary.directory import Directory
from eigenveil.dictionary.study_files import APPLICANT_KEYS, draft_from_fields
from eigenveil.study.checks import Readers, coerce_values, need, study_error
from eigenveil.study.study import Column, Study, Trust
from eigenveil.study.toml import StudyDraft, study_digest, study_to_toml
from eigenveil_common.command import shell_command as as_typed
from eigenveil_server.console.page_context import ConsoleData
from eigenveil_server.planning.submissions import StudyPreview
from eigenveil_server.storage.states import StudyState
from eigenveil_server.storage.submissions import ListedStudy

MOST_SHOWN = 200  # columns that are not selected
LASTING = (StudyState.AWAITING, StudyState.RUNNING, StudyState.RELEASED)
DEGREES = (0.17, 0.5)  # sines of about 10 and 30 degrees


class StudyInput(NamedTuple):
    """Input for a `field` of Study, its `first` text, and attributes of its element."""

    field: str
    label: str
    first: str = ""
    hint: str = ""
    attributes: Mapping[str, str] = {}


WHOLE, DECIMAL = {"inputmode": "numeric"}, {"inputmode": "decimal"}
INPUTS = (
    StudyInput(
        "name", "Name", hint="Lower-case letters, digits and hyphens.",
        attributes={"maxlength": "63", "required": ""},
    ),
    StudyInput("purpose", "Purpose", hint="In a sentence or two, for those who decide on consent."),
    StudyInput("components", "Components", "2", attributes=WHOLE),
    StudyInput(
        "epsilon", "Epsilon", "1", attributes=DECIMAL,
        hint="Privacy budget of the study: less protects persons better, more gives higher accuracy.",
    ),
)  # fmt: skip
MORE_INPUTS = (
    StudyInput("full_name", "Responsible person", hint="Empty, like the next four: as in your profile."),
    StudyInput("institution", "Institution"),
    StudyInput("contact", "Contact"),
    StudyInput("ethics_reference", "Ethics approval (its reference)"),
    StudyInput("legal_basis", "Legal basis"),
    StudyInput("delta", "Delta", "1e-6", attributes=DECIMAL),
    StudyInput(
        "scaling", "Scaling of the columns",
        hint="standard, bounds or none. Without an entry it is standard if their units differ, else bounds.",
    ),
    StudyInput(
        "expected_records", "Expected records of all sites together (a public estimate)", "10000",
        attributes=WHOLE,
    ),
)  # fmt: skip
TEMPLATE_VALUES = {"inputs": INPUTS, "more_inputs": MORE_INPUTS, "range_text": range_text}


def _reader(kind: Callable[[str], Any], form: str) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            return kind(text)
        except ValueError:
            raise ValueError(f"must be {form}") from None

    return read


READERS: Readers = {
    int: _reader(int, "a whole number, such as 2"),
    float: _reader(float, "a number, such as 0.5"),
}


def new_form(submission: str, sites: Iterable[str]) -> FormData:
    """Return a form without columns; `submission` is the id of the study to submit."""
    first = [(one.field, one.first) for one in INPUTS + MORE_INPUTS]
    return FormData([("submission", submission), *first, *(("site", name) for name in sites)])


def text_of(form: FormData, key: str) -> str:
    """Return a text of a form on one line; empty if it is missing."""
    return " ".join(str(form.get(key, "")).split())


def selected(form: FormData, key: str) -> dict[str, None]:
    """Return the distinct values of a form's checkboxes, in order, as keys."""
    return dict.fromkeys(str(one) for one in form.getlist(key))


def draft_of(form: FormData) -> StudyDraft:
    """Return the draft in a form, which names columns. Raises RequestError: code `bad-study`."""
    columns, sites = selected(form, "column"), selected(form, "site")
    need(bool(columns), "select at least one column")
    need(bool(sites), "select at least one site")
    texts = {one.field: text_of(form, one.field) for one in INPUTS + MORE_INPUTS}
    trust = Trust.SECURE_AGGREGATION if form.get("masked") == "yes" else Trust.CENTRAL
    applicant = {key: texts.pop(key) for key in APPLICANT_KEYS}
    if not texts["scaling"]:
        del texts["scaling"]
    values = applicant | coerce_values(Study, texts, study_error, READERS)
    return draft_from_fields({**values, "trust": trust, "columns": columns, "sites": tuple(sites)})


def submit_command(study: Study, submission: str) -> str:
    """Return the command that signs and submits a study's file, as one study however often it is run."""
    return as_typed("eigenveil", "study", "submit", f"{study.name}.toml", "--submission", submission)


def study_file(study: Study, submission: str) -> str:
    """Return the file of a study, for the machine with its analyst's key."""
    return (
        "# A draft made by the coordinator: no query is sent before its analyst signs and submits it.\n"
        "# This command shows the study before you sign it:\n"
        f"# {submit_command(study, submission)}\n\n{study_to_toml(study)}"
    )


def column_choices(form: FormData, dictionary: Dictionary) -> list[tuple[Column, DictionaryColumn]]:
    """Return the selected columns, then those that match the search, as many as fit a page."""
    chosen, wanted = selected(form, "column"), text_of(form, "search").casefold()
    # A categorical column has one for each level.
    every = [(column, about) for about in dictionary.columns for column in about.columns]
    others = [
        (column, about)
        for column, about in every
        if column.name not in chosen and wanted in f"{column.name} {about.meaning} {about.unit}".casefold()
    ]
    return [one for one in every if one[0].name in chosen] + others[:MOST_SHOWN]


def earlier_same_study(data: ConsoleData, study: Study, analyst: str) -> ListedStudy | None:
    """Return the analyst's own identical study that has, or will have, a result; None if there is none."""
    mine = bytes.fromhex(study_digest(study))
    found = data.lists.of_analyst(analyst, LASTING)
    return next((stored for stored in found if stored.summary.content == mine), None)


def prediction(found: StudyPreview, data: ConsoleData, directory: Directory) -> dict[str, Any]:
    """Return the values of the template of a prediction."""
    left, cost = data.left(), found.plan.cost
    stated = {site: directory.sites.get(site) for site in found.plan.study.federation.sites}
    return {
        "predicted": found,
        "left": left,
        "whole": max(1, data.ledger.totals.limit.micro_rho),
        "further": studies_left(left - cost, cost),
        "deciding": [site for site, one in stated.items() if one is not None and one.needs_approval],
        "accuracy": accuracy(found.sines),
    }


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
