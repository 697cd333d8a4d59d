"""`python -m tests.matrix.trial KIND ENVIRONMENT`: install the built release in an empty folder, and try it.

Its last line says what was tried, and with which Python, NumPy and wheel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.everything.tree import ROOT
from tests.matrix.environments import ENVIRONMENTS, KINDS, Environment

RELEASE, PACKAGES = ROOT / "build" / "matrix" / "release", ROOT / "build" / "matrix" / "packages"
EXTRAS = "analyst,coordinator,site,estimators"
# What each kind installs first: lists whose hashes are checked.
LISTS = {"demo": ("runtime.txt", "estimators.txt"), "tests": ("lock.txt",), "slow": ("lock.txt",)}
MARKS = {"tests": ("-m", "not slow"), "slow": ("-m", "slow", "--hypothesis-profile=thorough")}
HERE = """
import platform, numpy, eigenveil.estimators
from eigenveil.site.kernels.record_chunks import load_kernels
kernels = "with" if load_kernels() else "without"
print(f"Python {platform.python_version()}, numpy {numpy.__version__}, {kernels} kernels")
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """An environment in a folder of its own: programs run as its user, and see no other Python."""

    environment: Environment
    folder: Path

    @property
    def programs(self) -> Path:
        return self.folder / "venv" / "bin"

    def run(self, *words: str | Path, cwd: str = "empty") -> str:
        """Run a program to its end, repeat what it prints, and return its last line.

        Raises:
            SystemExit: its exit code is not 0."""
        print("$", *words, flush=True)
        hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "EIGENVEIL_PROFILE")
        environ = {name: value for name, value in os.environ.items() if name not in hidden}
        environ |= {
            "HOME": str(self.folder / "home"),
            "PATH": f"{self.programs}{os.pathsep}{environ['PATH']}",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PYTHONNOUSERSITE": "1",
            # Packages are fetched once for all trials, and checked by their hashes each time.
            "PIP_CACHE_DIR": str(self.folder / "home" / "pip" if self.environment.other_user else PACKAGES),
        } | ({} if self.environment.compiler else {"CC": "false"})
        last = ""
        with subprocess.Popen(
            [str(word) for word in words], cwd=self.folder / cwd, env=environ, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, **self.environment.user(),
        ) as child:  # fmt: skip
            for line in child.stdout or ():
                print(line, end="", flush=True)
                last = line.strip() or last
        if child.returncode:
            raise SystemExit(f"{last or words[0]} [exit {child.returncode}]")
        return last

    def prepare(self) -> None:
        """Make the folders, and copy into them all that is installed."""
        self.folder.chmod(0o755)
        for name in ("empty", "home"):
            (self.folder / name).mkdir()
        shutil.copytree(ROOT / "requirements", self.folder / "requirements")
        pattern = "*-linux_*.whl" if self.environment.compiler else "*-any.whl"
        (wheel,) = RELEASE.glob(pattern)
        shutil.copy(wheel, self.folder)
        self.hand_over(self.folder)

    def hand_over(self, folder: Path) -> None:
        """Give a folder and all in it to the environment's user; what its links point to stays as it is."""
        user = self.environment.user()
        for path in (folder, *folder.rglob("*")) if user else ():
            os.lchown(path, user["user"], user["group"])

    def install(self, kind: str) -> None:
        """Install hash-locked lists, then the wheel, for which nothing may be fetched besides."""
        self.run(self.environment.interpreter(), "-m", "venv", self.folder / "venv")
        pip = (self.programs / "python", "-m", "pip", "install", "--quiet")
        for name in LISTS[kind]:
            self.run(*pip, "--require-hashes", "-r", self.folder / "requirements" / name)
        (wheel,) = self.folder.glob("*.whl")
        self.run(*pip, "--no-index", f"{wheel}[{EXTRAS}]")
        if self.environment.numpy == "newest":
            self.run(*pip, "--upgrade", "numpy")
        elif self.environment.numpy:
            self.run(*pip, self.environment.numpy)
        if kind == "demo":  # with developers' packages come types of NumPy, which bound it and are not run
            self.run(self.programs / "python", "-m", "pip", "check")

    def demo(self) -> str:
        self.run("eigenveil", "demo", "--out", "demo-out")
        profile = Path("demo-out", "analyst")
        self.run("eigenveil", "verify", Path("demo-out", "release.zip"), "--profile", profile)
        return "demo and verify ran"

    def suite(self, kind: str) -> str:
        """Run the tests of a clone on the installed packages, and return the last line."""
        tree = self.folder / "tree"
        subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(tree)], check=True)
        self.hand_over(tree)
        jobs = os.environ.get("JOBS", "3")
        return self.run(
            "python", "-m", "pytest", "-q", "-n", jobs, "--dist", "worksteal", *MARKS[kind],
            "--ignore=tests/repo", "--ignore=tests/browser", "-o", "pythonpath=.",
            cwd="tree",
        )  # fmt: skip


def main() -> None:
    kind, name = sys.argv[1:]
    if kind not in KINDS or name not in ENVIRONMENTS:
        raise SystemExit(f"Name one of {', '.join(KINDS)}, and one of {', '.join(ENVIRONMENTS)}.")
    with tempfile.TemporaryDirectory(prefix="eigenveil-trial-") as folder:
        trial = Trial(environment=ENVIRONMENTS[name], folder=Path(folder))
        trial.prepare()
        trial.install(kind)
        here = trial.run("python", "-c", HERE)
        result = trial.demo() if kind == "demo" else trial.suite(kind)
    print(f"{result.strip('= ')}; {here}")


if __name__ == "__main__":
    main()
