"""Columns of a dictionary with the measurements that they are, by code and by name, their units, and their
plausible ranges by the packaged dictionary."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from eigenveil.dictionary.dictionary import ColumnType, Dictionary, DictionaryColumn
from eigenveil_client.records.tables.units import same_unit
from eigenveil_client.site.config import site_dictionary
from eigenveil_client.site.mapping.measurements import languages
from eigenveil_client.site.mapping.measurements.concepts import (
    CATEGORY_NAMES,
    CONCEPTS,
    Linear,
    MeasurementConcept,
)
from eigenveil_client.site.mapping.measurements.names import joined

SAME: Linear = (1.0, 0.0)


@cache
def _packaged() -> dict[str, DictionaryColumn]:
    return {one.name: one for one in site_dictionary(None).columns}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Target:
    """Column of the dictionary and the measurement that it is, as far as one is known: `by_code` by its LOINC
    code, `by_name` by its name."""

    column: DictionaryColumn
    by_code: MeasurementConcept | None = None
    by_name: MeasurementConcept | None = None

    @property
    def concept(self) -> MeasurementConcept | None:
        """The measurement that its code says, or else its name."""
        return self.by_code or self.by_name

    @property
    def names(self) -> tuple[str, ...]:
        """All names that mean it."""
        own = (self.column.name,)
        if self.column.type is ColumnType.CATEGORY:
            known = (CATEGORY_NAMES, languages.CATEGORY_NAMES)
            return (*own, *(name for names in known for name in names.get(self.column.name, ())))
        return own if self.concept is None else (*own, *names_of(self.concept))

    @property
    def near(self) -> tuple[str, ...]:
        """Names that may also be another measurement."""
        concept = self.concept
        return () if concept is None else (*concept.near, *languages.NEAR.get(concept.name, ()))

    @property
    def codes(self) -> tuple[str, ...]:
        """The LOINC codes that mean it: one that is unknown here stands alone."""
        if self.unknown_code:
            return (self.unknown_code,)
        return () if self.concept is None else self.concept.loinc

    @property
    def unknown_code(self) -> str:
        """Its LOINC code, if no measurement is known by it."""
        return "" if self.by_code is not None else self.column.loinc or ""

    @property
    def identities(self) -> frozenset[str]:
        """Names by one of which two columns are of one measurement."""
        concepts = (one.name for one in (self.by_code, self.by_name) if one is not None)
        return frozenset((joined(self.column.name), *map(joined, concepts)))

    @property
    def doubt(self) -> str:
        """The contradiction between its code and its name; empty if there is none."""
        if self.by_code is None or self.by_name in (None, self.by_code):
            return ""
        return f"its code, LOINC {self.column.loinc}, is that of {self.by_code.name}"

    @property
    def evidence(self) -> str:
        """By what its other names are known."""
        named = f"the names of LOINC {self.column.loinc}, {self.by_code.name}" if self.by_code else ""
        return "its name" if self.by_name is not None or not named else named

    @property
    def plausible(self) -> tuple[float, float] | None:
        """Range of nearly all values by the packaged dictionary, in the unit of this one; None if it has no
        such measurement."""
        one = None if self.concept is None else _packaged().get(self.concept.name)
        if self.concept is None or one is None or one.plausible_lower is None or one.plausible_upper is None:
            return None
        way = self.concept.conversion(one.unit, self._home or "")
        return None if way is None else _converted((one.plausible_lower, one.plausible_upper), way)

    @property
    def of_person(self) -> bool:
        """True if OMOP has it of a person, and not among the measurements."""
        concept = self.concept
        return self.column.type is ColumnType.CATEGORY or (concept is not None and concept.name == "age")

    @property
    def usual_levels(self) -> bool:
        """True for a category with the levels of the packaged dictionary."""
        one = _packaged().get(self.column.name)
        return one is not None and set(one.levels) == set(self.column.levels)

    @property
    def _home(self) -> str | None:
        """The unit of the dictionary, as the measurement's units have it; None if it is not among them."""
        units = () if self.concept is None else self.concept.units
        return next((unit for unit in units if same_unit(unit, self.column.unit)), None)

    def units(self) -> dict[str, Linear]:
        """Return each unit in which the measurement may be recorded, with its way to the dictionary's."""
        found = {self.column.unit: SAME}
        home = self._home
        if self.concept is not None and home is not None:
            for unit in self.concept.units:
                way = self.concept.conversion(unit, home)
                if way is not None and not same_unit(unit, self.column.unit):
                    found[unit] = way
        return found

    def typical(self) -> tuple[float, float] | None:
        """Return the bounds of a usual median, in the dictionary's unit; None if they are not known."""
        if self.concept is None or self._home is None:
            return None
        way = self.concept.conversion(self.concept.unit, self._home) or SAME
        return _converted(self.concept.typical, way)


def _converted(bounds: tuple[float, float], way: Linear) -> tuple[float, float]:
    low, high = (way[0] * bound + way[1] for bound in bounds)
    return low, high


def names_of(concept: MeasurementConcept) -> tuple[str, ...]:
    """Return all names of a measurement, in all languages."""
    return (concept.name, *concept.names, *languages.NAMES.get(concept.name, ()))


def targets(dictionary: Dictionary) -> tuple[Target, ...]:
    """Return the columns of a dictionary with the measurements that they are by code and by name."""
    by_code = {code: one for one in CONCEPTS for code in one.loinc}
    by_name = {joined(name): one for one in CONCEPTS for name in names_of(one)}
    return tuple(
        Target(column=one, by_code=by_code.get(one.loinc or ""), by_name=by_name.get(joined(one.name)))
        for one in dictionary.columns
    )
