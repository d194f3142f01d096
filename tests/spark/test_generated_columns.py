"""Generated columns hold the values that Spark computes for them."""

from __future__ import annotations

import json
import re
import uuid
from datetime import UTC, date, datetime
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import deltalakedb as dl

ROWS = pa.table(
    {
        "i": pa.array([0, 7, -7, 12345, None], pa.int64()),
        "n": pa.array([3, 2, 5, 4, 1], pa.int32()),
        "f": pa.array([0.0, 1.5, -2.5, 1e6 + 0.25, None], pa.float64()),
        "s": ["", "Ann Lee,Bob", "a,b,,c", "2024-02-29", None],
        "d": [date(2024, 2, 29), date(1970, 1, 1), date(1969, 12, 28), date(2023, 1, 1), None],
        "t": pa.array(
            [
                datetime(2024, 2, 29, 13, 5, 9, 123456, UTC),
                datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
                datetime(2000, 1, 1, tzinfo=UTC),
                datetime(2023, 12, 31, 0, 7, 1, tzinfo=UTC),
                None,
            ],
            pa.timestamp("us", "UTC"),
        ),
    }
)
EXPRESSIONS = """
trunc(d, 'YEAR') | trunc(d, 'yy') | trunc(t, 'MM') | trunc(d, 'quarter') | trunc(d, 'week') | date_trunc('MON', t)
date_trunc('week', t) | date_trunc('DD', t) | date_trunc('hour', t) | date_trunc('SECOND', t)
year(d) | year(t) | quarter(d) | month(t) | day(t) | dayofmonth(d) | dayofyear(d) | dayofweek(d) | weekday(t)
weekofyear(d) | hour(t) | minute(t) | second(t) | extract(month from t) | date_part('year', d)
date_format(t, 'yyyy-MM') | date_format(d, 'yyyy/MM/dd') | date_format(t, "yyyy-MM-dd'T'HH:mm:ss.SSS") |
date_format(t, 'E d MMM yy h a') | cast(t as date) | to_date(t) | date(t) | date_add(d, 3) | date_sub(d, n)
datediff(t, d) | add_months(d, 1) | add_months(d, -12) | last_day(d) | make_date(2024, n, 3)
unix_timestamp(t) | to_unix_timestamp(t) | from_unixtime(i) | timestamp_seconds(i)
abs(i) | pmod(i, 5) | pmod(i, -5) | i % 5 | i div 5 | negative(i) | shiftleft(i, 2) | shiftright(i, 1)
bround(f) | rint(f)
round(f) | round(f, 1) | ceil(f) | floor(f) | sign(f) | hypot(f, 2) | nanvl(f, 1) | int(f) | cast(f as bigint)
cast(f * 2 as int) | greatest(i, n) | least(i, 0) | hex(i) | bin(n) | power(n, 2)
substring(s, 1, 3) | substr(s, 2) | left(s, 2) | right(s, 2) | substring_index(s, ',', 1) | substring_index(s, ',', -2)
split(s, ',')[0] | element_at(split(s, '[, ]'), 1) | size(split(s, ',')) | upper(s) | lcase(s) | trim(s) | length(s)
char_length(s) | octet_length(s) | concat_ws('-', s, 'x') | s || '!' | lpad(s, 12, '-') | rpad(s, 3, '-') | repeat(s, 2)
replace(s, ',', ';') | translate(s, ',e', ';') | instr(s, 'b') | locate('b', s) | find_in_set('b', s)
ascii(s) | reverse(s) | md5(s) | sha1(s) | sha(s) | sha2(s, 256) | levenshtein(s, 'abc') | space(n)
regexp_extract(s, '([a-z]+)', 1) | regexp_extract(s, '(n+)') | s rlike 'a,' | startswith(s, 'A') | endswith(s, 'c')
contains(s, 'b') | encode(s, 'UTF-8') | decode(encode(s, 'utf-8'), 'utf-8') | unbase64('QUI=')
isnull(s) | isnotnull(s) | nvl(s, 'none') | nvl2(s, 1, 2) | coalesce(s, 'none') | ifnull(i, 0) | nullif(i, 7)
if(i > 1, 'a', 'b') | case when i > 1 then 'x' end | i <=> 7 | s like 'a%' | not (i > 1)
i in (7, 0) | cast(i as string) | string(n) | bigint(n) | double(n) | cast(n as decimal(10, 2))
"""


def test_generated_columns_are_what_spark_makes_of_them(
    spark: SparkSession, bridge_catalog: dl.Catalog, tmp_path: Path
) -> None:
    lines = (re.split(r" \| | \|$", line) for line in EXPRESSIONS.splitlines())
    expressions = {f"g{number}": text.strip() for number, text in enumerate(chain(*lines)) if text.strip()}
    pq.write_table(ROWS, tmp_path / "rows.parquet", store_schema=False)
    rows = spark.read.parquet(str(tmp_path / "rows.parquet"))
    frame = rows.selectExpr("n", *(f"{text} as {name}" for name, text in expressions.items()))
    fields = [
        field | {"metadata": {"delta.generationExpression": expressions[field["name"]]}}
        for field in json.loads(frame.schema.json())["fields"]
        if field["name"] in expressions
    ]
    plain = json.loads(rows.schema.json())["fields"]
    schema = dl.Schema.from_json(json.dumps({"type": "struct", "fields": [*plain, *fields]}))
    expected = {row["n"]: row.asDict() for row in frame.collect()}
    name = f"generated_{uuid.uuid4().hex[:8]}.t"
    bridge_catalog.create_table(name, schema)
    at_path = dl.DeltaTable.create(str(tmp_path / "table"), schema)
    for table in (bridge_catalog.table(name), at_path):
        dl.write_deltalake(table, ROWS, mode="append")
        found = {row["n"]: row for row in table.to_pyarrow_table().to_pylist()}
        for column, text in expressions.items():
            values = {n: (_plain(found[n][column]), _plain(expected[n][column])) for n in expected}
            assert all(ours == theirs for ours, theirs in values.values()), f"{text}: {values}"


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)
    return bytes(value) if isinstance(value, bytearray) else value
