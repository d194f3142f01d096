"""Migrations: up, down, checked by checksum, refused when they do not fit, and safe to run by many at once."""

import re
from pathlib import Path

import pytest

from deltalakedb.exceptions import SchemaVersionError, StoreError
from deltalakedb.store import Store, open_store
from deltalakedb.store import namespaces as spaces
from deltalakedb.store import registry as reg
from deltalakedb.store.opening import FOLDER, known_migrations, migrate, migration_status
from deltalakedb.store.queries import SQL_FOLDER, relations, statements, table_columns
from tests.conformance.conftest import OpenStore
from tests.conformance.shapes import shape_of
from tests.fixtures.forked import start_script
from tests.fixtures.postgres import PostgresCluster

KNOWN = len(known_migrations())


@pytest.fixture
def target(blank: str) -> str:
    """Databases are created here: nobody has migrated them before."""
    return blank


def copy_of_migrations(folder: Path) -> Path:
    for file in FOLDER.iterdir():
        (folder / file.name).write_text(file.read_text())
    return folder


def test_the_schema_is_what_all_migrations_lead_to(store: Store, open_again: OpenStore) -> None:
    migrated = shape_of(store)
    migrate(store, 0)
    with store.write() as conn:
        conn.lock_schema()
        for name in ("schema.sql", "views.sql", "functions.sql"):
            conn.script(list(statements((SQL_FOLDER / name).read_text(), store.dialect)))
    assert shape_of(open_again(schema="manual")) == migrated
    names = {row["owner"] for row in migrated}
    assert relations() <= names


def test_down_takes_everything_away_and_up_brings_it_back(store: Store) -> None:
    before = shape_of(store)
    assert migrate(store, 0) == list(reversed(range(1, len(known_migrations()) + 1)))
    assert shape_of(store) == []
    assert [entry.applied_at_ms for entry in migration_status(store)] == [None] * len(known_migrations())
    assert migrate(store) == [migration.number for migration in known_migrations()]
    assert shape_of(store) == before
    assert migrate(store) == []


def test_a_version_nobody_knows_is_refused(store: Store) -> None:
    with pytest.raises(SchemaVersionError, match="there is no schema version 99"):
        migrate(store, 99)


def test_a_database_newer_than_the_code_is_refused(store: Store, open_again: OpenStore) -> None:
    with store.write() as conn:
        conn.run("insert_migration", migration=77, name="future", checksum="x", applied_at_ms=1)
    with pytest.raises(SchemaVersionError, match=f"schema version 77, this code knows {KNOWN}: upgrade deltalakedb"):
        open_again()
    with pytest.raises(SchemaVersionError, match="77"):
        migrate(store)
    with pytest.raises(SchemaVersionError, match="77"):
        migration_status(store)


def test_a_database_of_an_unreleased_version_is_refused(store: Store, open_again: OpenStore) -> None:
    """Before the first release the schema had four migrations, the first of them with another text."""
    with store.write() as conn:
        conn.sql("update dl_schema_migrations set checksum = 'another' where migration = 1 returning migration")
        for number in range(KNOWN + 1, KNOWN + 4):
            conn.run("insert_migration", migration=number, name="earlier", checksum="x", applied_at_ms=1)
    before = shape_of(store)
    message = r"was created by an unreleased version of deltalakedb: its migration 0001 .* Run `dl import --rebuild`"
    for attempt in (open_again, lambda: migrate(store), lambda: migrate(store, 0), lambda: migration_status(store)):
        with pytest.raises(SchemaVersionError, match=message):
            attempt()
    assert shape_of(store) == before


def test_a_further_migration_runs_both_ways(store: Store, tmp_path: Path) -> None:
    before = shape_of(store)
    folder = copy_of_migrations(tmp_path)
    (folder / f"{KNOWN + 1:04}_more.up.sql").write_text("create table dl_more (a bigint not null);\n")
    (folder / f"{KNOWN + 1:04}_more.down.sql").write_text("drop table dl_more;\n")
    assert migrate(store, folder=folder) == [KNOWN + 1]
    with pytest.raises(SchemaVersionError, match=f"schema version {KNOWN + 1}, this code knows {KNOWN}"):
        migrate(store)
    assert migrate(store, KNOWN, folder=folder) == [KNOWN + 1]
    assert shape_of(store) == before


