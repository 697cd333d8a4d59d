"""`python -m tests.torture.networks.seeded_coordinator`: the coordinator's command with reproducible noise.

So that an undisturbed and a disturbed run of one study can be compared digest by digest; its releases say
that they are not private."""

from __future__ import annotations

import sys
from unittest import mock

from eigenveil.noise.seeded import SeededNoise
from eigenveil_server import cli, daemon

SEED = 20_260

if __name__ == "__main__":
    with mock.patch.object(daemon, "OsNoise", return_value=SeededNoise(SEED)):
        sys.exit(cli.main())
