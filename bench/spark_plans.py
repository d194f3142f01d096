"""Unmodified Spark SQL on tables of the catalog, against plain delta-spark on the same tables in the same run."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count as counting
from typing import Any

from pyspark.sql import SparkSession

from bench.lab import Lab
from bench.measure import Timing
from bench.report import Bar, Row, at_least, below, milliseconds
from bench.spark import FASTER, KEEP, Calls, faster, large_table, ratio, sides, timed
from bench.spark_lab import PLAIN, ROWS_PER_REAL_FILE, SparkLab, spark_lab, spark_with_real_files, wide_rows
from bench.tables import ROWS_PER_FILE, Spec

NO_SLOWER = Bar("<= 1.20x", lambda value: value <= 1.2)
WHOLE_COLD = at_least(2)
DELETE = at_least(3)
FLAT = below(16, " MB")
SMALL_FILES = 10
DELETES = 5
SQL_NOTE = (
    "SQL: `select ... where` by name on the catalog's table and by path on plain Delta, up to the list of files "
    "(`inputFiles()`) in the JVM; each call has another condition, so that no answer is remembered"
)
MEMORY_NOTE = "memory: the driver's heap after a collection, with the table's log open, above what it was without"
DASHBOARD: Mapping[str, str] = {
    "rows": "select count(*) from {t}",
    "bounds": "select min(id), max(id) from {t}",
    "latest": "select * from {t} where id >= {end} - 100 order by id desc limit 20",
    "one": "select * from {t} where id = {mid}",
    "few": "select * from {t} where id in ({mid}, {mid} + 500, {mid} + 90000)",
    "sum of a range": "select sum(price), avg(qty) from {t} where id between {mid} and {mid} + 4000",
    "by day": "select day, count(*), sum(amount) from {t} where id >= {end} - 20000 group by day order by day",
    "days": "select count(distinct day) from {t} where id < 10000",
    "top names": "select name, sum(price) p from {t} where id < 20000 group by name order by p desc, name limit 10",
    "even": "select even, count(*) from {t} where id between {mid} - 2000 and {mid} group by even",
    "hour": "select count(*) from {t} where ts >= timestamp'2026-01-01 00:03:20' and id between 200000 and 209000",
    "amounts": "select max(amount) from {t} where amount between {mid} and {mid} + 1000",
    "preview": "select * from {t} limit 10",
    "page": "select id, name from {t} where id > {mid} order by id limit 50",
    "windows": "select id, sum(qty) over (order by id rows 7 preceding) from {t} where id between 1000 and 3000",
    "self join": "select count(*) from {t} a join {t} b on a.id = b.id + 1 where a.id between {mid} and {mid} + 800",
    "semi join": "select count(*) from {t} where id in (select id * 10 from {t} where id between 100 and 300)",
    "subquery": "select * from {t} where id = (select max(id) from {t} where id < 5000)",
    "union": "select sum(qty) from {t} where id < 900 union all select sum(qty) from {t} where id > {end} - 900",
    "prices": "select round(price / 1000), count(*) from {t} where price < 3000 group by 1 order by 1",
}


def sql_plan_rows(lab: Lab) -> list[Row]:
    """Conditions that keep a few files, a point, and the whole table, of a table whose files need not exist."""
    spark, count = spark_lab(lab), lab.sizes.files
    spark.take_in("large", lab.log_of(count))
    rows = []
    for what, files in ((f"SQL keeping {KEEP}", KEEP), ("SQL keeping one", 1)):
        calls = _by_sql(spark, "large", lambda session, table, where: _files(session, table, where), count, files)
        for how, chosen in _cold_and_warm(spark, calls).items():
            label = f"{what}, {how}, {count:,} files"
            timings = timed(lab, label, chosen)
            rows += [_faster_row(label, engine, timings, FASTER[how], SQL_NOTE) for engine in spark.bridged]
    whole = _by_sql(spark, "large", lambda session, table, _: _files(session, table, "true"), count, KEEP)
    for how, chosen in _cold_and_warm(spark, whole).items():
        label = f"SQL keeping all, {how}, {count:,} files"
        timings = timed(lab, label, chosen, rounds=3)
        for engine in spark.bridged:
            if how == "cold":
                rows.append(_faster_row(label, engine, timings, WHOLE_COLD))
            else:
                rows.append(ratio(label, engine, timings[engine].median_ms, timings[PLAIN].median_ms, NO_SLOWER))
    return rows


def sql_delete_rows(lab: Lab) -> list[Row]:
    """DELETE of one row, with its commit, after Delta has forgotten every table."""
    spark, count = large_table(lab)
    first = max(count // 2 - KEEP // 2, 0) * ROWS_PER_FILE
    calls: Calls = {}
    for side, (session, table) in _tables(spark, "large").items():
        calls[side] = spark.cold(partial(_delete_next, session, table, first, counting()))
    label = f"DELETE of one row, cold, {count:,} files"
    timings = timed(lab, label, calls, rounds=DELETES)
    return [_faster_row(label, engine, timings, DELETE) for engine in spark.bridged]


def _delete_next(session: SparkSession, table: str, first: int, calls: counting[int]) -> None:
    """The next of the files that exist is rewritten without one row."""
    number = next(calls)
    row = first + number % KEEP * ROWS_PER_FILE + number // KEEP
    session.sql(f"delete from {table} where id = {row}").collect()


def sql_memory_rows(lab: Lab) -> list[Row]:
    """What the driver's heap holds of a table after a selective plan."""
    spark, count = spark_lab(lab), lab.sizes.files
    spark.take_in("large", lab.log_of(count))
    where, taken = Spec(count).range_predicate(KEEP), dict[str, float]()
    for side, (session, table) in _tables(spark, "large").items():
        spark.cold(lambda: None)()
        _files(session, table, where)  # classes are loaded and compiled before
        spark.cold(lambda: None)()
        before = _heap_mb(spark)
        _files(session, table, where)
        taken[side] = max(_heap_mb(spark) - before, 0.0)
    label = f"driver's heap after a plan, {count:,} files"
    return [
        Row(label, engine, f"{taken[engine]:,.1f} MB", f"{PLAIN} {taken[PLAIN]:,.1f} MB", taken[engine], " MB", FLAT,
            MEMORY_NOTE)
        for engine in spark.bridged
    ]  # fmt: skip


