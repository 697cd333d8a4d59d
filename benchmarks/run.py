"""`make bench`: every benchmark, one after the other. Figures are ratios or medians of one run."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    """Kernels, noise, rounds, growth in short, starting, planner, accuracy; 1 if a target was missed."""
    sys.path.insert(0, str(ROOT))
    from benchmarks import algorithms, federation, fits, kernels, noise, planner, start
    from benchmarks.accuracy import __main__ as accuracy
    from benchmarks.growth import __main__ as growth

    missed = max(kernels.main(), noise.main())
    federation.main()
    growth.main(["--quick", "--anew"])
    return max(missed, start.main(), algorithms.main(), fits.main(), planner.main(), accuracy.main([]))


if __name__ == "__main__":
    sys.exit(main())
