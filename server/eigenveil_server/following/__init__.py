"""What follows from a release: here, or in a process of its own where that takes time and memory."""

from __future__ import annotations
