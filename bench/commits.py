"""The rows of the write path: many writers at once, one alone, and how far the mirror is behind."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

from deltalake import DeltaTable, write_deltalake

import deltalakedb as dl
from bench import peers
from bench.crowd import Crowd, percentile, run_crowd
from bench.lab import Lab, say
from bench.report import Bar, Row, at_least, at_most, below, milliseconds
from bench.writers import ROWS_PER_COMMIT, Job, Ours, sample
from deltalakedb.mirror.reconciler import Reconciler
from deltalakedb.store.dialects.duckdb_instance import instance

CROWD_NOTE = (
    "writers are processes, all committing as fast as they can, each keeping its catalog open; a commit appends "
    f"{ROWS_PER_COMMIT} rows in a Parquet file of its own, ours with the mirror in line; DuckLake with inlining off; "
    "times are those the callers waited"
)
ACTIONS_NOTE = (
    "without data files: `commit_actions` with an add and its statistics, mirror in the background; DuckLake: one row, "
    "inlined into its catalog"
)
ALONE_NOTE = (
    f"one writer, {ROWS_PER_COMMIT} rows a commit, in turns with DuckLake, both in a process that has done so before; "
    "on DuckDB both connect, commit and close (DuckLake: attach, insert, detach), with a DuckDB instance running, "
    "DuckLake's with its extension loaded; *from nothing*: both start that instance too, DuckLake loads its extension"
)
LAG_NOTE = "mirror lag: from the commit's time in SQL to the time its JSON got its name, four writers on four tables"
TURNS = 2
FROM_NOTHING = ", from nothing"


def crowd_rows(lab: Lab) -> list[Row]:
    """A writer on each of many tables. On Postgres alone: DuckLake's SQLite loses writers, its DuckDB lets one in."""
    if "postgres" not in lab.engines:
        return []
    what = f"{lab.sizes.writers} writers, {lab.sizes.writers} tables"
    ours, theirs = _against_ducklake(lab, "ours", "ducklake", "inline")
    bare, inlined = _against_ducklake(lab, "ours, actions", "ducklake, inlined", "background")
    return [
        _more(what, ours, theirs, "DuckLake", at_least(5), CROWD_NOTE),
        _sooner(what, ours, theirs, "DuckLake", at_least(5)),
        _more(f"{what}, no data files", bare, inlined, "DuckLake inlined", at_least(10), ACTIONS_NOTE),
        _sooner(f"{what}, no data files", bare, inlined, "DuckLake inlined", None),
        _more(f"{what}, no data files", bare, theirs, "DuckLake with data files", None),
    ]


def _more(what: str, ours: Crowd, theirs: Crowd, name: str, bar: Bar | None, note: str = "") -> Row:
    rate = ours.per_second / theirs.per_second
    return Row(what, "postgres", ours.text, f"{name} {theirs.text}", rate, "x as many", bar, note)


def _sooner(what: str, ours: Crowd, theirs: Crowd, name: str, bar: Bar | None) -> Row:
    against = f"{name} {milliseconds(theirs.p95_ms)}"
    return Row(
        f"{what}, p95", "postgres", milliseconds(ours.p95_ms), against, theirs.p95_ms / ours.p95_ms, "x faster", bar
    )


def _against_ducklake(lab: Lab, kind: str, their_kind: str, mirror: str) -> tuple[Crowd, Crowd]:
    """Both systems in turns, on tables that are there already."""
    tables = [f"t{number:02}" for number in range(lab.sizes.writers)]
    inlined = their_kind == "ducklake, inlined"
    engine, folder = "postgres", lab.folder / f"crowd_{kind.split(', ')[-1]}"
    uri = _new_tables(lab, engine, folder / "ours", tables)
    lake = peers.new_lake(engine, folder / "lake", lab.postgres, tables, inlined=inlined)
    ours, theirs = [], []
    seconds = lab.sizes.seconds / TURNS
    for _ in range(TURNS):
        jobs = [Job(kind, uri, f"bench.{table}", seconds, mirror=mirror) for table in tables]
        ours.append(say(f"{len(jobs)} writers on {engine}: {kind}", partial(run_crowd, jobs)))
        jobs = [Job(their_kind, f"{engine}|{lake.target}", table, seconds, lake.data_path) for table in tables]
        theirs.append(say(f"{len(jobs)} writers on {engine}: {their_kind}", partial(run_crowd, jobs)))
    all_ours = Crowd.together(ours)
    _expect_all(uri, [f"bench.{table}" for table in tables], all_ours)
    return all_ours, Crowd.together(theirs)


