"""How the rows of a study must look on their way from a reader."""

from __future__ import annotations

from eigenveil.study.grid import stored_dtype
from eigenveil.study.study import Study
from eigenveil_client.records.apart.frames import RowsForm


def form_of(study: Study) -> RowsForm:
    """Stored integers of the study's grid, which reach from -grid_steps to grid_steps."""
    return RowsForm(columns=study.dimension, dtype=stored_dtype(study), largest=study.grid_steps)
