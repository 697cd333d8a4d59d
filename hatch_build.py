"""Compiles the kernels into the wheel, or next to their source where that is what is installed.

They are an addition: without a compiler the wheel is of Python alone, and a site's answers are the same.
"""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = "core/eigenveil/site/kernels"
SOURCE, BUILT = "kernels.c", "kernels.so"
# No build id and no folder's name in it: the same tree and compiler give the same bytes.
FLAGS = [
    "-std=gnu11",
    "-O3",
    "-ffp-contract=off",
    "-fwrapv",
    "-fno-math-errno",
    "-fPIC",
    "-shared",
    "-s",
    "-Wl,--build-id=none",
]
X86 = ["-mprefer-vector-width=512"]  # where a processor has registers of so many bits


class Kernels(BuildHookInterface[Any]):
    """One shared library, which no version of Python is tied to."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        beside = Path(self.root, FOLDER)
        if version == "editable":
            self._compiled(beside / BUILT)
            return
        self._folder = tempfile.TemporaryDirectory()
        built = Path(self._folder.name, BUILT)
        if self._compiled(built):
            machine = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["tag"], build_data["pure_python"] = f"py3-none-{machine}", False
            build_data["force_include"][str(built)] = f"eigenveil/site/kernels/{BUILT}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            self._folder.cleanup()

    def _compiled(self, built: Path) -> bool:
        compiler = shlex.split(os.environ.get("CC") or "cc")
        try:
            subprocess.run(
                [
                    *compiler,
                    *FLAGS,
                    *(X86 if platform.machine() == "x86_64" else []),
                    "-o",
                    str(built),
                    SOURCE,
                    "-lm",
                ],
                cwd=Path(self.root, FOLDER),
                check=True,
                capture_output=True,
            )
        except (OSError, subprocess.CalledProcessError) as error:
            self.app.display_warning(f"No kernels in C, numpy will do: {error}")
            return False
        return True