def one_table_rows(lab: Lab) -> list[Row]:
    """All writers on one table: none lost, none shown an error."""
    seconds, writers = lab.sizes.seconds / TURNS, lab.sizes.writers
    log = lab.folder / "one_table" / "deltalake"
    write_deltalake(log, sample(), mode="append")
    crowds: dict[str, list[Crowd]] = {engine: [] for engine in ("deltalake", *lab.engines)}
    uris = {engine: _new_tables(lab, engine, lab.folder / "one_table" / engine, ["t"]) for engine in lab.engines}
    for _ in range(TURNS):
        for name, taken in crowds.items():
            kind, target = ("ours", uris[name]) if name in uris else ("deltalake", str(log))
            jobs = [Job(kind, target, "bench.t", seconds)] * writers
            taken.append(say(f"{writers} writers on one table: {name}", partial(run_crowd, jobs)))
    theirs = Crowd.together(crowds["deltalake"])
    rows = []
    for engine, uri in uris.items():
        ours = Crowd.together(crowds[engine])
        _expect_all(uri, ["bench.t"], ours)
        bar = at_least(3) if engine != "duckdb" else None
        what, against = f"{writers} writers, one table, none lost", f"deltalake {theirs.text}"
        rows.append(Row(what, engine, ours.text, against, ours.per_second / theirs.per_second, "x as many", bar))
    return rows


def _new_tables(lab: Lab, engine: str, folder: Path, tables: Sequence[str]) -> str:
    """A catalog with empty tables of the sample's columns; its URI."""
    catalog_at = lab.empty_catalog(engine, "_".join(folder.parts[-2:]))
    with dl.connect(catalog_at.uri) as catalog, catalog.begin() as tx:
        for table in tables:
            tx.create_table(f"bench.{table}", sample().schema, location=folder / table)
    return catalog_at.uri


def _expect_all(uri: str, tables: Sequence[str], crowd: Crowd) -> None:
    """A fast commit that is lost, or not mirrored, is no result."""
    assert not crowd.failed, f"{crowd.failed} commits failed: {crowd.errors[:1]}"
    with dl.connect(uri) as catalog:
        infos = {info.full_name: info for info in catalog.table_infos()}
        versions = {table: infos[table].version or 0 for table in tables}
        locations = {table: Path(infos[table].location.removeprefix("file://")) for table in tables}
        with Reconciler(catalog.store, config=catalog.config, options_of=catalog.storage_options_of) as reconciler:
            reconciler.once()  # what writers in the background had no time for when they left
    made = crowd.commits + crowd.writers
    assert sum(versions.values()) == made, f"{made} commits, versions {versions}"
    for table, version in versions.items():
        assert DeltaTable(locations[table]).version() == version, f"the mirror of {table} is not at {version}"


def alone_rows(lab: Lab) -> list[Row]:
    """One small commit at a time, in turns with DuckLake."""
    rows = []
    for engine in lab.engines:
        folder = lab.folder / f"alone_{engine}"
        uri = _new_tables(lab, engine, folder / "ours", ["t"])
        lake = peers.new_lake(engine, folder / "lake", lab.postgres, ["t"])
        with ExitStack() as stack:
            calls = (_connecting if engine == "duckdb" else _staying)(uri, lake, stack)
            timings = say(f"single commits on {engine}", partial(_in_turns, calls, lab.sizes.single_commits))
        for how in ("", FROM_NOTHING):
            if f"ours{how}" not in timings:
                continue
            mine, taken = timings[f"ours{how}"], timings[f"DuckLake{how}"]
            ours, theirs = statistics.median(mine), statistics.median(taken)
            shown = f"{milliseconds(ours)}, p95 {milliseconds(percentile(mine, 95))}"
            against = f"DuckLake{how} {milliseconds(theirs)}, p95 {milliseconds(percentile(taken, 95))}"
            what = f"a single commit{how}"
            rows.append(Row(what, engine, shown, against, ours / theirs, "x the time", at_most(1), ALONE_NOTE))
    return rows


