"""Rules of a Containerfile where no engine is there to build it; `make image` builds it where one is."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.repo.test_wheel import CONFIG, PARTS
from tests.repo.tree import PACKAGES, ROOT

FILE = ROOT / "deploy" / "container" / "Containerfile"
BASE = re.compile(r"^(?:[\w.-]+/)+[\w-]+(?::(?!latest\b)[\w.-]+|@sha256:[0-9a-f]{64})$")
SECRET = re.compile(r"password|secret|token|api_?key|credential", re.IGNORECASE)
FETCHING = re.compile(r"\b(?:curl|wget|git|apt|apt-get|apk)\b")


def instructions(text: str) -> list[tuple[str, str]]:
    """Each instruction and its words, on one line, comments apart."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    joined = re.sub(r" *\\\n *", " ", "\n".join(lines))
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in joined.splitlines()]


def faults(text: str) -> list[str]:
    """Faults of the text, one sentence each."""
    every = instructions(text)
    last = every[max(i for i, (kind, _) in enumerate(every) if kind == "FROM") :]
    bases = [words.split(" AS ")[0] for kind, words in every if kind == "FROM"]
    users = [words for kind, words in last if kind == "USER"]
    starts = [words for kind, words in last if kind in ("CMD", "ENTRYPOINT")]
    runs = [words for kind, words in every if kind == "RUN"]
    pips = [one for words in runs for one in words.split("&&") if "pip install" in one]
    copies = [shlex.split(words) for kind, words in every if kind == "COPY"]
    found = [f"base {base} has no fixed version" for base in bases if not BASE.match(base)]
    found += [f"bases differ: {sorted(set(bases))}"] if len(set(bases)) > 1 else []
    found += [] if users and users[-1].isdecimal() and int(users[-1]) > 0 else ["runs as root, or by a name"]
    found += ["ADD fetches and unpacks: use COPY"] if any(kind == "ADD" for kind, _ in every) else []
    found += [f"fetches: {words}" for words in runs if FETCHING.search(words)]
    found += [
        f"unhashed: {one.strip()}" for one in pips if "--require-hashes" not in one and "--no-deps" not in one
    ]
    found += [f"caches: {one.strip()}" for one in pips if "--no-cache-dir" not in one]
    found += [f"a secret? {w}" for kind, w in every if kind in ("ARG", "ENV") and SECRET.search(w)]
    found += [f"copies a whole folder: {words}" for words in copies if {".", "./", "*"} & set(words[:-1])]
    found += [] if starts and starts[-1].startswith("[") else ["starts through a shell, which eats SIGTERM"]
    return found


def test_the_container_file_has_no_fault() -> None:
    assert faults(FILE.read_text()) == []


@pytest.mark.parametrize(
    ("here", "instead", "result"),
    [
        ("python:3.12-slim-bookworm AS", "python AS", "no fixed version"),
        ("USER 10001", "USER root", "root"),
        ("USER 10001\n", "", "root"),
        ("COPY core core", "ADD https://example.org/core.tar.gz core", "ADD"),
        ("RUN python -m hatchling", "RUN curl x | sh && python -m hatchling", "fetches"),
        ("python -m pip install --no-cache-dir", "python -m pip install", "caches"),
        ("python -m pip install --no-cache-dir --require-hashes", "python -m pip install", "unhashed"),
        ("ARG ROLE=coordinator", "ARG INDEX_PASSWORD", "secret"),
        ("COPY core core", "COPY . .", "whole folder"),
        ('CMD ["eigenveil-coordinator",', "CMD eigenveil-coordinator", "shell"),
    ],
)  # fmt: skip
def test_a_fault_is_found(here: str, instead: str, result: str) -> None:
    text = FILE.read_text()
    assert here in text
    assert [fault for fault in faults(text.replace(here, instead)) if result in fault] != []


def test_all_that_a_wheel_is_built_from_is_copied_and_nothing_else() -> None:
    copies = [words.split() for kind, words in instructions(FILE.read_text()) if kind == "COPY"]
    copied = {one for words in copies if not words[0].startswith("--from") for one in words[:-1]}
    wanted = {*PARTS, CONFIG.as_posix(), *(root.name for root in PACKAGES.values())}
    assert {one for one in copied if not one.startswith("requirements/")} == wanted
