"""The rows of the report: what is called on each side, and the bar it is held to."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from bench import peers
from bench.lab import Lab, say
from bench.measure import Timing, peak_memory_mb, time_in_turns, time_once
from bench.ours import CatalogAt
from bench.report import Bar, Row, at_least, at_most, below, milliseconds
from bench.tables import Spec, append_commit

OPEN_NOTE = "open = connect + table + version + schema; `deltalake`: `DeltaTable(path)` + version + schema"
PLAN_NOTE = (
    "plan = connect + table + `plan(predicate)` with the kept files as Arrow; `deltalake`: `DeltaTable(path)` + "
    "`file_uris(file_pruning_predicate=...)`"
)
LAKE_NOTE = (
    "DuckLake: attach + filtered `count(*)` whose 1 or 100 kept files are tiny, in a DuckDB that has the extension "
    "loaded already; *from nothing*: the same with opening DuckDB and loading the extension"
)
LIST_NOTE = "list = connect + table + `files()` as Arrow; `deltalake`: `DeltaTable(path)` + `get_add_actions()`"
MEMORY_NOTE = (
    "memory: peak resident size of a new client process during its first plan, less its size after opening the table"
)
IMPORT_NOTE = "import: `attach_table` from a classic checkpoint, files per second over the whole call, three runs"

Timings = Mapping[str, Timing]


def open_rows(lab: Lab) -> list[Row]:
    log = lab.log_of(lab.sizes.files)
    catalogs = {engine: lab.catalog(engine, log) for engine in lab.engines}
    calls: dict[str, Callable[[], Any]] = {"deltalake": partial(peers.deltalake_open, str(log))}
    calls |= {engine: catalog.open for engine, catalog in catalogs.items()}
    timings = _timed(lab, f"open, {lab.sizes.files:,} files", calls)
    bars = {"sqlite": 20, "postgres": 20, "duckdb": 5}
    rows = [
        _faster(timings, "open", engine, engine, "deltalake", at_least(bars[engine]), OPEN_NOTE) for engine in catalogs
    ]
    return rows + _freshness_rows(lab, catalogs)


def _freshness_rows(lab: Lab, catalogs: Mapping[str, CatalogAt]) -> list[Row]:
    """Another process commits and follows between two opens of this one."""
    before = {engine: catalog.open()[0] for engine, catalog in catalogs.items()}
    written = append_commit(lab.log_of(lab.sizes.files), Spec(lab.sizes.files))
    rows = []
    for engine, catalog in catalogs.items():
        catalog.follow_in_another_process()
        after = catalog.open()[0]
        seen = float(before[engine] == written - 1 and after == written)
        shown = f"version {before[engine]}, then {after}"
        bar = Bar("seen", lambda value: value == 1)
        rows.append(Row("a commit between two opens", engine, shown, "another process", seen, "", bar))
    return rows


def plan_rows(lab: Lab) -> list[Row]:
    spec, log = Spec(lab.sizes.files), lab.log_of(lab.sizes.files)
    rows = []
    for keep, predicate in ((1, spec.point_predicate()), (100, spec.range_predicate())):
        calls: dict[str, Callable[[], Any]] = {"deltalake": partial(peers.deltalake_plan, str(log), predicate)}
        for engine in lab.engines:
            session = lab.lake(engine, lab.sizes.files)
            calls[engine] = partial(lab.catalog(engine, log).plan, predicate)
            calls[f"DuckLake {engine}"] = partial(session.plan, predicate)
            if keep == 1:
                calls[f"DuckLake {engine} from nothing"] = partial(
                    peers.ducklake_plan_from_nothing, session.lake, predicate
                )
        timings = _timed(lab, f"plan keeping {keep} of {lab.sizes.files:,}", calls)
        _expect(timings, keep, "deltalake", *lab.engines)
        for engine in lab.engines:
            bar = at_least(20 if engine == "postgres" else 10)
            what = f"plan keeping {keep}"
            rows.append(_faster(timings, what, engine, engine, "deltalake", bar, PLAN_NOTE))
            rows.append(_faster(timings, what, engine, engine, f"DuckLake {engine}", bar, LAKE_NOTE))
            if keep == 1:
                rows.append(_faster(timings, what, engine, engine, f"DuckLake {engine} from nothing", bar))
    return rows


def list_rows(lab: Lab) -> list[Row]:
    log = lab.log_of(lab.sizes.files)
    calls: dict[str, Callable[[], Any]] = {"deltalake": partial(peers.deltalake_list, str(log))}
    for engine in lab.engines:
        calls[engine] = lab.catalog(engine, log).list_files
        calls[f"DuckLake {engine}"] = lab.lake(engine, lab.sizes.files).list_files
    timings = _timed(lab, f"list {lab.sizes.files:,} files", calls)
    _expect(timings, timings["deltalake"].answer, *lab.engines)
    rows = []
    for engine in lab.engines:
        bar = at_most(2 if engine == "postgres" else 1)
        rows.append(_slower(timings, "list all files", engine, engine, "deltalake", bar, LIST_NOTE))
        rows.append(_slower(timings, "list all files", engine, engine, f"DuckLake {engine}", None))
    return rows


def scale_rows(lab: Lab) -> list[Row]:
    return _growth_rows(lab, lab.sizes.large_files, lab.engines)


def huge_rows(lab: Lab) -> list[Row]:
    return _growth_rows(lab, lab.sizes.huge_files, ("postgres",), judged=False)


def _growth_rows(lab: Lab, num_files: int, engines: tuple[str, ...], *, judged: bool = True) -> list[Row]:
    small, large = Spec(lab.sizes.files), Spec(num_files)
    rows = []
    for engine in engines:
        few, many = (lab.catalog(engine, lab.log_of(spec.num_files)) for spec in (small, large))
        calls: dict[str, Callable[[], Any]] = {"open small": few.open, "open large": many.open}
        for keep, pair in _predicates(small, large).items():
            calls[f"{keep} small"] = partial(few.plan, pair[0])
            calls[f"{keep} large"] = partial(many.plan, pair[1])
        timings = _timed(lab, f"{num_files:,} files on {engine}", calls)
        # The scale of DuckDB, which scans a column's bounds, has no bar.
        bar = at_most(3) if judged and engine != "duckdb" else None
        against = f"{lab.sizes.files:,} files"
        rows += [
            _slower(
                timings, f"{what}, {num_files:,} files", engine, f"{what} large", f"{what} small", bar, name=against
            )
            for what in ("open", "plan keeping 1", "plan keeping 100")
        ]
    return rows


def _predicates(small: Spec, large: Spec) -> dict[str, tuple[str, str]]:
    return {
        "plan keeping 1": (small.point_predicate(), large.point_predicate()),
        "plan keeping 100": (small.range_predicate(), large.range_predicate()),
    }


def memory_rows(lab: Lab) -> list[Row]:
    spec = Spec(lab.sizes.large_files)
    rows = []
    for engine in lab.engines:
        catalog = lab.catalog(engine, lab.log_of(spec.num_files))
        prepare = (
            "import deltalakedb as dl\n"
            f"table = dl.connect({catalog.uri!r}).table({catalog.table!r})\n"
            "table.version(), table.schema()"
        )
        call = f"answer = table.plan({spec.range_predicate()!r}).files.num_rows"
        added, kept = peak_memory_mb(prepare, call)
        assert kept == 100, f"the plan kept {kept} files instead of 100"
        what = f"memory of a plan, 100 of {spec.num_files:,}"
        rows.append(Row(what, engine, f"+{added:.1f} MB", "", added, " MB", below(100, " MB"), MEMORY_NOTE))
    return rows


def rewrite_rows(lab: Lab) -> list[Row]:
    spec = Spec(lab.sizes.rewrite_files)
    fresh_log, log = lab.log_of(spec.num_files), lab.log_of_rewrites()
    rows = []
    for engine in lab.engines:
        fresh, old = lab.catalog(engine, fresh_log), lab.catalog(engine, log)
        calls: dict[str, Callable[[], Any]] = {"open fresh": fresh.open, "open old": old.open}
        for keep, (predicate, _) in _predicates(spec, spec).items():
            calls[f"{keep} fresh"] = partial(fresh.plan, predicate)
            calls[f"{keep} old"] = partial(old.plan, predicate)
        timings = _timed(lab, f"{lab.sizes.rewrites} rewrites on {engine}", calls)
        rows += [
            _slower(
                timings, f"{what} after {lab.sizes.rewrites} rewrites", engine, f"{what} old", f"{what} fresh",
                at_most(2), name=f"fresh, {spec.num_files:,} files",
            )
            for what in ("open", "plan keeping 1", "plan keeping 100")
        ]  # fmt: skip
    return rows


def import_rows(lab: Lab) -> list[Row]:
    log = lab.log_of(lab.sizes.files)
    rows = []
    for engine in lab.engines:
        for what, bar, with_bounds in (
            ("import without bounds", at_least(50_000, "/s"), False),
            ("import with bounds", at_least(15_000, "/s"), True),
        ):
            seconds = [_import_seconds(lab, engine, round_, with_bounds) for round_ in range(3)]
            rate = lab.sizes.files / statistics.median(seconds)
            ours = f"{statistics.median(seconds):.2f} s"
            rows.append(Row(what, engine, ours, f"{log.name} checkpoint", rate, " files/s", bar, IMPORT_NOTE))
    return rows


def _import_seconds(lab: Lab, engine: str, round_: int, with_bounds: bool) -> float:
    log = lab.log_of(lab.sizes.files)
    catalog = lab.empty_catalog(engine, f"import_{round_}_{int(with_bounds)}")
    call = catalog.attach if with_bounds else catalog.attach_without_bounds
    what = f"importing on {engine}, {'with' if with_bounds else 'without'} bounds"
    return say(what, lambda: time_once(lambda: call(log))).seconds


def history_rows(lab: Lab) -> list[Row]:
    log = lab.log_of_commits()
    theirs = say("deltalake opens them", lambda: time_once(partial(peers.deltalake_open, str(log))))
    rows = []
    for engine in lab.engines:
        ours = time_in_turns({"": lab.catalog(engine, log).open}, lab.sizes.rounds)[""]
        assert ours.answer == theirs.answer, f"{engine} opens {ours.answer}, deltalake {theirs.answer}"
        timings = {engine: ours, "deltalake": theirs}
        what = f"open, {lab.sizes.commits:,} commits, no checkpoint"
        rows.append(_faster(timings, what, engine, engine, "deltalake", at_least(100)))
    return rows


ROWS: dict[str, Callable[[Lab], list[Row]]] = {
    "open": open_rows,
    "plan": plan_rows,
    "list": list_rows,
    "import": import_rows,
    "history": history_rows,
    "rewrites": rewrite_rows,
    "scale": scale_rows,
    "memory": memory_rows,
    "huge": huge_rows,
}
"""The rows of reading; those of writing are in `commits.py` and `bulk.py`."""


def _timed(lab: Lab, what: str, calls: Mapping[str, Callable[[], Any]]) -> Timings:
    return say(f"timing {what}", lambda: time_in_turns(calls, lab.sizes.rounds))


def _expect(timings: Timings, answer: Any, *names: str) -> None:
    """A fast wrong answer is no result."""
    for name in names:
        assert timings[name].answer == answer, f"{name} answers {timings[name].answer} instead of {answer}"


def _faster(timings: Timings, what: str, engine: str, ours: str, theirs: str, bar: Bar | None, note: str = "") -> Row:
    us, them = timings[ours].median_ms, timings[theirs].median_ms
    against = f"{theirs} {milliseconds(them)}"
    return Row(what, engine, milliseconds(us), against, them / us, "x faster", bar, note)


def _slower(
    timings: Timings, what: str, engine: str, ours: str, theirs: str, bar: Bar | None, note: str = "", name: str = ""
) -> Row:
    us, them = timings[ours].median_ms, timings[theirs].median_ms
    against = f"{name or theirs} {milliseconds(them)}"
    return Row(what, engine, milliseconds(us), against, us / them, "x the time", bar, note)
