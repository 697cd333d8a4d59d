"""Where the dictionary of a study file is: the federation's, a file beside it, or the one that ships."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from eigenveil.dictionary.dictionary import Dictionary, nearest
from eigenveil.dictionary.resolve import Resolved, read_study_file
from eigenveil.dictionary.toml import parse_dictionary
from eigenveil.errors import Code, RequestError
from eigenveil_client.analyst.profile import follow, load_profile
from eigenveil_client.connection.held_dictionary import held_dictionary
from eigenveil_common.command import errors
from eigenveil_common.examples import example
from eigenveil_common.files import is_there, read_text

FEDERATION = "federation"


def shipped() -> Dictionary:
    """The dictionary that is installed with eigenveil."""
    return parse_dictionary(example("dictionary"))


def find_dictionary(named: str, folder: Path, profile: Path | None) -> Dictionary:
    """The dictionary that is called `named` in a file of `folder`.

    Raises:
        RequestError: there is none of that name, or it cannot be read.
    """
    if named == FEDERATION:
        found = held_dictionary(load_profile(profile))
        if found is None:
            fetching = follow(profile, "columns")
            raise RequestError(
                Code.NOT_FOUND, f"no dictionary of your federation is here yet; fetch it with: {fetching}"
            )
        return found
    own = shipped()
    if named == own.name:
        return own
    path = folder / named
    if not is_there(path):
        names = (FEDERATION, own.name)
        raise RequestError(
            Code.NOT_FOUND,
            f"dictionary = {named!r} is neither {' nor '.join(map(repr, names))} nor a file in "
            f"{folder.absolute()}{nearest(named, names)}",
        )
    return parse_dictionary(read_text(path))


def study_of(path: Path, profile: Path | None = None) -> Resolved:
    """The study in a file, with all that a dictionary says of its columns. Raises as `made_whole`."""
    return made_whole(read_text(path), path.parent, profile)


def made_whole(text: str, folder: Path, profile: Path | None) -> Resolved:
    """The study that a file's text says, as of `folder`, with all that a dictionary says of its columns.

    Raises:
        RequestError: it cannot be read, or names what its dictionary does not have.
    """
    file = read_study_file(text)
    if file.is_whole:
        return Resolved(text=file.text)
    named = file.dictionary or FEDERATION
    resolved = file.resolved(find_dictionary(named, folder, profile))
    by_coordinator = "the federation's dictionary, by its coordinator's word: " if named == FEDERATION else ""
    return replace(resolved, source=f"{by_coordinator}{resolved.source}")


def tell_overrides(study: Resolved) -> None:
    """Show a person what the study states otherwise than its dictionary."""
    for sentence in study.overrides:
        errors.print(f"override: {sentence}", style="yellow", markup=False, soft_wrap=True)
