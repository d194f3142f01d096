"""Spark through the bridge and by the pure functions, against plain delta-spark on the same tables in the same run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import deltalakedb.spark as dls
from bench.lab import Lab, say
from bench.measure import Timing, time_in_turns
from bench.report import Bar, Row, at_least, milliseconds
from bench.spark_lab import PLAIN, ROWS_PER_REAL_FILE, Bridged, SparkLab, spark_lab, spark_with_real_files, wide_rows
from bench.tables import Spec, write_kept_files
from tests.spark.stage import Kind, Stage, play
from tests.spark.statements import KINDS

Calls = dict[str, Callable[[], Any]]

BRIDGE = Bar("<= 1.50x", lambda value: value <= 1.5)
PURE = Bar("<= 1.10x", lambda value: value <= 1.1)
SUM = Bar("<= 1.10x", lambda value: value <= 1.1)
FASTER = {"cold": at_least(20), "warm": at_least(5)}
KEEP = 20
COLD_NOTE = (
    "cold: Delta's cache of logs is empty (`DeltaLog.clearCache()`), the JVM is warm; `read_table` asks the catalog "
    "each time and keeps no log, so it is the same call in both rows"
)
PLAN_NOTE = (
    "plan: a selective `where`, up to the list of files to read (`inputFiles()`), which is the same on all sides"
)
STATEMENT_NOTE = (
    "statements: by name through the bridge, by path on plain Delta; each on a small table of its own, what comes "
    "before is not timed; the list is that of `tests/spark/statements.py`"
)


def statement_rows(lab: Lab) -> list[Row]:
    """Every kind of statement, each round on fresh tables; the first round warms the JVM up."""
    spark = spark_lab(lab)
    taken: dict[str, dict[str, list[float]]] = {kind.name: {} for kind in KINDS}
    for number in range(lab.sizes.statement_rounds + 1):
        for kind in KINDS:
            for side, seconds in _statement_round(spark, kind, number).items():
                if number:
                    taken[kind.name].setdefault(side, []).append(seconds)
    medians = {
        kind: {side: statistics.median(values) * 1000 for side, values in sides.items()}
        for kind, sides in taken.items()
    }
    rows = []
    for engine in spark.bridged:
        each = [
            ratio(f"statement {kind}", engine, medians[kind][engine], medians[kind][PLAIN], BRIDGE, STATEMENT_NOTE)
            for kind in medians
        ]
        total = {side: sum(sides[side] for sides in medians.values()) for side in (engine, PLAIN)}
        rows += [ratio("statements, sum of medians", engine, total[engine], total[PLAIN], SUM), *each]
    return rows


def _statement_round(lab: SparkLab, kind: Kind, number: int) -> dict[str, float]:
    """Seconds of one kind on each side; who comes first changes from round to round."""
    table = f"{kind.name}_{number}"
    stages = {
        PLAIN: Stage(lab.spark, f"delta.`{lab.plain(table)}`", str(lab.plain(table)), _scratch(lab, PLAIN, table))
    }
    for engine, bridged in lab.bridged.items():
        path = f"dldb:///file{bridged.warehouse}/statements/{table}"
        stages[engine] = Stage(bridged.spark, f"statements.{table}", path, _scratch(lab, engine, table))
    seconds, order = {}, list(stages)
    first = number % len(order)
    for side in order[first:] + order[:first]:
        play(stages[side], kind.before)
        begin = time.perf_counter()
        play(stages[side], kind.statements)
        seconds[side] = time.perf_counter() - begin
    return seconds


def _scratch(lab: SparkLab, side: str, table: str) -> Path:
    folder = lab.folder / "scratch" / side / table
    folder.mkdir(parents=True)
    return folder


def large_table(lab: Lab) -> tuple[SparkLab, int]:
    """A table of which only the files that a plan keeps exist, and how many its log has."""
    spark, count = spark_lab(lab), lab.sizes.files
    spark.take_in("large", lab.log_of(count))
    for folder in spark.folders("large"):
        write_kept_files(folder, Spec(count), KEEP)
    return spark, count


def large_table_rows(lab: Lab) -> list[Row]:
    """The large table, opened, planned and appended to."""
    spark, count = large_table(lab)
    predicate = Spec(count).range_predicate(KEEP)
    steps: dict[str, Callable[[SparkSession, str, str], Any]] = {
        "open": lambda session, path, _: len(load(session, path).schema),
        f"plan keeping {KEEP}": lambda session, path, _: len(load(session, path).where(predicate).inputFiles()),
        "small append": lambda session, _, table: session.sql(f"insert into {table} (id) values (-1)").collect(),
    }
    rows = []
    for what, step in steps.items():
        calls = sides(spark, "large", step)
        for how, chosen in (("cold", {side: spark.cold(call) for side, call in calls.items()}), ("warm", calls)):
            pure = _pure_plans(spark, "large", predicate) if what.startswith("plan") else {}
            timings = timed(lab, f"{what}, {how}, {count:,} files", chosen | pure)
            rows += _against_plain(spark, timings, f"{what}, {how}, {count:,} files", COLD_NOTE)
            if pure:
                rows += _pure_rows(spark, timings, f"{what}, {how}, {count:,} files", how)
    return rows


def selective_read_rows(lab: Lab) -> list[Row]:
    """Real files of which a predicate keeps a few: the plan, and a sum over them."""
    spark, count = spark_with_real_files(lab), lab.sizes.real_files
    first = count // 2 * ROWS_PER_REAL_FILE
    predicate = f"id >= {first} and id < {first + KEEP * ROWS_PER_REAL_FILE}"
    plan = sides(spark, "selective", lambda session, path, _: len(load(session, path).where(predicate).inputFiles()))
    pure = _pure_plans(spark, "selective", predicate)
    cold = timed(lab, "plan, cold", {side: spark.cold(call) for side, call in plan.items()} | pure)
    warm = timed(lab, "plan, warm", plan | pure)
    rows = []
    for how, timings in (("cold", cold), ("warm", warm)):
        what = f"plan keeping {KEEP} of {count:,} real files, {how}"
        rows += [*_against_plain(spark, timings, what, PLAN_NOTE), *_pure_rows(spark, timings, what, how)]
    total = "sum(price)"
    whole = sides(spark, "selective", lambda s, path, _: load(s, path).where(predicate).selectExpr(total).collect())
    whole |= {f"read_table {engine}": partial(_summed, side, predicate) for engine, side in spark.bridged.items()}
    timings = timed(lab, "selective sum", whole)
    for engine in spark.bridged:
        for side in (engine, f"read_table {engine}"):
            what = "selective sum, warm" + (": read_table" if side != engine else "")
            rows.append(faster(what, engine, timings[side], timings[PLAIN], None))
    return rows


def _pure_plans(spark: SparkLab, table: str, predicate: str) -> Calls:
    return {f"read_table {engine}": partial(_planned, side, table, predicate) for engine, side in spark.bridged.items()}


def _planned(side: Bridged, table: str, predicate: str) -> int:
    return len(dls.read_table(side.spark, side.name(table), where=predicate, catalog=side.catalog).inputFiles())


def _pure_rows(spark: SparkLab, timings: Mapping[str, Timing], what: str, how: str) -> list[Row]:
    return [
        faster(f"{what}: read_table", engine, timings[f"read_table {engine}"], timings[PLAIN], FASTER[how])
        for engine in spark.bridged
    ]


def _summed(side: Bridged, predicate: str) -> Any:
    frame = dls.read_table(side.spark, side.name("selective"), where=predicate, catalog=side.catalog)
    return frame.selectExpr("sum(price)").collect()


def append_rows(lab: Lab) -> list[Row]:
    """Many rows in one append: through the bridge, by write_table, and by plain Delta."""
    spark, count = spark_lab(lab), lab.sizes.spark_rows
    frame = wide_rows(spark.spark, count)
    frame.limit(0).write.format("delta").save(str(spark.plain("appended")))
    calls: Calls = {PLAIN: lambda: frame.write.format("delta").mode("append").save(str(spark.plain("appended")))}
    for engine, side in spark.bridged.items():
        own = wide_rows(side.spark, count)
        own.limit(0).write.format("delta").saveAsTable(side.name("appended"))
        calls[engine] = partial(_append, own, side.path("appended"))
        calls[f"write_table {engine}"] = partial(dls.write_table, own, side.name("pure"), catalog=side.catalog)
    timings = timed(lab, f"append of {count:,} rows", calls, rounds=5)
    rows = _against_plain(spark, timings, f"append of {count:,} rows x 8 columns")
    for engine in spark.bridged:
        ours, theirs = timings[f"write_table {engine}"], timings[PLAIN]
        what = f"append of {count:,} rows x 8 columns: write_table"
        rows.append(ratio(what, engine, ours.median_ms, theirs.median_ms, PURE))
    return rows


def _append(frame: Any, path: str) -> None:
    frame.write.format("delta").mode("append").save(path)


def merge_rows(lab: Lab) -> list[Row]:
    """One row in forty is changed, and as many are new; every round merges other ones."""
    spark, count = spark_lab(lab), lab.sizes.spark_rows
    changed = max(count // 40, 1)
    wide_rows(spark.spark, count).write.format("delta").save(str(spark.plain("merged")))
    calls: Calls = {PLAIN: _Merge(spark.spark, f"delta.`{spark.plain('merged')}`", count, changed)}
    for engine, side in spark.bridged.items():
        wide_rows(side.spark, count).write.format("delta").saveAsTable(side.name("merged"))
        calls[engine] = _Merge(side.spark, side.name("merged"), count, changed)
    timings = timed(lab, f"MERGE into {count:,} rows", calls, rounds=3)
    return _against_plain(spark, timings, f"MERGE of {2 * changed:,} into {count:,} rows")


class _Merge:
    """MERGE of rows around the end of the table, a little further each time."""

    def __init__(self, spark: SparkSession, table: str, count: int, changed: int) -> None:
        self._spark, self._table, self._count, self._changed = spark, table, count, changed

    def __call__(self) -> None:
        wide_rows(self._spark, 2 * self._changed, self._count - self._changed).createOrReplaceTempView("changes")
        self._spark.sql(
            f"merge into {self._table} t using changes s on t.id = s.id "
            "when matched then update set * when not matched then insert *"
        ).collect()
        self._count += self._changed


def load(spark: SparkSession, path: str) -> Any:
    return spark.read.format("delta").load(path)


def sides(spark: SparkLab, table: str, step: Callable[[SparkSession, str, str], Any]) -> Calls:
    """The same step on plain Delta and through each bridge: session, path, and the table in SQL."""
    plain = str(spark.plain(table))
    calls: Calls = {PLAIN: partial(step, spark.spark, plain, f"delta.`{plain}`")}
    for engine, side in spark.bridged.items():
        calls[engine] = partial(step, side.spark, side.path(table), side.name(table))
    return calls


def timed(lab: Lab, what: str, calls: Calls, rounds: int | None = None) -> dict[str, Timing]:
    chosen = min(lab.sizes.rounds, rounds or lab.sizes.rounds)
    timings = say(what, lambda: time_in_turns(calls, chosen, budget_seconds=60))
    answers = {side: timing.answer for side, timing in timings.items() if isinstance(timing.answer, int)}
    assert len(set(answers.values())) <= 1, f"{what}: the sides differ: {answers}"
    return timings


def _against_plain(spark: SparkLab, timings: Mapping[str, Timing], what: str, note: str = "") -> list[Row]:
    theirs = timings[PLAIN].median_ms
    return [ratio(what, engine, timings[engine].median_ms, theirs, BRIDGE, note) for engine in spark.bridged]


def ratio(what: str, engine: str, ours: float, theirs: float, bar: Bar, note: str = "") -> Row:
    against = f"{PLAIN} {milliseconds(theirs)}"
    return Row(what, engine, milliseconds(ours), against, ours / theirs, "x", bar, note)


def faster(what: str, engine: str, ours: Timing, theirs: Timing, bar: Bar | None) -> Row:
    against = f"{PLAIN} {milliseconds(theirs.median_ms)}"
    return Row(what, engine, milliseconds(ours.median_ms), against, theirs.median_ms / ours.median_ms, "x", bar)


ROWS: dict[str, Callable[[Lab], list[Row]]] = {
    "statements": statement_rows,
    "large-table": large_table_rows,
    "selective-read": selective_read_rows,
    "append": append_rows,
    "merge": merge_rows,
}