def _heap_mb(spark: SparkLab) -> float:
    """Collected until nothing more goes."""
    jvm: Any = spark.spark._jvm
    runtime, used = jvm.java.lang.Runtime.getRuntime(), float("inf")
    for _ in range(10):
        gc.collect()  # Python's proxies keep objects of the JVM
        jvm.java.lang.System.gc()
        now = float(runtime.totalMemory() - runtime.freeMemory()) / 2**20
        if used - now < 0.5:
            break
        used = now
        time.sleep(0.2)
    return used


def sql_small_rows(lab: Lab) -> list[Row]:
    """A table of ten files, and the whole of a table of many: nothing is to be gained, and little may be lost."""
    spark, count = spark_with_real_files(lab), lab.sizes.real_files
    source = spark.folder / "small"
    wide_rows(spark.spark, 1_000, files=SMALL_FILES).write.format("delta").save(str(source))
    spark.take_in("small", source)
    queries = {
        f"SQL, {SMALL_FILES} files, where": ("small", "select sum(price) from {t} where id between 200 and 300"),
        f"SQL, {SMALL_FILES} files, whole table": ("small", "select sum(price) from {t}"),
        f"SQL, {count:,} real files, whole table": ("selective", "select sum(price), max(name) from {t}"),
    }
    rows = []
    for what, (name, query) in queries.items():
        calls = sides(spark, name, partial(_collected, query))
        for how, chosen in _cold_and_warm(spark, calls).items():
            timings = timed(lab, f"{what}, {how}", chosen, rounds=5)
            rows += [
                ratio(f"{what}, {how}", engine, timings[engine].median_ms, timings[PLAIN].median_ms, NO_SLOWER)
                for engine in spark.bridged
            ]
    return rows


