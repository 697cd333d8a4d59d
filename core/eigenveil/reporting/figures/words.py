"""What a picture shows, in a sentence computed from its numbers: for those who do not see it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eigenveil.accounting.digits import shown_up
from eigenveil.numerics.encoding import FloatArray
from eigenveil.planning.sweep import Foreseen
from eigenveil.reporting.figures.heatmap import Pairs
from eigenveil.reporting.figures.style import minus
from eigenveil.reporting.figures.subject import Subject

FEW = 3  # of what is named


def scree_words(subject: Subject) -> str:
    """What each component carries."""
    shares = subject.shares
    each = _and([f"{100 * share:.1f} %" for share in shares[:FEW].tolist()])
    first = f"Variance along each component: the first carries {each} of the whole"
    if subject.k > 1:
        more = "" if subject.k <= FEW else ", and so on"
        first = (
            f"Variance along each component: the first {min(subject.k, FEW)} carry {each} of the whole{more}"
        )
    made = [str(i) for i, noise in enumerate(subject.from_noise, 1) if noise]
    noise = f" Noise alone could have made component {_and(made)}." if made else ""
    return f"{first}; together the {subject.k} carry {100 * float(shares.sum()):.1f} %.{noise}"


def loadings_words(subject: Subject) -> str:
    """The largest loadings of each of the first components."""
    names, components = subject.columns, subject.components
    said = []
    for i, row in enumerate(components[:FEW], 1):
        top = np.argsort(-np.abs(row), kind="stable")[:FEW]
        said.append(f"component {i}: " + ", ".join(f"{names[j]} {minus(f'{row[j]:+.2f}')}" for j in top))
    return "Largest loadings. " + "; ".join(said) + "."


def heatmap_words(pairs: Pairs, columns: Sequence[str]) -> str:
    """The strongest pairs, and how many of all noise alone could show."""
    rows, others = np.tril_indices(len(columns), -1)
    values, noise = pairs.values[rows, others], pairs.is_noise[rows, others]
    sure = [i for i in np.argsort(-np.abs(values), kind="stable") if not noise[i]][:FEW]
    what = pairs.name.partition(" ")[0]
    strongest = "; ".join(
        f"{columns[others[i]]} with {columns[rows[i]]} {minus(f'{values[i]:+.2g}')}" for i in sure
    )
    first = f"Strongest {what}s: {strongest}." if sure else f"No {what} stands out of the noise."
    return f"{first} Of {len(values)} pairs noise alone could show {int(noise.sum())}."


def biplot_words(arrows: FloatArray, columns: Sequence[str]) -> str:
    """The longest arrows, and where they point."""
    longest = np.argsort(-np.linalg.norm(arrows, axis=1), kind="stable")[:FEW]
    said = [f"{columns[i]} {minus(f'({arrows[i, 0]:+.2g}, {arrows[i, 1]:+.2g})')}" for i in longest]
    first = f"The {len(columns)} columns as arrows in the plane of components 1 and 2"
    return f"{first}; the longest: {', '.join(said)}."


def error_words(found: Sequence[Foreseen]) -> str:
    """From the least epsilon to the largest."""
    least, most = found[0], found[-1]
    return (
        f"Predicted error of {least.algorithm.value} against epsilon: {least.error.median:.2g} at epsilon "
        f"{shown_up(least.epsilon, 2)}, {most.error.median:.2g} at epsilon {shown_up(most.epsilon, 2)}."
    )


def _and(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
