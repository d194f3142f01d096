"""Builds each engine's SQL that finds the files an atom keeps, from the parts in plan_*.sql.

A column's ranges become windows of the planning index: one set for each width class of the column's bounds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, ldexp
from typing import Any, NamedTuple, Protocol, TypeVar

from deltalakedb.log.predicates.atoms import IsNotNull, IsNull, Within
from deltalakedb.log.predicates.ranges import NumberRange, TextRange, next_down, next_up
from deltalakedb.log.statistics.intervals import EMPTY, POINT, UNBOUNDED
from deltalakedb.store.queries import named_queries

MAX_RECHECKED = 16
"""Up to this many ranges, rows found by a merged window are compared with each range again."""

ABOVE_ALL_TEXT = "\U0010ffff" * 17
"""Stored texts have at most 64 bytes, 16 of the largest characters, so none sorts above this one."""

_MAX_SPELLED_PROBES = 100
"""Up to this many probes SQLite gets each as its own parameters; older builds accept 999 parameters."""


@dataclass(frozen=True, slots=True)
class IndexedAtom:
    """An atom on a column with bounds; files below `first_file_id` have none."""

    atom: Within | IsNull | IsNotNull
    column_id: int
    first_file_id: int
    width_classes: tuple[int, ...]

    @property
    def is_probe(self) -> bool:
        """Whether the index can find its files; it holds neither NaN nor null counts."""
        return isinstance(self.atom, Within) and not self.atom.nan

    @property
    def is_text(self) -> bool:
        return self.atom.column.kind == "text"

    @property
    def num_ranges(self) -> int:
        return len(self.atom.ranges) if isinstance(self.atom, Within) else 0

    @property
    def numbers(self) -> list[NumberRange]:
        return [r for r in self.atom.ranges if isinstance(r, NumberRange)] if isinstance(self.atom, Within) else []

    @property
    def texts(self) -> list[TextRange]:
        return [r for r in self.atom.ranges if isinstance(r, TextRange)] if isinstance(self.atom, Within) else []


_Range = TypeVar("_Range", NumberRange, TextRange)


class NumberProbe(NamedTuple):
    """Selects rows of a class with `lower between low and high and upper >= reach`."""

    width_class: int
    low: float
    high: float
    reach: float


class TextProbe(NamedTuple):
    """Selects rows by text bounds, like NumberProbe; a flag is 1 if that end is exclusive."""

    width_class: int
    low: str
    high: str
    high_open: int
    reach: str
    reach_open: int


_Probe = TypeVar("_Probe", NumberProbe, TextProbe)


def number_probes(ranges: Sequence[NumberRange], width_classes: Iterable[int]) -> tuple[list[NumberProbe], bool]:
    """Returns windows that do not overlap within a class, and whether some cover several ranges."""
    return _windows(
        ranges,
        width_classes,
        _number_probe,
        lambda last, probe: last._replace(high=max(last.high, probe.high), reach=min(last.reach, probe.reach)),
    )


def _number_probe(item: NumberRange, width_class: int) -> NumberProbe | None:
    """The window begins at the lowest lower bound of an interval of the class that can still reach the range."""
    if width_class == POINT:
        low = item.lo
    elif width_class >= min(UNBOUNDED, 1024) or item.lo == -inf:
        low = -inf
    else:
        low = next_down(item.lo - ldexp(1.0, width_class))
    return NumberProbe(width_class, low, item.hi, item.lo) if low <= item.hi else None


def text_probes(ranges: Sequence[TextRange], width_classes: Iterable[int]) -> tuple[list[TextProbe], bool]:
    """Returns windows for text, like `number_probes`; a class is the length of the common prefix of a file's bounds."""
    return _windows(
        ranges,
        width_classes,
        _text_probe,
        lambda last, probe: last._replace(high=probe.high, high_open=probe.high_open),
    )


