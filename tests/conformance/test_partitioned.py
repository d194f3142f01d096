"""Hash partitions on Postgres: the script of docs/scale.md keeps rows, keys and views; a query finds its partition.

`make test-partitioned` runs the whole conformance suite on such a catalog; these are the tests of the script itself.
"""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from deltalakedb import Catalog, connect
from deltalakedb.store.connection import Store
from deltalakedb.store.opening import open_store
from tests.fixtures.partitioned import partition

LARGE = ("dl_add_files", "dl_remove_files", "dl_cdc_files", "dl_file_bounds")


@pytest.fixture
def store(postgres_dsn: str) -> Iterator[Store]:
    """A plain catalog; Postgres alone has partitions, so these tests do not run on the other engines."""
    with open_store("postgres", postgres_dsn, schema="create_if_missing") as opened:
        yield opened


@pytest.fixture
def catalog(postgres_dsn: str, store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalog]:
    del store
    parameters = psycopg.conninfo.conninfo_to_dict(postgres_dsn)
    for name in ("host", "port", "user"):
        monkeypatch.setenv(f"PG{name.upper()}", str(parameters[name]))
    with connect(f"deltasql://postgres/{parameters['dbname']}") as opened:
        yield opened


@pytest.fixture
def tables(tmp_path: Path) -> list[Path]:
    """Eight tables, enough to fall into several partitions."""
    paths = []
    for number in range(8):
        path = tmp_path / f"t{number}"
        for low in range(0, 50, 10):
            write_deltalake(path, pa.table({"id": pa.array(range(low, low + 10), pa.int64())}), mode="append")
        DeltaTable(path).delete("id < 10")
        paths.append(path)
    return paths


def facts(catalog: Catalog) -> dict[str, object]:
    """What a reader can ask, for every table."""
    found: dict[str, object] = {}
    for name in catalog.tables():
        table = catalog.table(name)
        plan = table.plan("id between 22 and 24")
        found[name] = (
            table.version(),
            sorted(table.file_uris()),
            sorted(catalog.table(name, version=2).file_uris()),
            plan.num_files,
            plan.num_pruned,
            [entry["version"] for entry in table.history()],
        )
    return found


def test_a_filled_catalog_answers_the_same_after_it_was_partitioned(
    catalog: Catalog, postgres_dsn: str, tables: list[Path]
) -> None:
    for number, path in enumerate(tables[:4]):
        catalog.attach_table(path, f"t{number}")
    before = facts(catalog)
    partition(postgres_dsn)
    assert facts(catalog) == before
    for number, path in enumerate(tables[4:], start=4):
        catalog.attach_table(path, f"t{number}")
    write_deltalake(tables[0], pa.table({"id": pa.array([99], pa.int64())}), mode="append")
    catalog.follow()
    assert len(facts(catalog)) == 8
    assert catalog.table("t0").version() == 6
    assert all(catalog.validate(name).drift is None for name in catalog.tables())


def test_partitioning_twice_changes_nothing(catalog: Catalog, postgres_dsn: str, tables: list[Path]) -> None:
    catalog.attach_table(tables[0], "t0")
    partition(postgres_dsn)
    before = facts(catalog)
    partition(postgres_dsn, partitions=32)
    assert facts(catalog) == before
    count = catalog.sql("select count(*) as n from pg_inherits where inhparent = 'dl_add_files'::regclass")
    assert count.column("n").to_pylist() == [4]


def test_keys_indexes_and_views_are_those_of_the_schema(store: Store, postgres_dsn: str) -> None:
    before = shape(store)
    partition(postgres_dsn)
    assert shape(store) == before
    kinds = store.select("select relname, relkind::text as kind from pg_class where relkind = 'p' order by relname")
    assert kinds.column("relname").to_pylist() == sorted(LARGE)


def shape(store: Store) -> list[object]:
    """Columns, unique and other indexes of the tables, and the views' columns; not the partitions."""
    columns = store.select(
        "select table_name::text, column_name::text, data_type::text, collation_name::text, is_nullable::text "
        "from information_schema.columns where table_schema = 'deltalakedb' and table_name not like '%\\_p_%' "
        "order by table_name, ordinal_position"
    )
    indexes = store.select(
        "select indexname::text, replace(indexdef, ' ONLY ', ' ') as definition from pg_indexes "
        "where schemaname = 'deltalakedb' and tablename not like '%\\_p_%' order by indexname"
    )
    return [columns.to_pylist(), indexes.to_pylist()]


def test_a_query_about_one_table_touches_one_partition(catalog: Catalog, postgres_dsn: str, tables: list[Path]) -> None:
    partition(postgres_dsn)
    for number, path in enumerate(tables):
        catalog.attach_table(path, f"t{number}")
    with psycopg.connect(postgres_dsn) as connection:
        for large in LARGE:
            lines = connection.execute(f"explain select * from deltalakedb.{large} where table_id = 3").fetchall()
            scanned = [line for (line,) in lines if " on " in line and "Bitmap Index" not in line]
            assert len(scanned) == 1, lines
