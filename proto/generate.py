"""Compile proto/eigenveil_proto/**/*.proto to typed Python beside them (`make proto`).

Every x.proto becomes x_pb2.py, x_pb2.pyi, x_pb2_grpc.py and x_pb2_grpc.pyi. The result is
committed, and a repo test compares it with a fresh run, so that neither can drift.
"""

from __future__ import annotations

import argparse
import sys
import sysconfig
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

IMPORT_ROOT = Path(__file__).resolve().parent
PACKAGE = "eigenveil_proto"
PLUGINS = ("mypy", "mypy_grpc")


def sources() -> list[str]:
    """The .proto files, named relative to the import root so that generated imports work."""
    found = (IMPORT_ROOT / PACKAGE).rglob("*.proto")
    return sorted(path.relative_to(IMPORT_ROOT).as_posix() for path in found)


def arguments(out: Path) -> list[str]:
    """The protoc command line that writes below `out`; plugins come from this environment."""
    scripts = Path(sysconfig.get_path("scripts"))
    well_known_types = files("grpc_tools") / "_proto"
    return [
        "protoc",
        f"-I{IMPORT_ROOT}",
        f"-I{well_known_types}",
        *(f"--plugin=protoc-gen-{name}={scripts / f'protoc-gen-{name}'}" for name in PLUGINS),
        f"--python_out={out}",
        f"--grpc_python_out={out}",
        *(f"--{name}_out=quiet:{out}" for name in PLUGINS),
        *sources(),
    ]


def main() -> int:
    """Generate; returns protoc's exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--out", type=Path, default=IMPORT_ROOT, help="write here instead of beside the sources"
    )
    out: Path = parser.parse_args().out
    if not sources():
        print(f"no .proto file below {IMPORT_ROOT / PACKAGE}", file=sys.stderr)
        return 1
    return int(protoc.main(arguments(out)))


if __name__ == "__main__":
    sys.exit(main())
