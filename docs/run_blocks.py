"""Run what the pages of docs/guide show: commands and Python, in order, in a folder of their own.

A block of `console` holds commands after `$ ` and what they say; one of `python` is run with the names of
those before it, and the block of `text` below it is what it prints; one of `toml` after `<!-- file: NAME -->`
is a file. Numbers and digests differ from run to run and are not compared; a line `...` stands for any lines.
`# exit 5` after a command is how it ends; one that ends in ` &` serves until the page ends. What cannot be
run says why, `<!-- not run: REASON -->`, and is counted. `--write` puts what was said where a page says
otherwise."""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kept_federation import heed_interrupts

GUIDE = Path(__file__).resolve().parent / "guide"
BLOCK = re.compile(
    r"(?:<!-- (?P<mark>not run|file): (?P<said>.+?) -->\n+)?"
    r"```(?P<kind>console|python|toml)\n(?P<code>.*?)```\n(?:\n```text\n(?P<text>.*?)```\n)?",
    re.DOTALL,
)
COMMAND = re.compile(r"^\$ (?P<typed>(?:.*\\\n)*.*)\n(?P<output>(?:(?!\$ ).*\n)*)", re.MULTILINE)
EXIT = re.compile(r" # exit (\d+)$")
VARYING = (
    (re.compile(r"\b[0-9a-f]{4}(?: [0-9a-f]{4}){3,}\b"), "#"),  # a key's digest, to be read aloud
    (re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{6,}\b"), "#"),
    (re.compile(r"\d+(?:[.,:]\d+)*(?:e[+-]?\d+)?"), "#"),
    (re.compile(r"[+\-−]?#"), "#"),
    (re.compile(r"[─━═┄]+"), "─"),
    (re.compile(r"\s+"), " "),
)
SECONDS = 120


def steady(line: str) -> str:
    """A line without what differs from run to run."""
    for pattern, instead in VARYING:
        line = pattern.sub(instead, line)
    return line.strip()


def agrees(page: str, message: str) -> bool:
    """True if the message is as the page shows, wherever lines end: a table is as wide as its times are long,
    and the text below it is as wide as the table."""
    shown = [re.escape(steady(line)) for line in page.splitlines() if line.strip()]
    lines = [steady(line) for line in message.splitlines() if line.strip()]
    pattern = "".join("(?:.* )??" if line == r"\.\.\." else line + r"\ " for line in shown)
    return re.fullmatch(pattern, "".join(f"{line} " for line in lines)) is not None


@dataclass(slots=True, kw_only=True)
class Run:
    """One page: its folder, the names of its Python, what serves meanwhile, and what was found."""

    page: str
    folder: Path
    space: dict[str, Any] = field(default_factory=dict)
    serving: list[subprocess.Popen[str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    not_run: list[str] = field(default_factory=list)
    ran: int = 0

    def block(self, found: re.Match[str]) -> str:
        """The block as it should stand."""
        if found["mark"] == "not run":
            self.not_run.append(f"{self.page}: {found['said']}")
            return found[0]
        self.ran += 1
        if found["kind"] == "toml":
            if found["mark"] is None:
                self.problems.append(f"{self.page}: a block of toml is neither a file nor said not to be one")
            else:
                (self.folder / found["said"]).write_text(found["code"])
            return found[0]
        if found["kind"] == "python":
            return self.python(found)
        return found[0].replace(found["code"], COMMAND.sub(self.command, found["code"]))

    def python(self, found: re.Match[str]) -> str:
        message = io.StringIO()
        try:
            with contextlib.redirect_stdout(message), contextlib.chdir(self.folder):
                exec(compile(found["code"], self.page, "exec"), self.space)
        except Exception as problem:  # noqa: BLE001 - whatever it is, it is told
            self.problems.append(f"{self.page}: {found['code']}\n  ended with {problem!r}")
        shown = found["text"]
        if shown is None or self.is_correct(found["code"], shown, message.getvalue()):
            return found[0]
        return found[0].replace(f"```text\n{shown}```", f"```text\n{message.getvalue()}```")

    def command(self, found: re.Match[str]) -> str:
        typed, shown = found["typed"], found["output"]
        ends = EXIT.search(typed)
        if typed.endswith(" &"):
            self.serve(typed.removesuffix(" &"), shown)
            return found[0]
        done = subprocess.run(
            ["bash", "-c", typed], cwd=self.folder, env=self.environment, timeout=SECONDS, check=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        if done.returncode != (int(ends[1]) if ends else 0):
            self.problems.append(f"{self.page}: $ {typed}\n  ended with {done.returncode}: {done.stdout}")
        message = "".join(
            f"{line.rstrip()}\n" for line in done.stdout.replace(f"{self.folder}/", "").splitlines()
        )
        return found[0] if self.is_correct(typed, shown, message) else f"$ {typed}\n{message}"

    def is_correct(self, what: str, shown: str, message: str) -> bool:
        if agrees(shown, message):
            return True
        self.problems.append(f"{self.page}: $ {what}\n  says\n{message}\n  where the page has\n{shown}")
        return "..." in shown

    def serve(self, typed: str, shown: str) -> None:
        """Start it, and go on when it has said what the page shows."""
        log = self.folder / f".serving-{len(self.serving)}"
        with log.open("w") as file:
            self.serving.append(
                subprocess.Popen(
                    ["bash", "-c", f"exec {typed}"], cwd=self.folder, env=self.environment, text=True,
                    stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True,
                )
            )  # fmt: skip
        until = time.monotonic() + SECONDS
        while not agrees(shown, log.read_text().replace(f"{self.folder}/", "")):
            if time.monotonic() > until or self.serving[-1].poll() is not None:
                self.problems.append(f"{self.page}: $ {typed} &\n  says\n{log.read_text()}")
                return
            time.sleep(0.1)

    @property
    def environment(self) -> dict[str, str]:
        """A shell as a reader has it: our programs on its path, a home of its own, no colours."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        own = {"HOME": str(self.folder), "PATH": path, "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
        return {name: value for name, value in os.environ.items() if "EIGENVEIL" not in name} | own

    def stop(self) -> None:
        for process in reversed(self.serving):
            process.send_signal(signal.SIGINT)
            process.wait(SECONDS)


def blocks(page: Path) -> Iterator[re.Match[str]]:
    """Every block of a page that is run, written or said not to be."""
    yield from BLOCK.finditer(page.read_text())


def run(page: Path) -> tuple[str, Run]:
    """A page as it should stand, and what was found."""
    with tempfile.TemporaryDirectory(prefix="eigenveil-guide-") as folder:
        one = Run(page=page.name, folder=Path(folder).resolve())
        try:
            return BLOCK.sub(one.block, page.read_text()), one
        finally:
            one.stop()


def main() -> int:
    """Run every page; 1 if one says something else than what happens."""
    heed_interrupts()
    wanted = [Path(name) for name in sys.argv[1:] if name != "--write"] or sorted(GUIDE.glob("*.md"))
    found = [(page, *run(page)) for page in wanted]
    if "--write" in sys.argv:
        for page, text, _ in found:
            page.write_text(text)
    ran, not_run = (
        sum(one.ran for *_, one in found),
        [message for *_, one in found for message in one.not_run],
    )
    print(f"{ran} blocks of {len(found)} pages were run; {len(not_run)} were not:")
    print(*(f"  {message}" for message in not_run), sep="\n")
    problems = [problem for *_, one in found for problem in one.problems]
    print(*problems, sep="\n", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
