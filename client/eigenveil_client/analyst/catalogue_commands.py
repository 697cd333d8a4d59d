"""`eigenveil sites`, `columns` and `dictionary`: what a federation has, and what its columns mean."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import click

from eigenveil_client.analyst.options import at_profile, dictionary_option, json_option
from eigenveil_common.command import FILE, say, tell
from eigenveil_common.examples import example
from eigenveil_common.files import check_new, read_text, write_durably


@click.command()
@at_profile
def sites(profile: Path | None, as_json: bool) -> None:
    """The sites of your federation and what each states of itself, by its own word."""
    from eigenveil_client.analyst.catalogue import show_sites, sites_value
    from eigenveil_client.analyst.talk import at

    tell(sites_value(at(profile, lambda analyst: analyst.federation())), as_json, show_sites)


@click.command()
@dictionary_option
@at_profile
def columns(named: str | None, profile: Path | None, as_json: bool) -> None:
    """The columns of your federation's dictionary, and which sites offer them."""
    from eigenveil_client.analyst.catalogue import columns_value, show_columns
    from eigenveil_client.analyst.dictionaries import FEDERATION, find_dictionary
    from eigenveil_client.analyst.python.choosing import dictionary_of
    from eigenveil_client.analyst.talk import at

    if named in (None, FEDERATION):
        view = at(profile, lambda analyst: analyst.federation())
        value = columns_value(dictionary_of(view), view)
    else:
        value = columns_value(find_dictionary(str(named), Path(), profile), None)
    tell(value, as_json, show_columns)


@click.group()
def dictionary() -> None:
    """Files that say what columns mean, in which unit and between which public bounds."""


@dictionary.command("example")
def show_example() -> None:
    """Print the dictionary that is installed with eigenveil, as a start for one of your own."""
    click.echo(example("dictionary"), nl=False)


@dictionary.command()
def schema() -> None:
    """Print the JSON Schema of a dictionary."""
    from eigenveil.dictionary.schema import dictionary_schema

    click.echo(json.dumps(dictionary_schema(), indent=2))


@dictionary.command()
@click.argument("file", metavar="DICTIONARY.toml", type=FILE)
@json_option
def check(file: Path, as_json: bool) -> None:
    """Whether DICTIONARY.toml is whole and can be published."""
    from eigenveil.dictionary.toml import dictionary_digest, parse_dictionary

    found = parse_dictionary(read_text(file))
    value = {
        "dictionary": found.name,
        "version": found.version,
        "columns": len(found.columns),
        "digest": dictionary_digest(found),
    }
    say(
        value,
        as_json,
        f"{found.name}, version {found.version}: {len(found.columns)} columns, all of them whole.",
    )


@dictionary.command("import")
@click.option("--omop", type=FILE, help="Athena's CONCEPT.csv: its LOINC measurements.")
@click.option(
    "--redcap", type=FILE, help="A REDCap project's data dictionary (CSV): its numbers and choices."
)
@click.option("--name", default="imported", show_default=True, help="What to call the dictionary.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("dictionary.toml"),
    show_default=True,
)
@json_option
def import_(omop: Path | None, redcap: Path | None, name: str, out: Path, as_json: bool) -> None:
    """Write a dictionary from a list of measurements; bounds that it lacks are left to fill in."""
    from eigenveil.dictionary.omop import from_omop
    from eigenveil.dictionary.redcap import from_redcap
    from eigenveil_client.analyst.dictionaries import shipped

    if (omop is None) == (redcap is None):
        raise click.UsageError("give --omop FILE or --redcap FILE")
    check_new(out)
    if omop is not None:
        draft = from_omop(StringIO(read_text(omop), newline=""), name, shipped())
    else:
        assert redcap is not None
        draft = from_redcap(StringIO(read_text(redcap), newline=""), name)
    write_durably(out, draft.text.encode())
    value = {
        "dictionary": str(out),
        "columns": draft.columns,
        "to_fill": draft.to_fill,
        "left_out": draft.left_out,
    }
    text = f"Wrote {out}: {draft.columns} columns; {draft.left_out} rows were no measurements."
    rest = f" Of {draft.to_fill}, unit or bounds are still to be filled in." if draft.to_fill else ""
    say(value, as_json, text + rest)


COMMANDS = (sites, columns, dictionary)
