"""`eigenveil`: what an analyst runs, and what anybody can run without a federation.

Modules of commands say what can be typed. What a command needs is imported when it is run: help, and a word
mistyped, cost nobody the second that numpy, gRPC and Arrow take to load.
"""

from __future__ import annotations

import sys

import click

from eigenveil import __version__
from eigenveil_client.analyst import catalogue_commands, profile_commands
from eigenveil_client.analyst.releases import derive_commands, verify_commands
from eigenveil_client.analyst.signing import key_commands
from eigenveil_client.analyst.study_commands import study
from eigenveil_client.demo.command import demo
from eigenveil_client.local import commands as local_commands
from eigenveil_client.local.compare.command import compare
from eigenveil_common.command import SHORT_HELP, run


@click.group(context_settings=SHORT_HELP)
@click.version_option(__version__, prog_name="eigenveil")
def eigenveil() -> None:
    """Federated PCA with differential privacy, over records that never leave their site.

    Exit codes: 0 done; 1, 2 wrong usage or study; 3 data; 4 configuration; 5 budget; 6 policy; 7 too few
    records; 8 not found; 9 conflict; 10 not ready; 11 study failed; 12 cancelled; 13 bad release; 14 a
    release signed with an unknown key; 15 to 18 a study's signature; 20 to 24 the coordinator (identity,
    protocol, contribution, version, unreachable); 70, 71 disk or bug; 130 interrupted. With --json an error
    is one JSON object on standard output.
    """


for command in (
    compare,
    demo,
    study,
    *catalogue_commands.COMMANDS,
    *local_commands.COMMANDS,
    *profile_commands.COMMANDS,
    *key_commands.COMMANDS,
    *verify_commands.COMMANDS,
    *derive_commands.COMMANDS,
):
    eigenveil.add_command(command)


def main() -> int:
    return run(eigenveil, "analyst")


if __name__ == "__main__":
    sys.exit(main())
