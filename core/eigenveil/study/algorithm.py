"""The algorithms and their properties: requirements and composition, one row each."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from eigenveil.errors import Code, RequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmProperties:
    """Properties of an algorithm that plans, costs and sites rely on.

    - `gaussian`: for delta > 0 all its noise is Gaussian. Costs add up as mu^2 and are converted exactly;
      the session and every site reject other noise.
    - `basic`: epsilons and deltas add up. Otherwise costs add up as zCDP, which is better for many small
      queries and worse for one.
    - `pure`: can run at delta = 0, with Laplace noise where it adds noise.
    - `delta`: some of its mechanisms have a delta of their own.
    - `trusted`: needs the exact sum at the coordinator, so it cannot run under secure aggregation.
    - `one_site`: runs at one site only.
    - `batches`: works through disjoint batches of the records.
    - `deflation`: can find its components one after the other.
    - `single_records`: a sum would be one record, so it runs on one machine and in no federation.
    - `clips_rows`: clips whole rows to a radius, so a study may state a norm.
    - `exact_rows`: finds a subspace that contains whole-number rows, which scaling and rounding would break.
    - `private`: False for a reference that only a simulation may run.
    - `revisions`: those that this program has, the newest last. A new one is made whenever the algorithm's
      queries or its result after the same releases change. A plan names one, so that a study runs under it.

    Raises:
        RequestError: two rules of composition."""

    gaussian: bool = False
    basic: bool = False
    pure: bool = False
    delta: bool = False
    trusted: bool = False
    one_site: bool = False
    batches: bool = False
    deflation: bool = False
    single_records: bool = False
    clips_rows: bool = True
    exact_rows: bool = False
    private: bool = True
    revisions: tuple[int, ...] = (1,)

    def __post_init__(self) -> None:
        if self.gaussian and (self.basic or self.delta):
            raise RequestError(
                Code.BAD_ARGUMENT,
                "an algorithm with Gaussian noise only (gaussian) can be neither basic nor have a delta",
            )

    @property
    def revision(self) -> int:
        """The newest revision."""
        return self.revisions[-1]

    @property
    def federated(self) -> bool:
        """True if sites answer for it: it is private, and its sums are over many records."""
        return self.private and not self.single_records


SUMS = AlgorithmProperties()
SUBSPACE_PROPERTIES = AlgorithmProperties(
    basic=True, delta=True, trusted=True, clips_rows=False, exact_rows=True
)


class Algorithm(Enum):
    """Algorithms that a study may name, with their properties.

    `auto` is resolved before the first round, unless the study lets it choose during the rounds. A study file
    has the `value`; docs/algorithms has a page on each. Source: the page's paper.

    >>> Algorithm("gauss-cov") is Algorithm.GAUSS_COV
    True
    >>> Algorithm.GAUSS_COV.properties.pure  # it can run at delta = 0
    True"""

    properties: AlgorithmProperties

    def __new__(cls, value: str, properties: AlgorithmProperties = SUMS) -> Algorithm:
        member = object.__new__(cls)
        member._value_, member.properties = value, properties
        return member

    @property
    def value(self) -> str:
        """Name in a study file."""
        return str(self._value_)

    AUTO = "auto", AlgorithmProperties(gaussian=True, revisions=(1, 2))
    GAUSS_COV = "gauss-cov", AlgorithmProperties(gaussian=True, pure=True, revisions=(2, 3))
    ANALYZE_GAUSS = "analyze-gauss", AlgorithmProperties(gaussian=True, revisions=(2, 3))
    SEPARATE_COV = "separate-cov", AlgorithmProperties(gaussian=True, pure=True, trusted=True, revisions=(2,))
    ADAPTIVE_COV = "adaptive-cov", AlgorithmProperties(pure=True, trusted=True, revisions=(2,))
    EM_COV = "em-cov", AlgorithmProperties(basic=True, pure=True, trusted=True, revisions=(2,))
    ZERO = "zero", AlgorithmProperties(gaussian=True, pure=True)
    REFINED_COV = "refined-cov", AlgorithmProperties(gaussian=True, revisions=(1, 2, 3))
    REFINED_PCA = "refined-pca", AlgorithmProperties(gaussian=True, revisions=(1, 2))
    DP_PCA = "dp-pca", AlgorithmProperties(gaussian=True, revisions=(2, 3))
    DP_PCA_SINGLE_PASS = (
        "dp-pca-single-pass",
        AlgorithmProperties(
            trusted=True, delta=True, batches=True, deflation=True, clips_rows=False, revisions=(2,)
        ),
    )
    OJA = "oja", AlgorithmProperties(deflation=True, private=False)
    PRIVATE_OJA = (
        "private-oja",
        AlgorithmProperties(gaussian=True, batches=True, deflation=True, revisions=(2,)),
    )
    PRIVATE_OJA_SHUFFLED = (
        "private-oja-shuffled",
        AlgorithmProperties(
            basic=True,
            delta=True,
            trusted=True,
            one_site=True,
            batches=True,
            single_records=True,
            revisions=(2,),
        ),
    )
    NOISY_POWER = "noisy-power", AlgorithmProperties(gaussian=True, revisions=(2,))
    SUBSPACE_EXACT = "subspace-exact", SUBSPACE_PROPERTIES
    SUBSPACE_EXACT_RANK = "subspace-exact-rank", SUBSPACE_PROPERTIES
    SUBSPACE_REFERENCE = "subspace-reference", replace(SUBSPACE_PROPERTIES, one_site=True)
    SUBSPACE_APPROX = "subspace-approx", SUBSPACE_PROPERTIES
    SUBSPACE_APPROX_RANK = "subspace-approx-rank", SUBSPACE_PROPERTIES
    SMOOTH_GAUSSIAN = (
        "smooth-gaussian",
        AlgorithmProperties(basic=True, delta=True, trusted=True, revisions=(2,)),
    )
    SMOOTH_CAUCHY = "smooth-cauchy", AlgorithmProperties(basic=True, pure=True, trusted=True, revisions=(2,))
    PROPOSE_TEST_RELEASE = (
        "propose-test-release",
        AlgorithmProperties(basic=True, delta=True, trusted=True, revisions=(2,)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomAlgorithm:
    """Custom algorithm for simulations: a generator function of a plan. `name` is the function's name unless
    stated. No federation runs it, because no code is sent: its plan has no federation and cannot be read from
    a message. The session enforces its `properties`.
    Raises RequestError: the properties are those of a reference, or it would work on single records."""

    steps: Callable[[Any], Generator[Any, Any, Any]]
    name: str = ""
    properties: AlgorithmProperties = AlgorithmProperties()

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or self.steps.__name__)
        if not self.properties.federated:
            raise RequestError(
                Code.BAD_ARGUMENT,
                f"{self.name}: a custom algorithm must be private and work on sums over many records",
            )

    @property
    def value(self) -> str:
        """Name in plans and documents, which no `Algorithm` has."""
        return f"custom:{self.name}"
