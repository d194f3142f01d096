"""The Python API against `deltalake`'s: the same calls on copies of the same table, in the same run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench.api_lab import DELTALAKE, Side, api_lab, merge_under_limit
from bench.api_tables import source_rows, wide_rows
from bench.lab import Lab, say
from bench.measure import time_in_turns, time_once
from bench.report import Bar, Row, at_least, below, milliseconds

AS_FAST = Bar("<= 1.10x", lambda value: value <= 1.1)
SPREAD = "id % 100 = 7"
NOTE = (
    "each call opens the table by its address, does one thing and lets go of it; a table that is changed is a new copy "
    "each round, and every side comes first in turn; *spread*: rows of every file, *in a row*: rows of one file"
)
ONE_ROW_NOTE = (
    "one row: `DeltaTable(address).to_pyarrow_table(filters=...)`, and for `deltalake` also its quickest way, "
    "`scan(predicate=...)`, which alone is asked about more than 20,000 files; the other files need not be there"
)
LIMIT_NOTE = (
    "merge under a limit: in a process of its own with `data.memory_limit` of 1 GB, peak resident size of the process"
)

FILTERED_FILES = 20_000
"""More files than these take `deltalake` minutes to filter through PyArrow's dataset."""

Verb = Callable[[Side, str], Any]


def append_rows(lab: Lab) -> list[Row]:
    data = wide_rows(lab.sizes.api_rows)
    return _changed(lab, f"append {lab.sizes.api_rows:,} rows", None, lambda side, at: side.write(at, data))


def delete_rows(lab: Lab) -> list[Row]:
    base, count = api_lab(lab).base(), lab.sizes.api_rows
    in_a_row = f"id >= {count // 2} and id < {count // 2 + count // 100}"
    rows = _changed(lab, "delete 1 %, spread", base, lambda side, at: side.on(at, lambda table: table.delete(SPREAD)))
    rows += _changed(
        lab, "delete 1 %, in a row", base, lambda side, at: side.on(at, lambda table: table.delete(in_a_row))
    )
    return rows


def update_rows(lab: Lab) -> list[Row]:
    assignments = {"qty": "qty + 1"}

    def update(table: Any) -> Any:
        return table.update(assignments, predicate=SPREAD)

    return _changed(lab, "update 1 %, spread", api_lab(lab).base(), lambda side, at: side.on(at, update))