def sql_dashboard_rows(lab: Lab) -> list[Row]:
    """Twenty queries of a dashboard, one after the other, rows and all."""
    spark, count = spark_with_real_files(lab), lab.sizes.real_files
    end = count * ROWS_PER_REAL_FILE
    medians: dict[str, dict[str, dict[str, float]]] = {"cold": {}, "warm": {}}
    for what, query in DASHBOARD.items():
        filled = query.replace("{end}", str(end)).replace("{mid}", str(end // 2))
        calls = sides(spark, "selective", partial(_collected, filled))
        for how, chosen in _cold_and_warm(spark, calls).items():
            timings = timed(lab, f"dashboard, {what}, {how}", chosen, rounds=3)
            medians[how][what] = {side: timing.median_ms for side, timing in timings.items()}
    rows = []
    for how, queries in medians.items():
        for engine in spark.bridged:
            ours, theirs = (sum(each[side] for each in queries.values()) for side in (engine, PLAIN))
            best = statistics.median(each[PLAIN] / each[engine] for each in queries.values())
            label = f"{len(DASHBOARD)} dashboard queries, {how}, {count:,} files"
            against = f"{PLAIN} {milliseconds(theirs)}"
            rows.append(Row(label, engine, milliseconds(ours), against, theirs / ours, "x", None))
            rows.append(Row(f"{label}: median of ratios", engine, "", PLAIN, best, "x", None))
    return rows


def _collected(query: str, session: SparkSession, _: str, table: str) -> None:
    session.sql(query.replace("{t}", table)).collect()


def _files(session: SparkSession, table: str, where: str) -> int:
    """How many files are kept. The list stays in the JVM: py4j would fetch each name by itself, which takes seconds."""
    frame: Any = session.sql(f"select id, name from {table} where {where}")
    return len(frame._jdf.inputFiles())


def _tables(spark: SparkLab, name: str) -> dict[str, tuple[SparkSession, str]]:
    found = {PLAIN: (spark.spark, f"delta.`{spark.plain(name)}`")}
    return found | {engine: (side.spark, side.name(name)) for engine, side in spark.bridged.items()}


def _by_sql(spark: SparkLab, name: str, ask: Callable[[SparkSession, str, str], int], count: int, files: int) -> Calls:
    """Each call asks for the files a little further on."""
    calls: Calls = {}
    for side, (session, table) in _tables(spark, name).items():
        starts = counting(count // 3)

        def call(session: SparkSession = session, table: str = table, starts: counting[int] = starts) -> int:
            first = next(starts) % (count - files) * ROWS_PER_FILE
            return ask(session, table, f"id >= {first} and id < {first + files * ROWS_PER_FILE}")

        calls[side] = call
    return calls


def _cold_and_warm(spark: SparkLab, calls: Calls) -> dict[str, Calls]:
    return {"cold": {side: spark.cold(call) for side, call in calls.items()}, "warm": calls}


def _faster_row(what: str, engine: str, timings: Mapping[str, Timing], bar: Bar, note: str = "") -> Row:
    row = faster(what, engine, timings[engine], timings[PLAIN], bar)
    return Row(row.what, row.engine, row.ours, row.against, row.value, row.unit, row.bar, note)


ROWS: dict[str, Callable[[Lab], list[Row]]] = {
    "sql-plan": sql_plan_rows,
    "sql-delete": sql_delete_rows,
    "sql-memory": sql_memory_rows,
    "sql-small": sql_small_rows,
    "sql-dashboard": sql_dashboard_rows,
}
