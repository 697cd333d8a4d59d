"""Cost of a study of any size, by the laws of `benchmarks.growth`, and the limits of the code.

`python -m benchmarks.cost_model --records 1e9 --columns 20 --components 4 --sites 1000` prints what each step
of such a study would take, and how near it comes to each limit; without sizes, the laws."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.growth.laws import Laws, fitted
from benchmarks.growth.points import Point, Points, Setting
from eigenveil.planning.choose import MAX_NUMBERS, make_plan, rehearse
from eigenveil.protocol.wire import query_to_proto
from eigenveil.queries import Gradient, Gram, Query
from eigenveil.queries.limits import GRADIENT_LIMIT, SUM_LIMIT, row_norm_limit, triangle
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import MAX_RECORDS, MAX_SITES, Column, Federation, Study
from eigenveil_common.rpc import MESSAGE_BYTES, MOST_CONNECTIONS
from eigenveil_server.planning.planner import ENVELOPE_BYTES

POINTS = Path(__file__).resolve().parents[1] / "docs" / "figures" / "growth"
REHEARSED = 100  # columns: how many questions there are, and of which kind, is found on so many at most
RECORDS_EACH = 10**6  # and with so many records a site


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A study by its sizes; `records` are all sites' together, in equal shares."""

    records: int
    columns: int
    components: int
    sites: int
    algorithm: Algorithm = Algorithm.DP_PCA
    studies: int = 0

    @property
    def each(self) -> int:
        """Records of one site."""
        return -(-self.records // self.sites)

    def study(self) -> Study:
        """It.

        Raises:
            RequestError: the code allows no such study."""
        return Study(
            name="sizes",
            columns=tuple(Column(name=f"x{i}", unit="1", lower=-1, upper=1) for i in range(self.columns)),
            epsilon=1.0,
            delta=min(1e-6, 0.01 / self.records),
            components=self.components,
            algorithm=self.algorithm,
            federation=Federation(sites=tuple(f"site-{i:04}" for i in range(self.sites))),
            max_records=self.each,
            expected_records=self.records,
        )

    def rehearsal(self) -> Rehearsal:
        """Questions of the study, and the largest message, found with few columns and one site."""
        columns = min(self.columns, REHEARSED)
        few = replace(
            self, columns=columns, components=min(self.components, columns), sites=1,
            records=min(self.records, MAX_RECORDS),
        )  # fmt: skip
        plan = make_plan(replace(few.study(), max_records=min(few.each, RECORDS_EACH)))
        asked = rehearse(plan)
        largest = max(query_to_proto(one).ByteSize() for one in asked)
        return Rehearsal(
            columns=columns, questions=[one.query for one in asked],
            message=(largest + len(plan.to_json())) * self.columns // columns,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """The questions of a study, on so many `columns`, and about how large a `message` with the largest of
    them and the plan is on all."""

    columns: int
    questions: list[Query]
    message: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One step of a study: how often, and what it takes each time, as far as that was measured: seconds (of
    processors where they have a law), bytes that are sent or stored, bytes of memory."""

    step: str
    times: int
    seconds: float | None = None
    bytes: float | None = None
    memory: float | None = None


def step(laws: Laws, what: str, at: Setting, **more: Any) -> Row:
    """A step by its laws; `more` replaces what they say, or names it."""

    def says(*quantities: str) -> float | None:
        law = next((laws[what, one] for one in quantities if (what, one) in laws), None)
        return None if law is None else law(at)

    found = {"seconds": says("processor_seconds", "seconds"), "memory": says("peak_bytes")}
    row: dict[str, Any] = {"step": what, "times": 1, **found, **more}
    return Row(**row)


def bill(wanted: Wanted, laws: Laws) -> Iterator[Row]:
    """Cost of every step."""
    asked, d, k = wanted.rehearsal().questions, wanted.columns, wanted.components
    at = Setting(
        what="", records=wanted.each, columns=d, components=k, numbers=d * k, sites=wanted.sites,
        studies=wanted.studies,
    )  # fmt: skip
    if wanted.studies:
        started = laws.get(("past", "start_seconds"))
        yield step(
            laws, "past", at, step="coordinator starts", seconds=None if started is None else started(at)
        )
    yield step(laws, "planning", at, step="study planned with `auto`")
    yield step(laws, "loading", at, step="a site loads its records", bytes=2 * wanted.each * d)
    for kind, what, numbers in ((Gradient, "gradient", d * k), (Gram, "gram", triangle(d))):
        times = sum(isinstance(one, kind) for one in asked)
        if times:
            yield from _round(laws, what, times, replace(at, numbers=numbers))
    yield step(laws, "replay", at, step="a site computes the next question", times=len(asked))
    calls = laws.get(("round", "coordinator_seconds"))
    yield step(
        laws, "round", at, step="calls of all sites, at the coordinator", times=len(asked),
        seconds=None if calls is None else calls(at),
    )  # fmt: skip


def _round(laws: Laws, what: str, times: int, at: Setting) -> Iterator[Row]:
    """The steps of a round of this kind."""
    answer = 8 * at.numbers
    released = 2 * answer + present_bytes(at.sites)
    yield step(laws, what, at, step=f"{what}: a site's pass", times=times, bytes=answer)
    checked = step(laws, f"{what}-check", at, step=f"{what}: answers received, checked", times=times)
    seconds = None if checked.seconds is None else checked.seconds * at.sites
    yield replace(checked, seconds=seconds, bytes=answer * at.sites)
    if what == "gram":
        name = "gram: sum, noise, eigenvectors, sealed"
        yield step(laws, "sealing", at, step=name, times=times, bytes=released)
        return
    yield step(laws, "sum", at, step=f"{what}: sum", times=times, memory=answer)
    yield step(laws, "noise", at, step=f"{what}: noise", times=times, memory=answer)
    yield step(laws, "seal", at, step=f"{what}: sealed", times=times, bytes=released)
    yield Row(step=f"{what}: release and next question sent", times=times, bytes=released * at.sites)


def present_bytes(sites: int) -> int:
    """Bytes of the names of the sites present, which every release states."""
    return sites * len('"site-0000",')


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A limit of the code: how much of it a study would use."""

    name: str
    used: float
    most: float

    def __str__(self) -> str:
        share = self.used / self.most
        return f"{share:.2%}" if share <= 1 else f"**{share:.3g} times what is allowed**"


def limits(wanted: Wanted) -> Iterator[Limit]:
    """Every limit on sizes that a study may meet."""
    n, rehearsal = wanted.records, wanted.rehearsal()
    yield Limit(name="sites of a study (MAX_SITES)", used=wanted.sites, most=MAX_SITES)
    yield Limit(
        name="connections of a coordinator (MOST_CONNECTIONS)", used=wanted.sites, most=MOST_CONNECTIONS
    )
    yield Limit(name="records of a study (MAX_RECORDS)", used=n, most=MAX_RECORDS)
    products = row_norm_limit(wanted.columns) ** 2 * wanted.each * wanted.sites
    yield Limit(name="sums of products over all records (SUM_LIMIT)", used=products, most=SUM_LIMIT)
    yield Limit(
        name="sums of gradients over all records (SUM_LIMIT)", used=GRADIENT_LIMIT * n, most=SUM_LIMIT
    )
    sent = numbers(wanted, rehearsal)
    yield Limit(name="numbers a site sends in a study (MAX_NUMBERS)", used=sent, most=MAX_NUMBERS)
    message = rehearsal.message + present_bytes(wanted.sites) + ENVELOPE_BYTES
    yield Limit(name="plan and question in one message (MESSAGE_BYTES)", used=message, most=MESSAGE_BYTES)


def numbers(wanted: Wanted, rehearsal: Rehearsal) -> int:
    """Numbers from a site in a study: each answer of the rehearsal scaled as its kind grows."""
    total, few = 0, rehearsal.columns
    for query in rehearsal.questions:
        if isinstance(query, Gram):
            total += triangle(wanted.columns)
        else:  # one number a column, or k, or a histogram of norms
            total += query.length * wanted.columns // few if query.length % few == 0 else query.length
    return total


def laws_table(laws: Laws) -> Iterator[str]:
    """Every law with what its fit misses, as a table of a page."""
    yield "| step | | model | points | typical and worst ratio |"
    yield "|---|---|---|---|---|"
    for law in laws.values():
        unit = "s" if law.quantity.endswith("seconds") else "bytes"
        what = law.quantity.replace("_", " ")
        yield (f"| {law.step} | {what} | {law} {unit} | {law.points} | {law.typical:.3g}, {law.worst:.3g} |")


def bill_table(wanted: Wanted, laws: Laws) -> Iterator[str]:
    """Every step of a study, as a table of a page."""
    yield "| step | times | seconds each | bytes sent or stored | memory |"
    yield "|---|---|---|---|---|"
    for row in bill(wanted, laws):
        numbers = ("" if one is None else f"{one:.2g}" for one in (row.seconds, row.bytes, row.memory))
        yield f"| {row.step} | {row.times} | {' | '.join(numbers)} |"


def bills_table(studies: Sequence[Wanted], laws: Laws) -> Iterator[str]:
    """Seconds of every step of each study, side by side."""
    heads = (f"{one.records:.0e} × {one.columns}, sites: {one.sites:,}" for one in studies)
    yield f"| seconds of each step | times | {' | '.join(heads)} |"
    yield f"|---|---|{'---|' * len(studies)}"
    for same in zip(*(bill(one, laws) for one in studies), strict=True):
        if same[0].seconds is not None:
            seconds = ("" if one.seconds is None else f"{one.seconds:.3g}" for one in same)
            yield f"| {same[0].step} | {same[0].times} | {' | '.join(seconds)} |"


def limits_table(studies: Sequence[Wanted]) -> Iterator[str]:
    """Each study's use of each limit, side by side."""
    heads = (
        f"{one.records:.0e} × {one.columns}, {one.algorithm.value}, {one.sites} sites" for one in studies
    )
    yield f"| limit | {' | '.join(heads)} |"
    yield f"|---|{'---|' * len(studies)}"
    for same in zip(*map(limits, studies), strict=True):
        yield f"| {same[0].name} | {' | '.join(map(str, same))} |"


def kept(folder: Path = POINTS) -> list[Point]:
    """Every point in a folder."""
    return [point for path in sorted(folder.glob("*.json")) for point in Points(path).all()]


def main() -> None:
    """Print the laws, or a study's bill."""
    parser = argparse.ArgumentParser(prog="cost_model", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=lambda text: int(float(text)))
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--components", type=int, default=4)
    parser.add_argument("--sites", type=int, default=3)
    parser.add_argument("--studies", type=int, default=0, help="past studies in the ledger")
    parser.add_argument("--algorithm", type=Algorithm, default=Algorithm.DP_PCA)
    parser.add_argument("--points", type=Path, default=POINTS, help="folder of measured points")
    chosen = parser.parse_args()
    laws = fitted(kept(chosen.points))
    if chosen.records is None:
        print(*laws_table(laws), sep="\n")
        return
    wanted = Wanted(
        records=chosen.records, columns=chosen.columns, components=chosen.components, sites=chosen.sites,
        algorithm=chosen.algorithm, studies=chosen.studies,
    )  # fmt: skip
    print(*bill_table(wanted, laws), "", *limits_table([wanted]), sep="\n")


if __name__ == "__main__":
    main()