def _staying(uri: str, lake: peers.DuckLake, stack: ExitStack) -> dict[str, Callable[[], None]]:
    """Both keep their catalog open from commit to commit."""
    writer = stack.enter_context(closing(Ours(Job("ours", uri, "bench.t", 0))))
    session = stack.enter_context(closing(peers.DuckLakeSession(lake)))
    session.connection.execute(lake.attach_statement)
    session.connection.register("data", sample())

    def theirs() -> None:
        session.connection.execute("insert into lake.t select * from data")

    return {"ours": writer.commit, "DuckLake": theirs}


def _connecting(uri: str, lake: peers.DuckLake, stack: ExitStack) -> dict[str, Callable[[], None]]:
    """DuckDB lets one process in at a time, so both come, commit and go."""
    data = sample()
    session = stack.enter_context(closing(peers.DuckLakeSession(lake)))
    session.connection.register("data", data)

    def ours() -> None:
        with closing(Ours(Job("ours", uri, "bench.t", 0))) as writer:
            writer.commit()

    def theirs() -> None:
        session.insert("t")

    def ours_from_nothing() -> None:
        instance.hold()
        instance.go_on()
        ours()

    def theirs_from_nothing() -> None:
        with closing(peers.DuckLakeSession(lake)) as fresh:
            fresh.connection.register("data", data)
            fresh.insert("t")

    return {
        "ours": ours,
        "DuckLake": theirs,
        f"ours{FROM_NOTHING}": ours_from_nothing,
        f"DuckLake{FROM_NOTHING}": theirs_from_nothing,
    }


def _in_turns(calls: dict[str, Callable[[], None]], rounds: int) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for round_ in range(-5, rounds):  # the first five warm up
        for name, call in calls.items():
            begin = time.perf_counter()
            call()
            if round_ >= 0:
                taken[name].append((time.perf_counter() - begin) * 1000)
    return taken


def lag_rows(lab: Lab, per_second: int = 50, writers: int = 4) -> list[Row]:
    rows = []
    for engine in lab.engines:
        for mirror in ("inline", "background"):
            folder = lab.folder / f"lag_{engine}_{mirror}"
            tables = [f"t{number}" for number in range(writers)]
            uri = _new_tables(lab, engine, folder / "ours", tables)
            pause = writers / per_second
            jobs = [
                Job("ours", uri, f"bench.{table}", lab.sizes.seconds, mirror=mirror, pause_seconds=pause)
                for table in tables
            ]
            crowd = say(f"{per_second} commits/s on {engine}, mirror {mirror}", partial(run_crowd, jobs))
            _expect_all(uri, [f"bench.{table}" for table in tables], crowd)
            lags = [lag for table in tables for lag in _lags_ms(folder / "ours" / table)]
            what = f"mirror lag at {per_second} commits/s, {mirror}"
            shown = f"p50 {milliseconds(statistics.median(lags))}, p95 {milliseconds(percentile(lags, 95))}"
            reached = f"{crowd.per_second:.0f} commits/s"
            bar = below(1000, " ms") if engine != "duckdb" else None
            rows.append(Row(what, engine, shown, reached, percentile(lags, 95), " ms", bar, LAG_NOTE))
    return rows


def _lags_ms(table: Path) -> list[float]:
    """A commit's JSON has the commit's time as its mtime; its ctime is when it got its name."""
    stats = [file.stat() for file in sorted((table / "_delta_log").glob("*.json"))[1:]]
    return [max(0.0, (stat.st_ctime_ns - stat.st_mtime_ns) / 1e6) for stat in stats]
