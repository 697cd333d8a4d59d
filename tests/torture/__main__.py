"""`python -m tests.torture`: every check, one line each; the exit code says whether all passed."""

from __future__ import annotations

import argparse
import importlib
import sys
import time

import eigenveil_server  # noqa: F401 - before gRPC, which reads its settings when it is loaded
from tests.torture import preflight

UNFIT = 2  # the exit code of a machine on which a check cannot run
CHECKS = {  # each in its room
    "kills": "crashes",
    "power": "crashes",
    "disk_errors": "crashes",
    "checkpoints": "crashes",
    "charges": "crashes",
    "certificates": "peers",
    "calls": "peers",
    "messages": "peers",
    "http2": "front",
    "exhaustion": "front",
    "denial": "front",
    "programs": "programs",
    "networks": "networks",
    "markers": "peers",
    "malicious": "peers",
    "sets": "masked",
    "walk": "masked",
    "federation": "masked",
    "exact": "masked",
}


def main() -> int:
    """Run the checks, or those named by --only, at --scale of their full size."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=CHECKS, default=tuple(CHECKS), metavar="NAME")
    parser.add_argument("--scale", type=float, default=1.0, help="1 is what is promised")
    parser.add_argument("--check", action="store_true", help="only say what this machine lacks")
    chosen = parser.parse_args()
    problems = preflight.lacking(chosen.only)
    if problems:
        print("\n".join([*problems, "nothing was run; --only NAME ... leaves checks out"]), file=sys.stderr)
        return UNFIT
    if chosen.check:
        return 0
    passed, began = True, time.monotonic()
    for name in chosen.only:
        start = time.monotonic()
        line = importlib.import_module(f"tests.torture.{CHECKS[name]}.{name}").run(chosen.scale)
        print(f"{line}  [{time.monotonic() - start:.0f} s]", flush=True)
        passed = passed and line.passed
    print(f"all checks passed: {'yes' if passed else 'NO'}  [{time.monotonic() - began:.0f} s]")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
