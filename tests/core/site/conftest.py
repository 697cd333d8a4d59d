from __future__ import annotations

import pytest

from eigenveil.site.kernels import record_chunks


@pytest.fixture
def numpy_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A site's arithmetic as where nothing was compiled."""
    monkeypatch.setattr(record_chunks, "load_kernels", lambda: None)
