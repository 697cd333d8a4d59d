"""release.json: what a study publishes, canonical and signed, verifiable offline."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from eigenveil._version import __version__
from eigenveil.algorithms import Estimate
from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import FloatArray, canonical
from eigenveil.planning.choose import USABLE
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.release import Release
from eigenveil.reporting.explain import guarantee
from eigenveil.study.grid import S, offsets, steps
from eigenveil.study.study import Scaling, Study


def most_variance(study: Study) -> float:
    """The most that the public bounds let all columns vary together: the sum of their squared half ranges, in
    grid units scaled to [-1, 1]."""
    half = [column.half_range for column in study.columns]
    if study.scaling is Scaling.BOUNDS:
        return float(len(half))
    return sum((one / max(half)) ** 2 for one in half)


def caveats(study: Study, estimate: Estimate, square: float = 1.0) -> tuple[str, ...]:
    """Sentences if the directions are mostly noise, or if a variance is more than there can be.

    `square` is a variance of 1 in the units that the result is written in. It rests on releases and public
    numbers only [P7].
    """
    return (*_directions(estimate), *_variances(study, estimate, square))


def _directions(estimate: Estimate) -> tuple[str, ...]:
    asked = estimate.records > 0  # what asked nothing says so itself
    if not asked or not len(estimate.components) or (estimate.sin_error or 0.0) <= USABLE:
        return ()
    sentence = (
        f"the directions are mostly noise (predicted sine {estimate.sin_error:.2g}): ask for more records, a "
        "larger epsilon, or another number of components"
    )
    return (sentence,)


def _variances(study: Study, estimate: Estimate, square: float) -> tuple[str, ...]:
    most, largest = most_variance(study), max(estimate.explained_variance, default=0.0)
    if largest <= most:
        return ()
    sentence = (
        f"a variance of {largest * square:.4g} is more than the columns' bounds allow, "
        f"{most * square:.4g} in all: noise makes up the rest"
    )
    return (sentence,)


FORMAT = "eigenveil-release/1"
SIGNED = b"eigenveil/release-signature/v1\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRecord:
    """What else is published of a round: its question, who was absent and why.

    Not how long it took: that tells how many records a site has.
    """

    round: int
    kind: str
    absent: Mapping[str, str]


def build(
    plan: Plan,
    estimate: Estimate,
    releases: Sequence[Release],
    *,
    rounds: Sequence[RoundRecord],
    private: bool,
) -> dict[str, Any]:
    """The document that is signed: result, guarantee, rounds, plan; a function of stored values only."""
    return {
        "format": FORMAT,
        "software": {"eigenveil": __version__},
        "private": private,
        "plan_digest": plan.digest,
        "plan": json.loads(plan.to_json()),
        "guarantee": guarantee(plan) if private else _no_guarantee(),
        "result": result_of(plan, estimate),
        "rounds": [
            stated_of(release) | {"kind": record.kind, "absent": dict(record.absent)}
            for release, record in zip(releases, rounds, strict=True)
        ],
    }


def _no_guarantee() -> dict[str, Any]:
    return {
        "words": "NOT PRIVATE: the noise came from a seeded generator, for simulation only. "
        "Do not publish this result if the records are confidential.",
    }


def data_factors(plan: Plan) -> FloatArray:
    """What one unit of the analysis is in each column's own unit. Shape: (d,)."""
    factors: FloatArray = steps(plan.study) * S
    return factors


def result_of(plan: Plan, estimate: Estimate) -> dict[str, Any]:
    """The `result` of a document: what the estimate says in the study's units."""
    factors = data_factors(plan)
    keeps_units = plan.study.scaling is Scaling.NONE
    square = float(factors[0]) ** 2 if keeps_units else 1.0
    total = max(estimate.total_variance, float(estimate.explained_variance.sum()))
    ratio = estimate.explained_variance / total if total > 0 else estimate.explained_variance * 0
    covariance = estimate.covariance
    return {
        "columns": [column.name for column in plan.study.columns],
        "components": estimate.components.tolist(),
        "explained_variance": (estimate.explained_variance * square).tolist(),
        "explained_variance_ratio": ratio.tolist(),
        "total_variance": total * square,
        "mean": (offsets(plan.study) + estimate.mean * factors).tolist(),
        "scale": (factors if not keeps_units else factors * 0 + 1).tolist(),
        "records": estimate.records,
        "noise_scale": estimate.noise_scale * square,
        "predicted_sin_angle": estimate.sin_error,
        "covariance": None if covariance is None else (covariance * square).tolist(),
        "warnings": [*estimate.warnings, *caveats(plan.study, estimate, square)],
        "declined": estimate.declined,
    }


def stated_of(release: Release) -> dict[str, Any]:
    """What a row of `rounds` says of its release alone."""
    return {
        "round": release.round,
        "query": release.query,
        "release": release.digest,
        "micro_rho": release.micro_rho,
        "atto_delta": str(release.atto_delta),
        "sigma": release.sigma,
        "present": list(release.present),
    }


def seal_bundle(document: dict[str, Any], *, sign: Callable[[bytes], bytes], public_key: bytes) -> bytes:
    """release.json: canonical JSON of the document, its Ed25519 signature and the raw public key."""
    signature = sign(SIGNED + canonical(document))
    return canonical({"document": document, "signature": signature.hex(), "public_key": public_key.hex()})


def verify_bundle(data: bytes, key: bytes | None = None) -> dict[str, Any]:
    """The whole bundle, if its signature holds; with `key` (raw Ed25519), only if signed by that key.

    Raises:
        RequestError: code `bad-release`: not a release, changed after signing, or signed by another key.
    """
    try:
        bundle = json.loads(data)
        public = bytes.fromhex(bundle["public_key"])
        signature = bytes.fromhex(bundle["signature"])
        document = bundle["document"]
        # Spelling counts: the file must be the canonical form of what it says, to the byte.
        spelled = {"document": document, "signature": signature.hex(), "public_key": public.hex()}
        intact = canonical(spelled) == data
        verifier = Ed25519PublicKey.from_public_bytes(public)
        verifier.verify(signature, SIGNED + canonical(document))
        known = document["format"] == FORMAT
    except (ValueError, KeyError, TypeError, InvalidSignature) as problem:
        raise RequestError(
            Code.BAD_RELEASE,
            "this is not an intact eigenveil release; fetch it again from the coordinator",
        ) from problem
    if not intact or not known:
        raise RequestError(
            Code.BAD_RELEASE,
            "this release is not in canonical form; fetch it again from the coordinator",
        )
    if key is not None and key != public:
        raise RequestError(
            Code.BAD_RELEASE,
            f"this release is intact but signed by another key ({public.hex()[:16]}...); do not trust it",
        )
    return dict(bundle)
