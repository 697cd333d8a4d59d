"""Sines, sizes and times in few letters, for tables."""

from __future__ import annotations

UNITS = ("B", "kB", "MB", "GB", "TB")


def sine_text(sine: float) -> str:
    """Two digits that count: 0.0042, 0.31, 1."""
    return f"{sine:.1g}" if sine >= 0.995 else f"{sine:.2g}"


def size_text(count: int) -> str:
    """Bytes in a unit of a thousand: 5.2 kB."""
    size, unit = float(count), 0
    while size >= 999.5 and unit + 1 < len(UNITS):
        size, unit = size / 1000, unit + 1
    return f"{count} B" if unit == 0 else f"{size:.3g} {UNITS[unit]}"


def seconds_text(seconds: float) -> str:
    """0.42 s, 12 s, 3 min."""
    if seconds < 10:
        return f"{seconds:.2g} s"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
