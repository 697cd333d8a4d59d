"""`make bench`: every benchmark, one after the other. Figures are ratios or medians of one run."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    """Kernels, a federation's rounds, then accuracy; the exit code says whether accuracy met its targets."""
    sys.path.insert(0, str(ROOT))
    from benchmarks import accuracy, federation, kernels

    kernels.main()
    federation.main()
    return accuracy.main()


if __name__ == "__main__":
    sys.exit(main())