def test_a_failing_migration_changes_nothing(store: Store, tmp_path: Path) -> None:
    before = shape_of(store)
    folder = copy_of_migrations(tmp_path)
    (folder / f"{KNOWN + 1:04}_bad.up.sql").write_text(
        "create table dl_more (a bigint not null);\nselect nonsense from nowhere;\n"
    )
    (folder / f"{KNOWN + 1:04}_bad.down.sql").write_text("drop table dl_more;\n")
    with pytest.raises(StoreError):
        migrate(store, folder=folder)
    assert shape_of(store) == before
    assert [entry.number for entry in migration_status(store) if entry.applied_at_ms] == list(range(1, KNOWN + 1))


def test_without_leave_to_create_an_empty_database_is_refused(engine: str, target: str) -> None:
    with pytest.raises(StoreError, match="does not exist|sql.schema=error"):
        open_store(engine, target, schema="error")
    if engine != "postgres":
        assert not Path(target).exists()


def test_an_existing_database_opens_without_leave_to_create(open_again: OpenStore) -> None:
    open_again().close()
    with open_again(schema="error").read() as conn:
        assert reg.list_tables(conn) == []


_OPEN = """
import sys
from deltalakedb.store import open_store, registry
with open_store(sys.argv[1], sys.argv[2]) as store, store.read() as conn:
    print(registry.catalog_id(conn))
"""


def test_processes_that_create_one_database_at_once_all_succeed_and_agree(engine: str, target: str) -> None:
    answers = [script.wait() for script in [start_script(_OPEN, engine, target) for _ in range(4)]]
    assert [answer.returncode for answer in answers] == [0] * 4, answers
    assert len({answer.stdout for answer in answers}) == 1


def test_a_column_name_has_one_type_in_all_tables() -> None:
    types: dict[str, set[str]] = {}
    for columns in table_columns().values():
        for name, kind in columns.items():
            types.setdefault(name, set()).add(kind)
    assert {name: kinds for name, kinds in types.items() if len(kinds) > 1} == {}


def test_the_down_scripts_name_every_table_and_view() -> None:
    down = "\n".join(migration.down for migration in known_migrations())
    assert set(re.findall(r"^drop (?:table|view) (\w+);", down, re.MULTILINE)) == relations()


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_on_postgres_every_text_column_sorts_by_bytes(store: Store) -> None:
    with store.read() as conn:
        rows = conn.sql(
            "select c.table_name, c.column_name, c.collation_name from information_schema.columns c "
            "join information_schema.tables t on t.table_schema = c.table_schema and t.table_name = c.table_name "
            "where c.table_schema = 'deltalakedb' and t.table_type = 'BASE TABLE' and c.data_type = 'text'"
        )
    assert len(rows) > 50
    assert [row for row in rows if row["collation_name"] != "C"] == []


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_the_tests_postgres_sorts_by_a_locale_where_one_can_be_built(
    store: Store, postgres_cluster: PostgresCluster
) -> None:
    """Else the test above is all that proves the collation: this one shows that it has something to prove."""
    by_locale = store.select("select 'a' < 'B' as yes").to_pylist()[0]["yes"]
    assert by_locale or not postgres_cluster.has_locale


def test_text_sorts_by_bytes_on_every_engine(store: Store) -> None:
    names = ["a", "B", "ä", "Z", "é", "_", "0", "b", "\U0001f600", "\ufffd", "A b", "Ab"]
    with store.write() as conn:
        for name in names:
            spaces.ensure_namespace(conn, name, at_ms=1)
        rows = conn.sql("select namespace_key from dl_namespaces order by namespace_key")
    keys = {name.casefold() for name in [*names, "default"]}
    assert [row["namespace_key"] for row in rows] == sorted(keys, key=lambda key: key.encode())