def _text_probe(item: TextRange, width_class: int) -> TextProbe:
    """A file of class n that reaches a text shares its first n characters or is above them, so its lower bound is not
    below that prefix."""
    low = item.lo if width_class == POINT else item.lo[:width_class]
    high, high_open = (ABOVE_ALL_TEXT, 0) if item.hi is None else (item.hi, int(item.hi_open))
    return TextProbe(width_class, low, high, high_open, item.lo, int(item.lo_open))


def _windows(
    ranges: Sequence[_Range],
    width_classes: Iterable[int],
    probe_of: Callable[[_Range, int], _Probe | None],
    join: Callable[[_Probe, _Probe], _Probe],
) -> tuple[list[_Probe], bool]:
    """The probes of all ranges and classes; those of a class that overlap are joined. Also whether some were."""
    probes: list[_Probe] = []
    merged = False
    for width_class in width_classes:
        if width_class == EMPTY:
            continue
        first = len(probes)
        for item in ranges:
            probe = probe_of(item, width_class)
            if probe is None:
                continue
            if len(probes) > first and probe.low <= probes[-1].high:
                probes[-1] = join(probes[-1], probe)
                merged = True
            else:
                probes.append(probe)
    return probes, merged


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of SQL and its parameters."""

    text: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FileSource:
    """The queries that know which files a plan is about: the live files of a Delta table, or an Iceberg snapshot's."""

    all_files: str = "plan_live_files"
    without_bounds: str = "plan_files_without_bounds"
    fetch: str = "plan_{engine}_fetch"
    all_fetched: str = "plan_all_live_files"


class Pruner(Protocol):
    """How an engine prunes inside the database."""

    counts_first: bool
    """Whether it pays to count the candidates of several atoms before choosing the driver."""

    lookup_cost: int
    """How many candidates of another atom can be listed in the time of one lookup by key."""

    def candidates(self, item: IndexedAtom, prefix: str, source: FileSource) -> Part:
        """A select of the ids of the files that may match; `prefix` makes the atom's parameter names unique."""
        ...

    def condition(self, item: IndexedAtom, prefix: str) -> Part:
        """A condition that the candidate `c` may match."""
        ...

    def fetch(self, columns: str, candidates: str, source: FileSource) -> str:
        """The select of the candidates' columns."""
        ...


def part(name: str, prefix: str, parameters: Mapping[str, Any], **pieces: str) -> Part:
    """A named part, with its parameters prefixed and its {pieces} filled in."""
    text = named_queries()[name].replace(":@", f":{prefix}")
    for piece, content in pieces.items():
        text = text.replace(f"{{{piece}}}", content)
    return Part(text, {f"{prefix}{key}": value for key, value in parameters.items()})


def with_files_without_bounds(item: IndexedAtom, prefix: str, source: FileSource, found: Part) -> Part:
    if item.first_file_id <= 0:
        return found
    without_bounds = part(source.without_bounds, prefix, {"first_file_id": item.first_file_id})
    # `union` without `all`: rows from before the column was dropped and added again still exist
    return Part(f"{found.text} union {without_bounds.text}", {**found.parameters, **without_bounds.parameters})


def _probes_of(item: IndexedAtom) -> tuple[Sequence[NumberProbe | TextProbe], bool]:
    """The windows to search, and whether one of them covers several ranges."""
    if item.is_text:
        return text_probes(item.texts, item.width_classes)
    return number_probes(item.numbers, item.width_classes)


