"""A file's headers and a study's columns: found by name, and by the unit in brackets."""

from __future__ import annotations

from eigenveil.study.study import Study
from eigenveil_client.records.table import BadRecords


def match_columns(headers: tuple[str, ...], study: Study) -> list[str]:
    """The file's header for each column of the study, in the study's order.

    Raises:
        BadRecords: a column is missing or there twice, or its unit in brackets is another one.
    """
    found = [find_column(headers, column.name, column.unit) for column in study.columns]
    if study.person_column is not None:
        find_column(headers, study.person_column)
    return found


def name_and_unit(header: str) -> tuple[str, str | None]:
    """`glucose [mmol/L]` is the column glucose in mmol/L; without brackets there is no unit."""
    name, bracket, unit = header.strip().rpartition("[")
    if not bracket or not unit.endswith("]") or not name.strip():
        return header.strip(), None
    return name.strip(), unit[:-1].strip()


def find_column(headers: tuple[str, ...], name: str, unit: str | None = None) -> str:
    """The file's header for the column `name`, in `unit` if that is given.

    Raises:
        BadRecords: as `match_columns`.
    """
    fits = [h for h in headers if h.strip() == name or name_and_unit(h)[0] == name]
    if not fits:
        hint = " (is the file separated by commas?)" if len(headers) == 1 else ""
        raise BadRecords(f"the records have no column {name!r}{hint}; add it", about=name)
    if len(fits) > 1:
        raise BadRecords(f"the records have {len(fits)} columns {name!r}; keep one", about=name)
    stated = None if fits[0].strip() == name else name_and_unit(fits[0])[1]
    if unit is not None and stated is not None and stated != unit:
        raise BadRecords(
            f"column {name!r} is in {stated!r} in the records and in {unit!r} in the study; convert it",
            about=name,
        )
    return fits[0]
