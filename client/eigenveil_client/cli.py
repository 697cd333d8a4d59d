"""`eigenveil`: what an analyst runs, and what anybody can run without a federation."""

from __future__ import annotations

import sys
from importlib import import_module

import click

from eigenveil import __version__
from eigenveil_common.command import SHORT_HELP, run

COMMANDS = {
    "compare": "eigenveil_client.local.compare.command:compare",
    "demo": "eigenveil_client.demo.command:demo",
    "doctor": "eigenveil_client.analyst.profile:doctor",
    "enrol": "eigenveil_client.analyst.profile:enrol",
    "plan": "eigenveil_client.local.plan:plan",
    "report": "eigenveil_client.analyst.verify_commands:report",
    "simulate": "eigenveil_client.local.simulate:simulate",
    "study": "eigenveil_client.analyst.study_commands:study",
    "verify": "eigenveil_client.analyst.verify_commands:verify",
}


class LateGroup(click.Group):
    """Imports a command when it is asked for, so that each pays only for what it uses."""

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, attribute = COMMANDS[name].split(":")
        found: click.Command = getattr(import_module(module), attribute)
        return found


@click.group(cls=LateGroup, context_settings=SHORT_HELP)
@click.version_option(__version__, prog_name="eigenveil")
def eigenveil() -> None:
    """Federated PCA with differential privacy, over records that never leave their site.

    Exit codes: 0 done; 1, 2 wrong usage or study; 3 data; 4 configuration; 5 budget; 6 policy; 7 too few
    records; 8 not found; 9 conflict; 10 not ready; 11 study failed; 12 cancelled; 13 bad release; 14 a
    release signed with an unknown key; 20 to 24 the coordinator (identity, protocol, contribution, version,
    unreachable); 70, 71 disk or bug; 130 interrupted. With --json an error is one JSON object on standard
    output.
    """


def main() -> int:
    return run(eigenveil)


if __name__ == "__main__":
    sys.exit(main())