class _Matches:
    """Shared by the engines: the condition that a row `b` of bounds can satisfy an atom, and fetching the files."""

    def __init__(self, engine: str) -> None:
        self._engine = engine

    def fetch(self, columns: str, candidates: str, source: FileSource) -> str:
        name = source.fetch.replace("{engine}", self._engine)
        return part(name, "", {}, columns=columns, candidates=candidates).text

    def match(self, item: IndexedAtom, prefix: str) -> Part:
        if isinstance(item.atom, IsNull):
            return part("plan_may_be_null", prefix, {})
        if not isinstance(item.atom, Within) or item.atom.nan:
            return part("plan_may_have_values", prefix, {})
        if item.num_ranges > MAX_RECHECKED:
            kind = "text" if item.is_text else "number"
            return part(f"plan_{self._engine}_{kind}_ranges", prefix, self.many_ranges(item))
        return self._few_ranges(item, prefix)

    def _few_ranges(self, item: IndexedAtom, prefix: str) -> Part:
        texts: list[str] = []
        parameters: dict[str, Any] = {}
        for number, span in enumerate(item.numbers):
            texts.append(named_queries()["plan_number_range"].replace("#", str(number)))
            parameters |= {f"{prefix}lo{number}": span.lo, f"{prefix}hi{number}": span.hi}
        for number, text in enumerate(item.texts):
            open_high = text.hi_open and text.hi is not None
            clause = named_queries()["plan_text_range"].replace("#", str(number))
            clause = clause.replace("{lt}", "<" if open_high else "<=").replace("{gt}", ">" if text.lo_open else ">=")
            texts.append(clause)
            high = ABOVE_ALL_TEXT if text.hi is None else text.hi
            parameters |= {f"{prefix}lo{number}": text.lo, f"{prefix}hi{number}": high}
        if len(item.numbers) > 1:  # from the first to the last range: a comparison that lets engines skip blocks
            texts = [f"{named_queries()['plan_number_range'].replace('#', '_all')} and ({' or '.join(texts)})"]
            ends = item.numbers[0].lo, item.numbers[-1].hi
            parameters |= zip((f"{prefix}lo_all", f"{prefix}hi_all"), ends, strict=True)
        return Part(f"({' or '.join(texts)})".replace(":@", f":{prefix}"), parameters)

    def many_ranges(self, item: IndexedAtom) -> dict[str, Any]:
        """Ranges as arrays, one for each end."""
        if not item.is_text:
            return {"los": [r.lo for r in item.numbers], "his": [r.hi for r in item.numbers]}
        return {
            "los": [r.lo for r in item.texts],
            "his": [ABOVE_ALL_TEXT if r.hi is None else r.hi for r in item.texts],
            "lo_open": [int(r.lo_open) for r in item.texts],
            "hi_open": [int(r.hi_open and r.hi is not None) for r in item.texts],
        }

    def recheck(self, item: IndexedAtom, prefix: str, *, merged: bool) -> Part | None:
        """The condition that drops rows between the ranges of a window which covers several; None if not needed.

        For many number ranges a window is merged only if they are closer than the rows are wide: then most rows match,
        and comparing each with all ranges would cost more than it saves.
        """
        if not merged or (item.num_ranges > MAX_RECHECKED and not item.is_text):
            return None
        return self.match(item, prefix)


class SqlitePruner(_Matches):
    """One btree range per probe; a cross join fixes the order."""

    counts_first = True
    lookup_cost = 2

    def __init__(self) -> None:
        super().__init__("sqlite")

    def candidates(self, item: IndexedAtom, prefix: str, source: FileSource) -> Part:
        probes, merged = _probes_of(item)
        if not probes:
            candidates = Part("select null as file_id where 1 = 0")
        else:
            probe_rows = self._probes(probes, "text" if item.is_text else "number", prefix)
            name = "plan_sqlite_texts" if item.is_text else "plan_sqlite_numbers"
            candidates = part(name, prefix, {"column_id": item.column_id}, probes=probe_rows.text)
            recheck = self.recheck(item, prefix, merged=merged)
            text = candidates.text if recheck is None else f"{candidates.text} and {recheck.text}"
            extra = {} if recheck is None else recheck.parameters
            candidates = Part(text, {**candidates.parameters, **probe_rows.parameters, **extra})
        return with_files_without_bounds(item, prefix, source, candidates)

    def _probes(self, probes: Sequence[NumberProbe | TextProbe], kind: str, prefix: str) -> Part:
        if len(probes) > _MAX_SPELLED_PROBES:
            return part(f"plan_sqlite_{kind}_probes", prefix, {"probes": _json_rows(probes, upper=2)})
        parameters: dict[str, Any] = {}
        rows: list[str] = []
        for number, probe in enumerate(probes):
            names = [f"{prefix}p{number}_{place}" for place in range(len(probe))]
            parameters |= zip(names, probe, strict=True)
            rows.append("(" + ", ".join(f":{name}" for name in names) + ")")
        return Part(f"values {', '.join(rows)}", parameters)

    def many_ranges(self, item: IndexedAtom) -> dict[str, Any]:
        rows = list(zip(*super().many_ranges(item).values(), strict=True))
        return {"ranges": _json_rows(rows, upper=1)}

    def condition(self, item: IndexedAtom, prefix: str) -> Part:
        return _condition_by_key(self, item, prefix)


