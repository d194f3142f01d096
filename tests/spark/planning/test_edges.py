"""Conditions at the edges of types, names and statistics are planned, and find the rows that plain Delta finds."""

import shutil
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

import deltalakedb.spark as dls
from tests.spark.compare import rows_of_all
from tests.spark.planning.twins import new_twins, setting, written
from tests.spark.shop import Shop

pytestmark = pytest.mark.spark

STATEMENTS: Final = (
    "create table {t} (Id int, Part string, Day date, s struct<A: int, b: string>, txt string, f float, tn date) "
    "using delta partitioned by (Part) tblproperties ('delta.enableTypeWidening' = 'true', "
    "'delta.feature.timestampNtz' = 'supported')",
    "insert into {t} values "
    "(1, 'a', date'0001-01-01', named_struct('A', 1, 'b', null), repeat('x', 31) || '😀😀', 0.1, date'2026-01-01'), "
    "(2, 'a', date'1582-10-04', null, repeat('x', 40), float('-0.0'), date'2026-01-02')",
    "insert into {t} values "
    "(3, 'b', date'9999-12-31', named_struct('A', null, 'b', 'q'), repeat('é', 40), float('NaN'), null)",
    "insert into {t} values (4, null, null, named_struct('A', 7, 'b', 'z'), '', 16777217, date'1969-12-31')",
    "alter table {t} alter column f type double",
    "alter table {t} alter column tn type timestamp_ntz",
    "alter table {t} alter column Id type bigint",
    "insert into {t} values (3000000000, 'A', date'2026-01-01', named_struct('A', 2, 'b', 'Q'), repeat('😀', 20), "
    "0.1, timestamp_ntz'2026-01-02 12:00:00')",
)
CONDITIONS: Final = (
    # names
    "PART = 'a'", "part = 'a' and ID = 2", "s.a = 1", "S.B is null",
    # structs and nulls
    "s.b is not null and s.a is null", "s is null", "s.a <=> null", "part <=> null", "part is null",
    "id not in (1, null)", "part not in ('a', null)", "part in ('a', 'A', null)",
    # texts that statistics cut, also within a character
    "txt > repeat('x', 32)", "txt >= repeat('x', 31) || '😀'", "txt like repeat('x', 31) || '😀%'",
    "txt = repeat('x', 40)", "txt < 'a'", "txt >= '😀'", "txt = 'a\\0b'", "txt collate utf8_lcase = repeat('X', 40)",
    # columns of another type when the file was written
    "f = 0.1D", "f = 0", "f < 0", "f >= 16777216", "f <=> double('NaN')", "not f > 5",
    "tn = '2026-01-01'", "tn > '2026-01-01 12:00:00'",
    "tn <= timestamp_ntz'1969-12-31 00:00:00'", "id in (2147483648, 3000000000)", "id > 2147483647",
    "id = 2.0", "id = '3'", "cast(id as string) = '3'",
    # values that no file can have, and long lists
    "day < date'9999-12-31' + 1", "day > date'0001-01-01' - 400", "day <> date'9999-12-31' + 1",
    "day in (date'9999-12-31' + 1, date'1582-10-04')", "day <= date'1582-10-10'",
    " or ".join(f"id = {number}" for number in range(3, 303)), f"id in ({', '.join(map(str, range(2, 1502)))})",
)  # fmt: skip

WIDENED: Final = ("f = float('0.1')", "f > 0.1D", "f between 0.1000000001D and 0.11D")
"""Delta loses rows of files whose statistics are in single precision: float('0.1') is above 0.1 as a double."""


def test_conditions_at_the_edges_are_planned_and_find_the_same_rows(shop: Shop, tmp_path: Path) -> None:
    twins = new_twins(shop, tmp_path, written(*STATEMENTS))
    before = dls.planned_scans(shop.spark)
    rows = twins.check_rows(f"select * from {{t}} where {condition}" for condition in CONDITIONS)
    older = ("f = 0.1D", "tn = '2026-01-01'", "txt > repeat('x', 32)")
    twins.check_rows(f"select * from {{t}} version as of 3 where {condition}" for condition in older)
    assert sum(found.total() > 0 for found in rows.values()) > len(CONDITIONS) // 2
    assert dls.planned_scans(shop.spark).fallbacks == before.fallbacks
    with setting(shop.spark, spark_databricks_delta_stats_skipping="false"):
        theirs = rows_of_all({text: twins.ask(f"select * from {{t}} where {text}")[0] for text in WIDENED})
    assert rows_of_all({text: twins.ask(f"select * from {{t}} where {text}")[1] for text in WIDENED}) == theirs
    assert all(found.total() for found in theirs.values())
    plain_files, files = twins.planned("PART = 'a' and ID = 2")
    assert len(files) == len(plain_files) == 1


def test_a_session_that_holds_a_table_sees_what_others_make_of_it(shop: Shop, tmp_path: Path) -> None:
    name, spark = shop.name("held"), shop.spark
    query = f"select * from {name} where id between 2 and 11 order by id"
    for column in ("first", "second"):
        with shop.catalog.begin() as tx:
            tx.create_table(name, f"id long, {column} long", location=str(tmp_path / "held"))
            tx.write(name, pa.table({"id": [1, 2], column: [7, 7]}), mode="append")
        frame = spark.sql(query)
        assert [row.asDict() for row in frame.collect()] == [{"id": 2, column: 7}]
        with shop.catalog.begin() as tx:
            tx.write(name, pa.table({"id": [10, 20], column: [8, 8]}), mode="append")
        assert [row.id for row in spark.sql(query).collect()] == [2, 10]
        spark.newSession().sql(f"delete from {name} where id = 2")
        assert [row.id for row in spark.sql(query).collect()] == [10]
        assert spark.sql(f"select count(*), max(id) from {name}").collect() == [(3, 20)]
        shop.catalog.drop_table(name)
        shutil.rmtree(tmp_path / "held")
