"""What the numbers of a result say against it: sentences that every result carries among its warnings."""

from __future__ import annotations
