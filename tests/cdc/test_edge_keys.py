"""Rows are found again by keys of any type, at their edges, and without a key by all that they have."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from deltalakedb.cdc.captured_table import CapturedTable
from deltalakedb.cdc.settings import CaptureSettings
from tests.cdc import judging
from tests.cdc.capturing import capture_once
from tests.cdc.conftest import Lake, Source
from tests.cdc.exact_values import in_lake, in_source

WHAT: Mapping[str, Any] = {"publication": "p", "slot": "edges", "namespace": "edges"}
LONG = "repeat('long key ', 9)"
KEYS: dict[str, tuple[str, str, str, str, str, str]] = {
    "float8": ("'NaN'", "'Infinity'", "'-Infinity'", "0.1", "5e-324", "-1.7976931348623157e308"),
    "numeric(38, 10)": ("9999999999999999999999999999.9999999999", "-0.0000000001", "0", "1", "0.5", "-1"),
    "numeric": ("'NaN'", "1e100", "1.0", "1.00", "'-Infinity'", "-0.000"),
    "text": (f"{LONG} || '🎈'", f"{LONG} || '🎉'", "''", "'ß'", f"{LONG} || chr(1114111)", "E'a\\tb\\'c'"),
    "bool": ("true", "false", "true", "false", "true", "false"),
    "date": ("'infinity'", "'-infinity'", "'4713-01-01 BC'", "'5874897-12-31'", "'2026-02-28'", "'0001-01-01'"),
    "timestamp": (
        "'infinity'", "'-infinity'", "'0044-03-15 12:00:00.000001 BC'", "'290000-01-01'", "'2026-02-28'", "'epoch'",
    ),
    "timestamptz": (
        "'290000-01-01'", "'4713-01-01 BC'", "'infinity'", "'-infinity'", "'2026-02-28 02:30:00.5+05:30'", "'epoch'",
    ),
    "bytea": ("''", r"'\x00'", r"'\xff'", r"'\xff00'", "decode(repeat('ff', 100), 'hex')", r"'\x5c'"),
    "int4range": ("'empty'", "'(,)'", "'[1,5]'", "'[2,)'", "'[3,4]'", "'(,0)'"),
}  # fmt: skip
"""By type; the first one's row is updated, the second's deleted, the third becomes the fourth, the others stay."""


def test_rows_are_found_again_by_keys_of_any_type(spark: SparkSession, source: Source, lake: Lake) -> None:
    names = [f"k{place}" for place in range(len(KEYS))]
    columns = ", ".join(f"{name} {kind}" for name, kind in zip(names, KEYS, strict=True))
    rows = [", ".join(row) for row in zip(*KEYS.values(), strict=True)]
    source.run(
        f"create table keyed ({columns}, part int, v int, primary key ({', '.join(names)}))",
        *(f"insert into keyed values ({row}, {part}, 0)" for part, row in enumerate(rows) if part != 3),
        "create publication p for table keyed",
    )
    capture_once(lake, source, spark, **WHAT)
    source.run(
        "update keyed set v = 1 where part = 0",
        "delete from keyed where part = 1",
        f"update keyed set ({', '.join(names)}) = row({rows[3]}) where part = 2",
    )
    capture_once(lake, source, spark, **WHAT)
    _check(lake, source)
    source.run("update keyed set v = 2 where part = 2", "delete from keyed where part in (0, 4)")
    capture_once(lake, source, spark, **WHAT)
    _check(lake, source)


def test_rows_without_a_key_are_found_by_all_that_they_have(spark: SparkSession, source: Source, lake: Lake) -> None:
    values = ["float8 'NaN'", "'Infinity'", "'0.1'", "null"]
    days = ["date 'infinity'", "'-infinity'", "'4713-01-01 BC'", "null"]
    moments = ["timestamptz '-infinity'", "'290000-01-01'", "'2026-02-28 02:30:00.5+05:30'", "null"]
    source.run(
        "create table bag (f float8, d date, t timestamptz, tags text[], raw bytea, big text, n numeric, who int)",
        "alter table bag replica identity full",
        "create publication p for table bag",
    )
    for f, d, t in zip(values, days, moments, strict=True):
        for tags, raw in (("'{}'", "''"), ("array['a', null, '']", r"'\x00ff'"), ("null", "null")):
            source.run(
                f"insert into bag select {f}, {d}, {t}, {tags}, {raw}, repeat('large ', 2000), 'NaN', n / 3 "
                "from generate_series(1, 4) n"
            )
    capture_once(lake, source, spark, **WHAT)
    source.run(
        # Of equal rows one is taken, or changed, and the others stay.
        "delete from bag where ctid in (select min(ctid) from bag group by f, d, t, tags, who having count(*) > 1)",
        "update bag set who = 7 where ctid in (select min(ctid) from bag group by f, d, t, tags)",
        "update bag set f = f + 1, d = '2026-01-01' where who = 1",
        "insert into bag select * from bag where f = 'NaN'",
    )
    capture_once(lake, source, spark, **WHAT)
    _check(lake, source)


def _check(lake: Lake, source: Source) -> None:
    """By value: as multisets of rows, in which every float is what it is to the last bit."""
    capture = judging.captured(lake.catalog, CaptureSettings(source.dsn, "p", slot="edges", namespace="edges"))
    with source.connect() as connection:
        for table in capture.tables.values():
            expected = Counter(in_source(connection, table))
            judging.check_equal(Counter(_in_lake(lake, table)), expected, table.current)


def _in_lake(lake: Lake, table: CapturedTable) -> list[tuple[Any, ...]]:
    return list(in_lake(lake.catalog.table(table.current).to_pyarrow_table(), table))
