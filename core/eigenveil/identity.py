"""Identity of a party: the URI in its certificate, `eigenveil://<federation>/<role>/<name>`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from eigenveil.errors import Code, PeerError
from eigenveil.study.study import NAME

URI = re.compile(r"eigenveil://([^/]+)/([^/]+)/([^/]+)")
GROUP = 4
JOIN_FORMAT = "eigenveil-join/1"  # of the file with which a party enrols


class Role(Enum):
    SITE = "site"
    COORDINATOR = "coordinator"
    ANALYST = "analyst"
    OPERATOR = "operator"


CALLERS = (Role.SITE, Role.ANALYST, Role.OPERATOR)  # who can enrol


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Certified identity: federation, role and name."""

    federation: str
    role: Role
    name: str

    def __post_init__(self) -> None:
        for part in (self.federation, self.name):
            if NAME.fullmatch(part) is None:
                raise PeerError(
                    Code.IDENTITY,
                    f"{part!r} is not a valid name: use at most 63 lower-case letters, digits and hyphens",
                )

    @property
    def uri(self) -> str:
        """URI in the certificate, its only subject alternative name of this type."""
        return f"eigenveil://{self.federation}/{self.role.value}/{self.name}"


def parse_identity(uri: str) -> Identity:
    """Return the identity in a certificate's URI. Raises PeerError: another form, or an unknown role."""
    match = URI.fullmatch(uri)
    if match is None or match[2] not in {role.value for role in Role}:
        raise PeerError(Code.IDENTITY, f"{uri!r} is not an eigenveil identity")
    return Identity(federation=match[1], role=Role(match[2]), name=match[3])


def grouped_digest(digest: str, indent: int = 0) -> str:
    """Return a digest for reading aloud: groups of four on two lines, the second indented by `indent`."""
    groups = [digest[start : start + GROUP] for start in range(0, len(digest), GROUP)]
    half = len(groups) // 2
    return f"{' '.join(groups[:half])}\n{' ' * indent}{' '.join(groups[half:])}"
