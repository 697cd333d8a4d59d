"""What each algorithm needs, and how its prices add up: one row an algorithm."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from eigenveil.errors import Code, RequestError


class Algorithm(Enum):
    """The closed set of algorithms that a study may name; `auto` is resolved before any round, unless a
    study lets it choose during them.

    A study file spells them by `value`, and docs/algorithms has a page on each. Source: the page's paper.

    >>> Algorithm("gauss-cov") is Algorithm.GAUSS_COV
    True
    >>> Algorithm.GAUSS_COV.properties.pure  # it can run at delta = 0
    True
    """

    AUTO = "auto"
    GAUSS_COV = "gauss-cov"
    ANALYZE_GAUSS = "analyze-gauss"
    SEPARATE_COV = "separate-cov"
    ADAPTIVE_COV = "adaptive-cov"
    EM_COV = "em-cov"
    ZERO = "zero"
    REFINED_COV = "refined-cov"
    REFINED_PCA = "refined-pca"
    DP_PCA = "dp-pca"
    DP_PCA_SINGLE_PASS = "dp-pca-single-pass"
    OJA = "oja"
    PRIVATE_OJA = "private-oja"
    PRIVATE_OJA_SHUFFLED = "private-oja-shuffled"
    NOISY_POWER = "noisy-power"
    SUBSPACE_EXACT = "subspace-exact"
    SUBSPACE_EXACT_RANK = "subspace-exact-rank"
    SUBSPACE_REFERENCE = "subspace-reference"
    SUBSPACE_APPROX = "subspace-approx"
    SUBSPACE_APPROX_RANK = "subspace-approx-rank"
    SMOOTH_GAUSSIAN = "smooth-gaussian"
    SMOOTH_CAUCHY = "smooth-cauchy"
    PROPOSE_TEST_RELEASE = "propose-test-release"

    @property
    def properties(self) -> AlgorithmProperties:
        """What plans, prices and sites rest on."""
        return PROPERTIES[self]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmProperties:
    """Properties of an algorithm that plans, prices and sites rest on.

    `gaussian`: where delta > 0 all its noise is Gaussian, so that its prices add up as mu^2 and are converted
    exactly; the session and every site refuse it any other. `basic`: its epsilons (and deltas) are added up
    as they are; otherwise prices add up as zCDP, which is better for many small questions and worse for one.
    `pure`: it can run at delta = 0, with Laplace noise where it adds noise. `delta`: some of its mechanisms
    carry a delta of their own. `trusted`: it needs the exact sum at the coordinator, so no secure aggregation
    could ever serve it. `one_site`: it cannot run over several sites. `batches`: it works through disjoint
    batches of the records. `deflation`: it can find its components one after the other. `single_records`: a
    sum would be one record, so it runs where all records are on one machine and in no federation. `shortens`:
    whole rows are shortened to a radius, so that a study may state their norm. `exact_rows`: it finds the
    subspace that whole numbers lie in, which they leave when columns are scaled and rounded again. `private`:
    False for a reference that only a simulation may run. `revision`: goes up whenever the algorithm asks
    other questions after the same releases; a plan
    names it, so that a study never begins under one revision and goes on under another.

    Raises:
        RequestError: prices that are added up in two ways.
    """

    gaussian: bool = False
    basic: bool = False
    pure: bool = False
    delta: bool = False
    trusted: bool = False
    one_site: bool = False
    batches: bool = False
    deflation: bool = False
    single_records: bool = False
    shortens: bool = True
    exact_rows: bool = False
    private: bool = True
    revision: int = 1

    def __post_init__(self) -> None:
        if self.gaussian and (self.basic or self.delta):
            raise RequestError(
                Code.BAD_ARGUMENT,
                "noise that is all Gaussian has no delta of its own and no epsilon to add up",
            )

    @property
    def federated(self) -> bool:
        """Whether a site ever answers for it: a sum over one record would be that record."""
        return self.private and not self.single_records


OF_SUBSPACES = AlgorithmProperties(basic=True, delta=True, trusted=True, shortens=False, exact_rows=True)

PROPERTIES: dict[Algorithm, AlgorithmProperties] = {
    Algorithm.AUTO: AlgorithmProperties(gaussian=True),
    Algorithm.GAUSS_COV: AlgorithmProperties(gaussian=True, pure=True, revision=2),
    Algorithm.ANALYZE_GAUSS: AlgorithmProperties(gaussian=True, revision=2),
    Algorithm.SEPARATE_COV: AlgorithmProperties(gaussian=True, pure=True, trusted=True, revision=2),
    Algorithm.ADAPTIVE_COV: AlgorithmProperties(pure=True, trusted=True, revision=2),
    Algorithm.EM_COV: AlgorithmProperties(basic=True, pure=True, trusted=True, revision=2),
    Algorithm.ZERO: AlgorithmProperties(gaussian=True, pure=True),
    Algorithm.REFINED_COV: AlgorithmProperties(gaussian=True),
    Algorithm.REFINED_PCA: AlgorithmProperties(gaussian=True),
    Algorithm.DP_PCA: AlgorithmProperties(gaussian=True, revision=2),
    Algorithm.DP_PCA_SINGLE_PASS: AlgorithmProperties(
        trusted=True, delta=True, batches=True, deflation=True, shortens=False, revision=2
    ),
    Algorithm.OJA: AlgorithmProperties(deflation=True, private=False),
    Algorithm.PRIVATE_OJA: AlgorithmProperties(gaussian=True, batches=True, deflation=True, revision=2),
    Algorithm.PRIVATE_OJA_SHUFFLED: AlgorithmProperties(
        basic=True, delta=True, trusted=True, one_site=True, batches=True, single_records=True, revision=2
    ),
    Algorithm.NOISY_POWER: AlgorithmProperties(gaussian=True, revision=2),
    Algorithm.SUBSPACE_EXACT: OF_SUBSPACES,
    Algorithm.SUBSPACE_EXACT_RANK: OF_SUBSPACES,
    Algorithm.SUBSPACE_REFERENCE: replace(OF_SUBSPACES, one_site=True),
    Algorithm.SUBSPACE_APPROX: OF_SUBSPACES,
    Algorithm.SUBSPACE_APPROX_RANK: OF_SUBSPACES,
    Algorithm.SMOOTH_GAUSSIAN: AlgorithmProperties(basic=True, delta=True, trusted=True, revision=2),
    Algorithm.SMOOTH_CAUCHY: AlgorithmProperties(basic=True, pure=True, trusted=True, revision=2),
    Algorithm.PROPOSE_TEST_RELEASE: AlgorithmProperties(basic=True, delta=True, trusted=True, revision=2),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnAlgorithm:
    """An algorithm of the user's own, for simulations: a generator function of a plan, under its own name
    unless another is stated.

    No federation runs it, because no code travels: a plan that holds it belongs to none and cannot be read
    from a message. `properties` are what it promises to keep to; the session holds it to them.

    Raises:
        RequestError: its properties are those of a reference, or it would work on single records.
    """

    steps: Callable[[Any], Generator[Any, Any, Any]]
    name: str = ""
    properties: AlgorithmProperties = AlgorithmProperties()

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or self.steps.__name__)
        if not self.properties.federated:
            raise RequestError(
                Code.BAD_ARGUMENT,
                f"{self.name}: an algorithm of your own is private and works on sums over many records",
            )

    @property
    def value(self) -> str:
        """How plans and documents call it: no `Algorithm` is spelled like that."""
        return f"own:{self.name}"
