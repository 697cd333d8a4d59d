"""What a user of `fit` may not think of: that it is one of many, or that a step before it read the records
without noise.

Told from who called `fit`, never from the records: a warning that depended on them would tell about them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from eigenveil.accounting.digits import shown

SEARCHES = "sklearn.model_selection"  # cross-validation and searches, also in the processes that they start
AGAIN = (
    "this fit is one of a search or a cross-validation: each of them spends epsilon = {epsilon} on records "
    "that the others spend on as well, and the sum of all is what holds for the result; choose by `predict`, "
    "which reads no record, or on records that are public"
)
READ = (
    "{names} before it in the pipeline learned from the same records without noise: what is released through "
    "it has no privacy guarantee; state public bounds instead, and let `scaling` do it"
)


def doubts_of_the_call(estimator: Any) -> list[str]:
    """What is to be said of the `fit` of `estimator` that is under way: by whom it was called."""
    frames = list(_callers())
    searched = any(frame.f_globals.get("__name__", "").startswith(SEARCHES) for frame in frames)
    said = [AGAIN.format(epsilon=shown(estimator.epsilon))] if searched else []
    callers = [frame.f_locals.get("self") for frame in frames]
    before = [name for one in callers if isinstance(one, Pipeline) for name in _learned(one, estimator)]
    return [*said, READ.format(names=", ".join(dict.fromkeys(before)))] if before else said


def _callers() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _learned(pipeline: Pipeline, estimator: Any) -> Iterator[str]:
    """Kinds of the steps before `estimator` that keep something of what they were fitted to, but for our own.
    scikit-learn's tag says so, and whoever has none is believed to."""
    for _, step in pipeline.steps:
        if step is estimator or (type(step) is type(estimator) and _told(step) == _told(estimator)):
            return  # a pipeline with a memory fits a clone
        if step is None or step == "passthrough" or type(step).__module__.startswith("eigenveil."):
            continue
        if get_tags(step).requires_fit:
            yield type(step).__name__


def _told(estimator: Any) -> str:
    """Its parameters in full, arrays among them, of which `==` knows no single answer."""
    with np.printoptions(threshold=sys.maxsize, floatmode="unique"):
        return repr(estimator.get_params())