def merge_rows(lab: Lab) -> list[Row]:
    """Half of the source's rows are in the table, half are new."""
    count = lab.sizes.api_rows
    source = source_rows(count, count // 100)

    def merge(table: Any) -> Any:
        merger = table.merge(source, "t.id = s.id", source_alias="s", target_alias="t")
        return merger.when_matched_update_all().when_not_matched_insert_all().execute()

    return _changed(lab, "merge 1 %, spread", api_lab(lab).base(), lambda side, at: side.on(at, merge))


def compact_rows(lab: Lab) -> list[Row]:
    rows = []
    for what, base in (
        (f"compact {lab.sizes.api_rows:,} rows of 100 files", api_lab(lab).base(files=100)),
        (f"compact {lab.sizes.small_files:,} small files", api_lab(lab).small_files()),
    ):
        rows += _changed(lab, what, base, lambda side, at: side.on(at, lambda table: table.optimize.compact()))
    return rows


def read_rows(lab: Lab) -> list[Row]:
    """Nothing changes, so that every side keeps its one table."""
    prepared, count = api_lab(lab), lab.sizes.api_rows
    base = prepared.base(files=100)
    filters = [("id", ">=", count // 3), ("id", "<", count // 3 + 1000)]
    reads: dict[str, Callable[[Any], Any]] = {
        "selective read with filters": lambda table: table.to_pyarrow_table(filters=filters).num_rows,
        "full read": lambda table: table.to_pyarrow_table().num_rows,
    }
    places = {name: side.take(base, "read") for name, side in prepared.sides.items()}
    rows = []
    for what, read in reads.items():
        calls = {name: partial(side.on, places[name], read) for name, side in prepared.sides.items()}
        timings = say(what, partial(time_in_turns, calls, lab.sizes.api_rounds, 120))
        assert len({timing.answer for timing in timings.values()}) == 1, f"{what}: the sides read other rows"
        rows += _ratios(what, {name: timing.median_ms for name, timing in timings.items()})
    return rows


def one_row_rows(lab: Lab) -> list[Row]:
    prepared = api_lab(lab)
    log = prepared.with_one_file(lab.log_of(lab.sizes.files))
    places = {name: side.take(log, "one", managed=False) for name, side in prepared.sides.items()}

    def filtered(table: Any) -> int:
        return int(table.to_pyarrow_table(filters=[("id", "=", -5)]).num_rows)

    def scanned(table: Any) -> int:
        return int(pa.RecordBatchReader.from_stream(table.scan(predicate="id = -5")).read_all().num_rows)

    calls = {name: partial(side.on, places[name], filtered) for name, side in prepared.sides.items()}
    theirs = prepared.sides[DELTALAKE]
    slow = None
    if lab.sizes.files <= FILTERED_FILES:
        slow = say("one row by deltalake's filters", partial(time_once, calls[DELTALAKE]))
    calls[DELTALAKE] = partial(theirs.on, places[DELTALAKE], scanned)
    timings = say("one row", partial(time_in_turns, calls, lab.sizes.api_rounds, 60))
    assert {timing.answer for timing in timings.values()} == {1}
    rows = []
    for name, timing in timings.items():
        for how, other, bar in (("scan", timings[DELTALAKE], at_least(20)), ("filters", slow, None)):
            if other is None or name == DELTALAKE:
                continue
            what, ratio = f"one row of {lab.sizes.files:,} files", other.median_ms / timing.median_ms
            against = f"{DELTALAKE}'s {how} {milliseconds(other.median_ms)}"
            rows.append(Row(what, name, milliseconds(timing.median_ms), against, ratio, "x", bar, ONE_ROW_NOTE))
    return rows


def limit_rows(lab: Lab) -> list[Row]:
    """A merge that is larger than the memory it may take."""
    rows = []
    base = api_lab(lab).base(rows=lab.sizes.merge_rows)
    for name, side in api_lab(lab).sides.items():
        if name == DELTALAKE:
            continue
        at = side.take(base, "limit")
        source = lab.sizes.merge_rows // 10
        peak_mb, seconds = merge_under_limit(at, lab.sizes.merge_rows, source)
        what = f"merge {source:,} rows into {lab.sizes.merge_rows:,}"
        shown = f"{seconds:,.1f} s"
        rows.append(Row(what, name, shown, "a limit of 2 GB", peak_mb, " MB", below(2048, " MB"), LIMIT_NOTE))
        side.drop(at)
    return rows


def _changed(lab: Lab, what: str, base: Path | None, verb: Verb) -> list[Row]:
    """Medians of calls that change a table: a new copy of it for each, made before the clock starts."""
    sides = api_lab(lab).sides
    taken: dict[str, list[float]] = {name: [] for name in sides}

    def rounds() -> None:
        names = list(sides)
        for number in range(lab.sizes.api_rounds):
            first = number % len(names)
            for name in names[first:] + names[:first]:
                taken[name].append(_once(sides[name], base, f"r{number}", verb))

    say(what, rounds)
    return _ratios(what, {name: statistics.median(values) * 1000 for name, values in taken.items()})


def _once(side: Side, base: Path | None, name: str, verb: Verb) -> float:
    at = side.empty(name) if base is None else side.take(base, name)
    begin = time.perf_counter()
    verb(side, at)
    seconds = time.perf_counter() - begin
    side.drop(at)
    return seconds


def _ratios(what: str, medians_ms: Mapping[str, float]) -> list[Row]:
    theirs = medians_ms[DELTALAKE]
    against = f"{DELTALAKE} {milliseconds(theirs)}"
    return [
        Row(what, name, milliseconds(ours), against, ours / theirs, "x", AS_FAST, NOTE)
        for name, ours in medians_ms.items()
        if name != DELTALAKE
    ]


ROWS: dict[str, Callable[[Lab], list[Row]]] = {
    "api-append": append_rows,
    "api-delete": delete_rows,
    "api-update": update_rows,
    "api-merge": merge_rows,
    "api-compact": compact_rows,
    "api-read": read_rows,
    "one-row": one_row_rows,
    "merge-limit": limit_rows,
}