class PostgresPruner(_Matches):
    """One btree range per probe, by lateral sub-selects."""

    counts_first = True
    lookup_cost = 8

    def __init__(self) -> None:
        super().__init__("postgres")

    def candidates(self, item: IndexedAtom, prefix: str, source: FileSource) -> Part:
        probes, merged = _probes_of(item)
        fields = TextProbe._fields if item.is_text else NumberProbe._fields
        arrays = {name: [probe[place] for probe in probes] for place, name in enumerate(fields)}
        recheck = self.recheck(item, prefix, merged=merged) or Part("true")
        name = "plan_postgres_texts" if item.is_text else "plan_postgres_numbers"
        candidates = part(name, prefix, {"column_id": item.column_id, **arrays}, recheck=recheck.text)
        return with_files_without_bounds(
            item, prefix, source, Part(candidates.text, {**candidates.parameters, **recheck.parameters})
        )

    def condition(self, item: IndexedAtom, prefix: str) -> Part:
        return _condition_by_key(self, item, prefix)


class DuckdbPruner(_Matches):
    """Scans, because DuckDB has no index that serves ranges."""

    counts_first = False
    lookup_cost = 1

    def __init__(self) -> None:
        super().__init__("duckdb")

    def candidates(self, item: IndexedAtom, prefix: str, source: FileSource) -> Part:
        return with_files_without_bounds(item, prefix, source, self._scan(item, prefix))

    def condition(self, item: IndexedAtom, prefix: str) -> Part:
        scan = self._scan(item, prefix)
        condition = part("plan_duckdb_condition", prefix, {"first_file_id": item.first_file_id}, candidates=scan.text)
        return Part(condition.text, {**condition.parameters, **scan.parameters})

    def _scan(self, item: IndexedAtom, prefix: str) -> Part:
        column = {"column_id": item.column_id}
        if item.is_probe and item.num_ranges > MAX_RECHECKED:
            name = "plan_duckdb_many_texts" if item.is_text else "plan_duckdb_many_numbers"
            ends = self.many_ranges(item)
            return part(name, prefix, {**column, "los": ends["los"], "his": ends["his"]})
        match = self.match(item, prefix)
        scan = part("plan_duckdb_bounds", prefix, column, match=match.text)
        return Part(scan.text, {**scan.parameters, **match.parameters})


def _condition_by_key(matches: _Matches, item: IndexedAtom, prefix: str) -> Part:
    match = matches.match(item, prefix)
    parameters = {"column_id": item.column_id, "first_file_id": item.first_file_id}
    condition = part("plan_condition_by_key", prefix, parameters, match=match.text)
    return Part(condition.text, {**condition.parameters, **match.parameters})


def _json_rows(rows: Sequence[Sequence[Any]], *, upper: int) -> str:
    """Rows for SQLite's JSON functions; values at position `upper` are rounded up, others down."""
    lines = (", ".join(_json_value(value, up=place == upper) for place, value in enumerate(row)) for row in rows)
    return "[" + ", ".join(f"[{line}]" for line in lines) + "]"


def _json_value(value: Any, *, up: bool) -> str:
    """SQLite reads only 15 digits exactly, not 17: a number that needs more is widened by one step."""
    if not isinstance(value, float):
        return json.dumps(value)
    if abs(value) == inf:
        return "9e999" if value > 0 else "-9e999"
    if float(f"{value:.15g}") != value:
        value = next_up(value) if up else next_down(value)
    return repr(value)


PRUNERS: Mapping[str, Pruner] = {"sqlite": SqlitePruner(), "duckdb": DuckdbPruner(), "postgres": PostgresPruner()}
