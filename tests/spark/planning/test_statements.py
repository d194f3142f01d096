"""DELETE, UPDATE, MERGE, overwrites and OPTIMIZE leave the rows and the metrics that plain delta-spark leaves."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.spark.planning.twins import new_twins, setting, written
from tests.spark.shop import Shop

pytestmark = pytest.mark.spark

COLUMNS: Final = "id bigint, p string, v double, n decimal(9,2), d date, s struct<a: int>"
_ROWS: Final = (
    "select /*+ repartition_by_range({files}, id) */ id, concat('p', id % 3) p, "
    "if(id % 7 = 0, null, if(id % 11 = 0, double('NaN'), id / 4)) v, cast(id / 8 as decimal(9,2)) n, "
    "date_add(date'2026-01-01', cast(id % 40 as int)) d, named_struct('a', cast(id as int)) s "
    "from range({first}, {end})"
)


def rows(first: int, end: int, files: int = 3) -> str:
    return _ROWS.format(first=first, end=end, files=files)


def created(layout: str = "", **properties: str) -> tuple[str, ...]:
    pairs = ", ".join(f"'delta.{key.replace('_', '.')}' = '{value}'" for key, value in properties.items())
    return (
        f"create table {{t}} ({COLUMNS}) using delta {layout} " + (f"tblproperties ({pairs})" if pairs else ""),
        f"insert into {{t}} {rows(0, 60)}",
        f"insert into {{t}} {rows(60, 90, 1)}",
    )


TABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "partitions and vectors": (
        *created("partitioned by (p)", enableDeletionVectors="true"), "delete from {t} where id % 9 = 0",
    ),
}  # fmt: skip

_SOURCE: Final = (
    "(select id, 'p9' p, cast(id as double) v, cast(1 as decimal(9,2)) n, date'2026-05-05' d, named_struct('a', 1) s "
    "from range({}))"
)
_COLUMNS: Final = "(id, p, v, n, d, s) values (u.id, u.p, u.v, u.n, u.d, u.s)"


def merge(source: str, on: str, *actions: str) -> str:
    return f"merge into {{t}} t using {_SOURCE.format(source)} u on {on} {' '.join(actions)}"


_INSERT: Final = f"when not matched then insert {_COLUMNS}"
STATEMENTS: Final = (
    "delete from {t} where id = 31",
    "delete from {t} where v is null and n > 3.5",
    "delete from {t} where isnan(v)",
    "delete from {t} where p = 'p1' and id < 20",
    "delete from {t} where p = 'p2' or id = 64",
    "delete from {t} where d = '2026-01-31'",
    "delete from {t} where s.a in (3, 5, null)",
    "delete from {t} where id > 5000",
    "update {t} set v = v + 1 where id between 10 and 14",
    "update {t} set v = null where n = 1.25 or n = 5",
    "update {t} set p = 'p0' where p = 'p1' and id % 2 = 0",
    "update {t} set d = date'2027-01-01' where v > 17.5",
    "update {t} set v = 0 where false",
    merge("58, 95", "t.id = u.id", "when matched then update set v = u.v", _INSERT),
    merge("20, 25", "t.id = u.id and t.p = 'p1'", "when matched then delete"),
    merge("88, 92", "t.id = u.id", _INSERT),
    merge("3", "t.id = u.id", "when not matched by source and t.id > 70 then delete"),
    "delete from {t}",
)
MAINTENANCE: Final = (
    "optimize {t} where p = 'p1'", "optimize {t} zorder by (id, n)", "optimize {t}", "reorg table {t} apply (purge)",
)  # fmt: skip
MAINTAINED: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "partitions and vectors": (TABLES["partitions and vectors"], MAINTENANCE),
    "clustered, mapped by id": (
        created("cluster by (id)", columnMapping_mode="id", enableDeletionVectors="true"),
        ("optimize {t}", "optimize {t} full", "reorg table {t} apply (purge)"),
    ),
    "row ids": (created("partitioned by (p)", enableRowTracking="true", enableDeletionVectors="true"), MAINTENANCE),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", TABLES)
def test_statements_leave_the_same_rows_and_metrics(shop: Shop, tmp_path: Path, kind: str) -> None:
    twins = new_twins(shop, tmp_path, written(*TABLES[kind]))
    commits = twins.run(*STATEMENTS)
    assert len(commits) >= len(STATEMENTS) - 4, "most of them must change something"


OVERWRITES: Final = (
    ("p = 'p1'", "select * from {t} where p = 'p1' and id < 40"),
    ("p = 'p2' and id < 30", "select * from {t} where p = 'p2' and id < 30 limit 0"),
    ("id >= 70", "select * from {t} where id >= 80"),
)


@pytest.mark.parametrize("kind", TABLES)
def test_overwrites_of_a_part_leave_the_same_rows_and_metrics(shop: Shop, tmp_path: Path, kind: str) -> None:
    twins = new_twins(shop, tmp_path, written(*TABLES[kind]))
    before = twins.versions()
    for condition, query in OVERWRITES:
        for frame, path in zip(twins.ask(query), (str(twins.plain), twins.path), strict=True):
            kept = shop.spark.createDataFrame(frame.collect(), frame.schema).coalesce(1)
            kept.write.format("delta").mode("overwrite").option("replaceWhere", condition).save(path)
    assert len(twins.check_since(before)) == len(OVERWRITES)
    with setting(shop.spark, spark_sql_sources_partitionOverwriteMode="dynamic"):
        assert len(twins.run("insert overwrite {t} select * from {t} where id = 10")) == 1


@pytest.mark.parametrize(
    "kind", [kind if kind in TABLES else pytest.param(kind, marks=pytest.mark.slow) for kind in MAINTAINED]
)
def test_files_are_compacted_in_the_same_way(shop: Shop, tmp_path: Path, kind: str) -> None:
    made, commands = MAINTAINED[kind]
    twins = new_twins(shop, tmp_path, written(*made))
    deletes = [f"delete from {{t}} where id % 10 = {number}" for number in range(3, 3 + len(commands))]
    twins.run(*(each for pair in zip(commands, deletes, strict=True) for each in pair))
