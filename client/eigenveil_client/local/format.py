"""Sines, sizes, times and trust in few letters, for tables."""

from __future__ import annotations

TRUST = (
    "trust: whether the coordinator adds noise to exact sums (sums), must work on them (exact), or sees "
    "none, because sites send masked answers with their share of the noise (masked)."
)
UNITS = ("B", "kB", "MB", "GB", "TB")


def sine_text(sine: float) -> str:
    """In at most six letters: 5e-05, 0.0042, 0.31, 1."""
    return f"{sine:.1g}" if sine >= 0.995 or sine < 0.001 else f"{sine:.2g}"


def size_text(count: int) -> str:
    """Bytes in a unit of a thousand, at most six letters: 5.2 kB."""
    size, unit = float(count), 0
    while size >= 999.5 and unit + 1 < len(UNITS):
        size, unit = size / 1000, unit + 1
    digits = 1 if unit and size < 9.95 else 0
    return f"{size:.{digits}f} {UNITS[unit]}"


def trust_word(trusted: bool, masked: bool) -> str:
    """See `TRUST`."""
    return "masked" if masked else "exact" if trusted else "sums"


def seconds_text(seconds: float) -> str:
    """In at most six letters: 17 ms, 1.3 s, 12 s, 3 min."""
    if seconds < 0.9995:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
