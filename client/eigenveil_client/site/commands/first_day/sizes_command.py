"""Command that proposes the sizes of a site's records for its site.toml, as `init` does, and states them."""

from __future__ import annotations

from pathlib import Path

import click

from eigenveil.errors import Code, RequestError
from eigenveil_client.site.commands.terminal import CONFIG_FILE, JSON
from eigenveil_common import config
from eigenveil_common.command import is_interactive, print_result
from eigenveil_common.trusted_files import check_trusted


@click.command("sizes")
@CONFIG_FILE
@click.option("--accept", is_flag=True, help="Ask nothing: state them.")
@click.option(
    "--person", type=click.Choice(["none"]), help="Without person_column: each row is another person."
)
@JSON
def propose_sizes(config_file: Path, accept: bool, person: str | None, as_json: bool) -> None:
    """Propose minimum_records, maximum_records and memory_mib, and write them into site.toml.

    They follow from the number of persons, which is noised and charged once, for epsilon 0.1 of the budget.
    After a failure or a crash of init or of this command, it continues: the number and the charge are the
    same."""
    from eigenveil_client.site import config as site_config
    from eigenveil_client.site.commands.first_day import questions
    from eigenveil_client.site.commands.first_day.counted import is_counted, noised_promises
    from eigenveil_client.site.mapping.changes import state_sizes

    check_trusted([config_file])
    loaded, asks = site_config.load(config_file), is_interactive(as_json) and not accept
    if not accept and not asks:
        raise click.UsageError("state --accept; at a terminal you are asked")
    if not loaded.person_header and person is None and not (asks and questions.rows_are_persons()):
        todo = "State person_column in it, or --person none if every row is another person"
        raise RequestError(Code.BAD_CONFIG, f"{config_file} does not say whose a row is. {todo}")
    sizes = noised_promises(loaded) if accept or questions.may_count(counted=is_counted(loaded)) else None
    if sizes is not None and asks and not questions.confirm_promises(sizes):
        sizes = None
    if sizes is not None:
        state_sizes(config_file, sizes)
    stated = None if sizes is None else config.values(sizes)
    text = ", ".join(f"{key} = {value}" for key, value in (stated or {}).items()) or "nothing"
    print_result({"config": str(config_file), "sizes": stated}, as_json, f"stated in {config_file}: {text}")
