"""`python -m tests.torture`: every check, one line each; the exit code says whether all passed."""

from __future__ import annotations

import argparse
import sys
import time

from tests.torture.checks import CHECKS, lacking, run

UNFIT = 2  # the exit code of a machine on which a check cannot run


def main() -> int:
    """Run the checks, or those named by --only, at --scale of their full size."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=CHECKS, default=tuple(CHECKS), metavar="NAME")
    parser.add_argument("--scale", type=float, default=1.0, help="1 is what is promised")
    parser.add_argument("--jobs", type=int, default=1, help="checks at once (memory and time: alone)")
    parser.add_argument("--check", action="store_true", help="only say what this machine lacks")
    parser.add_argument("--possible", action="store_true", help="leave out, by name, what cannot run here")
    chosen = parser.parse_args()
    if chosen.jobs < 1:
        parser.error(f"--jobs {chosen.jobs}: give 1 or more")
    wanted = list(chosen.only)
    problems = lacking(wanted)
    left_out = [name for name in wanted if lacking([name])] if chosen.possible else []
    for reason in problems if chosen.possible else ():
        print(f"not run: {reason}", flush=True)
    if problems and not chosen.possible:
        print("\n".join([*problems, "nothing was run; --only NAME ... leaves checks out"]), file=sys.stderr)
        return UNFIT
    if chosen.check:
        return 0
    passed, began = True, time.monotonic()
    names = [name for name in wanted if name not in left_out]
    for line, good, seconds in run(names, chosen.scale, chosen.jobs):
        print(f"{line}  [{seconds:.0f} s]", flush=True)
        passed = passed and good
    but = f", but for what was not run: {', '.join(left_out)}" if left_out else ""
    print(f"all checks passed: {'yes' if passed else 'NO'}{but}  [{time.monotonic() - began:.0f} s]")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
