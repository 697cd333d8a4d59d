"""`python -m deploy.release`: build a release of the last commit into dist/, the same bytes every time.

The folder then holds the source archive, a wheel of Python alone, a wheel with kernels for this kind of
machine, what runs in production (sbom.json), its licences (licences.md), how all of it was built
(provenance.json) and the digests of all files (SHA256SUMS). Nothing is signed."""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from deploy.release import licences, provenance

ROOT = Path(__file__).resolve().parents[2]
DIST, SECOND = ROOT / "dist", ROOT / "build" / "second-release"
SUMS = "SHA256SUMS"
NO_COMPILER = "false"  # a program that fails: the build then goes on without kernels


def git(*words: str, tree: Path = ROOT) -> bytes:
    return subprocess.run(["git", *words], cwd=tree, check=True, capture_output=True).stdout


def uncommitted(tree: Path) -> list[str]:
    """Return the files of a tree that differ from its last commit, or that git does not know."""
    lines = git("status", "--porcelain", "--untracked-files=all", tree=tree).decode().splitlines()
    return [line[3:] for line in lines]


def export(tree: Path, folder: Path) -> None:
    """Write the files of the last commit into a folder, and nothing else that lies in the tree."""
    with tarfile.open(fileobj=io.BytesIO(git("archive", "--format=tar", "HEAD", tree=tree))) as archive:
        archive.extractall(folder, filter="data")


def run(*words: str, tree: Path, epoch: int, compiler: str = "") -> None:
    """Run a Python module on an exported tree; its output is shown if it fails."""
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(epoch)} | ({"CC": compiler} if compiler else {})
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} failed:\n{done.stdout}{done.stderr}")


def build(tree: Path, out: Path, commit: str, epoch: int) -> None:
    """Write every artefact of an exported tree into a folder.

    Raises:
        SystemExit: a step failed, there is no C compiler, the build's libraries are not the locked ones, or a
            licence is not allowed.
    """
    tools = provenance.locked(tree / "requirements" / "build.txt")
    if strange := provenance.not_installed(tools):
        raise SystemExit(f"The lock of the build is not installed: {'; '.join(strange)}. Run make venv.")
    hatchling = ("hatchling", "build", "-d", str(out))
    run(*hatchling, "-t", "sdist", "-t", "wheel", tree=tree, epoch=epoch, compiler=NO_COMPILER)
    pure = set(out.glob("*.whl"))
    run(*hatchling, "-t", "wheel", tree=tree, epoch=epoch)
    if set(out.glob("*.whl")) == pure:
        raise SystemExit("The wheel has no kernels: this needs a C compiler. Install gcc, or name one in CC.")
    sbom = ("requirements", "requirements/runtime.txt", "--output-reproducible", "-o", str(out / "sbom.json"))
    run("cyclonedx_py", *sbom, tree=tree, epoch=epoch)
    of_packages = licences.found(tree)
    if refused := licences.refused(of_packages):
        raise SystemExit(f"A licence is unknown or not allowed: {'; '.join(refused)}. See make licences.")
    (out / "licences.md").write_text(licences.page(of_packages))
    statement = provenance.statement(digests(out), commit, epoch, tools)
    (out / "provenance.json").write_text(provenance.as_text(statement))
    (out / SUMS).write_text("".join(f"{digest}  {name}\n" for name, digest in digests(out).items()))


def digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a folder, by name."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def release(out: Path, tree: Path = ROOT) -> dict[str, str]:
    """Build the last commit of a tree into a folder, which is emptied first, and return the digests."""
    commit = git("rev-parse", "HEAD", tree=tree).decode().strip()
    epoch = int(git("log", "-1", "--format=%ct", tree=tree))
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as exported:
        export(tree, Path(exported))
        build(Path(exported), out, commit, epoch)
    return digests(out)


def require_clean(tree: Path) -> None:
    """Refuse a tree that is not its last commit: nobody else could build the same bytes."""
    if changed := uncommitted(tree):
        others = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        where = f"{changed[0]}{others}"
        raise SystemExit(
            f"The tree differs from its last commit: {where}. Commit, stash or remove what differs."
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m deploy.release", description=__doc__)
    parser.add_argument("--check", action="store_true", help="build twice, in two folders, and compare bytes")
    parser.add_argument(
        "--committed", action="store_true", help="also if the tree differs from its last commit"
    )
    chosen = parser.parse_args()
    if not chosen.committed:
        require_clean(ROOT)
    first = release(DIST)
    for name, digest in first.items():
        print(f"{digest}  dist/{name}")
    if chosen.check:
        second = release(SECOND)
        if differ := sorted(name for name, _ in first.items() ^ second.items()):
            raise SystemExit(f"Two builds differ, dist/ and {SECOND.relative_to(ROOT)}/: {', '.join(differ)}")
        print(f"two builds, two folders: the same bytes in {len(first)} files")


if __name__ == "__main__":
    main()
