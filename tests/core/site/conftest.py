from __future__ import annotations

import pytest

from eigenveil.site.kernels import library


@pytest.fixture
def numpy_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A site's arithmetic as where nothing was compiled."""
    monkeypatch.setattr(library, "library", lambda: None)
