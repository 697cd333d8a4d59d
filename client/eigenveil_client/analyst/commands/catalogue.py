"""`eigenveil sites`, `columns` and `dictionary`: a federation's sites and the meaning of its columns."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import click

from eigenveil_client.analyst.options import dictionary_option, json_option, profile_and_json_options
from eigenveil_common.command import FILE, console, print_result, print_result_as
from eigenveil_common.examples import example
from eigenveil_common.files import check_new, read_text, write_durably


@click.command()
@click.option("--study", "file", type=FILE, help="Show which sites are ready for STUDY.toml, and why not.")
@profile_and_json_options
def sites(file: Path | None, profile: Path | None, as_json: bool) -> None:
    """List the sites of your federation, with each site's own statement."""
    from eigenveil_client.analyst.catalogue import readiness_value, sites_value
    from eigenveil_client.analyst.coordinator import call_coordinator
    from eigenveil_client.analyst.python.connect import readiness_table, site_table
    from eigenveil_client.analyst.studies import site_readiness

    if file is not None:
        _, found = site_readiness(file, profile)
        print_result_as(readiness_value(found), as_json, lambda _: console.print(readiness_table(found)))
        return
    view = call_coordinator(profile, lambda analyst: analyst.federation())
    print_result_as(sites_value(view), as_json, lambda _: console.print(site_table(view)))


@click.command()
@dictionary_option
@profile_and_json_options
def columns(named: str | None, profile: Path | None, as_json: bool) -> None:
    """List the columns of your federation's dictionary, and the sites that offer them."""
    from eigenveil_client.analyst.catalogue import columns_value
    from eigenveil_client.analyst.coordinator import call_coordinator
    from eigenveil_client.analyst.federation import FEDERATION, dictionary_of, find_dictionary
    from eigenveil_client.analyst.python.connect import column_table

    view = None
    if named in (None, FEDERATION):
        view = call_coordinator(profile, lambda analyst: analyst.federation())
    found = find_dictionary(str(named), Path(), profile) if view is None else dictionary_of(view)
    value, table = columns_value(found, view), column_table(found, view)
    outside = ", ".join(value["offered_outside_dictionary"])
    print_result_as(value, as_json, lambda _: console.print(table))
    if outside and not as_json:
        console.print(f"Offered by sites, but not in the dictionary: {outside}", markup=False)


@click.group()
def dictionary() -> None:
    """Dictionaries: files that define columns, with their units and public bounds."""


@dictionary.command("example")
def show_example() -> None:
    """Print the dictionary that is installed with eigenveil, as a start for your own."""
    click.echo(example("dictionary"), nl=False)


@dictionary.command()
def schema() -> None:
    """Print the JSON Schema of a dictionary."""
    from eigenveil.dictionary.formats import dictionary_schema

    click.echo(json.dumps(dictionary_schema(), indent=2))


@dictionary.command()
@click.argument("file", metavar="DICTIONARY.toml", type=FILE)
@json_option
def check(file: Path, as_json: bool) -> None:
    """Check that DICTIONARY.toml is complete and can be published."""
    from eigenveil.dictionary.formats import dictionary_digest, parse_dictionary

    found = parse_dictionary(read_text(file))
    value = {"dictionary": found.name, "version": found.version, "columns": len(found.columns)}
    text = f"{found.name}, version {found.version}: {len(found.columns)} columns, all complete."
    print_result(value | {"digest": dictionary_digest(found)}, as_json, text)


@dictionary.command("import")
@click.option("--omop", type=FILE, help="Athena's CONCEPT.csv: its LOINC measurements.")
@click.option(
    "--redcap", type=FILE, help="A REDCap project's data dictionary (CSV): its numbers and choices."
)
@click.option("--name", default="imported", show_default=True, help="Name of the dictionary.")
@click.option("--out", type=FILE, default=Path("dictionary.toml"), show_default=True)
@json_option
def import_(omop: Path | None, redcap: Path | None, name: str, out: Path, as_json: bool) -> None:
    """Write a dictionary from a list of measurements. Missing bounds are left for you to fill in."""
    from eigenveil.dictionary.imports import from_omop, from_redcap
    from eigenveil_client.analyst.federation import shipped

    if (omop is None) == (redcap is None):
        raise click.UsageError("give --omop FILE or --redcap FILE")
    check_new(out)
    if omop is not None:
        draft = from_omop(StringIO(read_text(omop), newline=""), name, shipped())
    else:
        assert redcap is not None
        draft = from_redcap(StringIO(read_text(redcap), newline=""), name)
    write_durably(out, draft.text.encode())
    value = {"dictionary": str(out), "columns": draft.columns, "to_fill": draft.to_fill}
    value["left_out"] = draft.left_out
    text = f"Wrote {out}: {draft.columns} columns; {draft.left_out} rows were not measurements."
    rest = f" Fill in the unit or bounds of {draft.to_fill} columns." if draft.to_fill else ""
    print_result(value, as_json, text + rest)


COMMANDS = (sites, columns, dictionary)
