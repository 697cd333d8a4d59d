"""Applicant of an analyst's profile: who asks, in each study of the profile that does not state it itself. It
is the table [applicant] of profile.toml, which a program and a person may write."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from eigenveil.errors import Code, RequestError
from eigenveil.study.applicant import Applicant
from eigenveil.study.checks import parse_toml, plain_fields, toml_text
from eigenveil.study.toml import StudyDraft
from eigenveil_client.analyst.profile import PROFILE, stored_applicant
from eigenveil_common.files import make_folder, path_exists, read_text, write_durably

TABLE = "applicant"
HEADER = re.compile(rf"^[ \t]*\[[ \t]*{TABLE}[ \t]*\]", re.MULTILINE)


def store_applicant(folder: Path, changes: Mapping[str, str]) -> Applicant:
    """Change texts of the profile's applicant ("" removes one), and return it. Everything before the table
    [applicant], which is the last of the file, stays as it is. Raises RequestError: code `bad-study`, a text
    is too long or not printable; `bad-config`, profile.toml is invalid; InternalError, code `storage`."""
    applicant = replace(stored_applicant(folder), **changes)
    applicant.check_blanks()
    path = folder / PROFILE
    before = read_text(path) if path_exists(path) else ""
    rest = HEADER.split(before)[0].rstrip()
    stated = {name: text for name, text in plain_fields(applicant).items() if text}
    text = "\n\n".join(filter(None, (rest, toml_text({TABLE: stated}).rstrip() if stated else ""))) + "\n"
    _check_same_settings(path, before, text)
    make_folder(folder, mode=0o700)
    write_durably(path, text.encode())
    return applicant


def _check_same_settings(path: Path, before: str, after: str) -> None:
    """Check that only the table [applicant] differs between two texts of a profile."""
    try:
        same = {**parse_toml(before), TABLE: None} == {**parse_toml(after), TABLE: None}
    except ValueError:
        same = False
    if not same:
        todo = f"Write [{TABLE}] as the last table of it"
        raise RequestError(Code.BAD_CONFIG, f"{path}: the applicant cannot be replaced. {todo}")


def with_applicant(draft: StudyDraft, applicant: Applicant) -> StudyDraft:
    """Return the draft with the texts of `applicant` that it does not state itself."""
    stated = draft.given.get(TABLE, {})
    if not isinstance(stated, dict):  # refused with the study
        return draft
    texts = plain_fields(applicant).items()
    added = {name: text for name, text in texts if text and not str(stated.get(name, "")).strip()}
    if not added:
        return draft
    given = {**draft.given, TABLE: {**stated, **added}}
    return replace(draft, given=given, text=toml_text(given))
