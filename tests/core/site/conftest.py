from __future__ import annotations

import pytest

from eigenveil.site.kernels import record_chunks


@pytest.fixture
def numpy_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_chunks, "load_kernels", lambda: None)
