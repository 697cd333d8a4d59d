"""`python -m deploy.release.licences`: list the licence of every package that some role installs.

A licence is read off the installed package: its SPDX expression, else a field that is one, else a classifier
that names one licence, else the licence's text. The last column says which. The exit code is 1 if a licence
is unknown or is not allowed here."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from license_expression import AND, OR, ExpressionError, LicenseExpression, get_spdx_licensing

from deploy.release.provenance import locked

ROOT = Path(__file__).resolve().parents[2]
SPDX = get_spdx_licensing()
DEVELOPERS = ("lock.txt", "build.txt")  # lists of which nothing is installed by a role
ALLOWED = frozenset({
    "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MIT-0", "MIT-CMU",
    "MPL-2.0", "PSF-2.0", "Zlib",
    # Of libraries that stay files of their own: we link to them, and ship nothing of them.
    "LGPL-3.0-only", "LGPL-3.0-or-later",
})  # fmt: skip
# Classifiers that name one licence; "BSD License" is several.
CLASSIFIERS = {
    "Apache Software License": "Apache-2.0",
    "MIT License": "MIT",
    "Python Software Foundation License": "PSF-2.0",
}
BSD = "Redistribution and use in source and binary forms"
TEXTS = {  # the first of these that a licence's text has
    "Apache License Version 2.0, January 2004": "Apache-2.0",
    "Permission is hereby granted, free of charge": "MIT",
    "This software is provided 'as-is', without any express or implied warranty": "Zlib",
    BSD: "BSD-2-Clause",
}
THIRD_CLAUSE = "endorse or promote products"
UNKNOWN = "unknown"
ANY = "any-OSI"  # an expression that leaves open which
HEAD = """# Licences of what eigenveil installs

| package | version | licence | read off |
|---|---|---|---|
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Licence:
    """A package of a role's list, its licence as an SPDX expression, and where that was read."""

    package: str
    version: str
    expression: str
    source: str

    @property
    def allowed(self) -> bool:
        try:
            return permits(SPDX.parse(self.expression, validate=True))
        except ExpressionError:
            return False


def permits(expression: LicenseExpression) -> bool:
    """Return whether the list allows an expression: every part of an AND, one part of an OR."""
    if isinstance(expression, AND):
        return all(permits(part) for part in expression.args)
    if isinstance(expression, OR):
        return any(permits(part) for part in expression.args)
    return str(expression) in ALLOWED


def is_expression(text: str) -> bool:
    try:
        return bool(text) and SPDX.parse(text, validate=True) is not None
    except ExpressionError:
        return False


def licence_of(one: Distribution) -> tuple[str, str]:
    """Return the SPDX expression of an installed package, and where it was read."""
    known = one.metadata.json
    expression, field = (str(known.get(name, "")) for name in ("license_expression", "license"))
    if expression:
        return expression, "expression"
    if is_expression(field) and field != ANY:
        return field, "field"
    classifiers = [name.rpartition(" :: ")[2] for name in known.get("classifier", [])]
    if named := [CLASSIFIERS[name] for name in classifiers if name in CLASSIFIERS]:
        return " AND ".join(named), "classifier"
    said = f'"{field}" names no licence' if field and len(field) < 40 else "nothing else names it"
    return licence_of_text(texts(one)), f"text: {said}"


def texts(one: Distribution) -> str:
    """Return the texts of an installed package's licence files, on one line."""
    names = [path for path in one.files or [] if re.search(r"(?i)licen[cs]e|copying", path.name)]
    return " ".join(" ".join(str(path.read_text()).split()) for path in names if ".dist-info" in str(path))


def licence_of_text(text: str) -> str:
    """Return the licence whose words come first in a text; a BSD licence has two or three clauses."""
    found = {text.index(words): words for words in TEXTS if words in text}
    if not found:
        return UNKNOWN
    words = found[min(found)]
    return "BSD-3-Clause" if words == BSD and THIRD_CLAUSE in text else TEXTS[words]


def found(tree: Path = ROOT) -> list[Licence]:
    """Return the licence of each package of the roles' lists, but for those of other systems.

    Raises:
        SystemExit: a package of a list is not installed."""
    lists = [path for path in (tree / "requirements").glob("*.txt") if path.name not in DEVELOPERS]
    pins = {pin.name: pin.version for path in lists for pin in locked(path) if pin.here}
    result = []
    for name in sorted(pins):
        try:
            one = distribution(name)
        except PackageNotFoundError:
            raise SystemExit(f"{name} of the lock is not installed. Run make venv.") from None
        expression, source = licence_of(one)
        result.append(Licence(package=name, version=one.version, expression=expression, source=source))
    return result


def refused(licences: Iterable[Licence]) -> list[str]:
    """Return a sentence for each package whose licence is unknown or not allowed."""
    return [f"{one.package} {one.version}: {one.expression}" for one in licences if not one.allowed]


def page(licences: Iterable[Licence]) -> str:
    rows = [f"| {one.package} | {one.version} | {one.expression} | {one.source} |\n" for one in licences]
    return HEAD + "".join(rows)


def main() -> int:
    licences = found()
    print(page(licences), end="")
    for sentence in refused(licences):
        print(f"not allowed: {sentence}", file=sys.stderr)
    return 1 if refused(licences) else 0


if __name__ == "__main__":
    sys.exit(main())
