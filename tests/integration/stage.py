"""Parts of a running federation for tests."""

from __future__ import annotations

from dataclasses import dataclass

from eigenveil_client.connection.identity import StoredIdentity, load_identity
from eigenveil_client.demo.federation import DemoFederation
from eigenveil_client.demo.layout import DemoLayout

SITES = ("hospital-1", "hospital-2", "hospital-3")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A running federation, and the text of a study for it."""

    layout: DemoLayout
    federation: DemoFederation
    text: str

    @property
    def analyst(self) -> StoredIdentity:
        return load_identity(self.layout.analyst)
