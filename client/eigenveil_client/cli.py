"""`eigenveil`: the commands of an analyst, and those that need no federation. Modules of commands hold
arguments and options only. A command imports what it needs when it runs, so that help and usage errors do not
load numpy, gRPC and Arrow."""

from __future__ import annotations

import sys

import click

from eigenveil import __version__
from eigenveil_client.analyst.commands import catalogue, profile, releases
from eigenveil_client.analyst.commands.studies import study
from eigenveil_client.demo.command import demo
from eigenveil_client.local import commands as local_commands
from eigenveil_client.local.commands import compare
from eigenveil_common.command import SHORT_HELP, run


@click.group(context_settings=SHORT_HELP)
@click.version_option(__version__, prog_name="eigenveil")
def eigenveil() -> None:
    """Federated PCA with differential privacy, over records that never leave their site.

    Exit codes: 0 done; 1, 2 wrong usage or study; 3 data; 4 configuration; 5 budget; 6 policy; 7 too few
    records; 8 not found; 9 conflict; 10 not ready; 11 study failed; 12 cancelled; 13 bad release; 14 a
    release signed with an unknown key; 15 to 18 a study's signature; 20 to 24 the coordinator (identity,
    protocol, contribution, version, unreachable); 70, 71 disk or bug; 130 interrupted. With --json an error
    is one JSON object on standard output."""


for command in (
    compare,
    demo,
    study,
    *catalogue.COMMANDS,
    *local_commands.COMMANDS,
    *profile.COMMANDS,
    *releases.COMMANDS,
):
    eigenveil.add_command(command)


def main() -> int:
    return run(eigenveil, "analyst")


if __name__ == "__main__":
    sys.exit(main())
