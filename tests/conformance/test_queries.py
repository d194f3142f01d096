"""The named queries: every one runs on every engine, and the patterns the design started from are answered by name."""

import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltalakedb.exceptions import StoreError
from deltalakedb.store import Store, queries
from deltalakedb.store import registry as reg
from deltalakedb.store.connection import DuplicateRowError
from deltalakedb.store.queries import SQL_FOLDER, arrow_types, named, named_queries, spell
from tests.conformance.histories import METADATA, PROTOCOL, add, info, load, register, remove

QUERIES_TEXT = "".join(
    file.read_text(encoding="utf-8")
    for file in sorted((SQL_FOLDER / "queries").glob("*.sql"))
    if not file.name.startswith("plan_")  # parts of a plan, put together
)
QUERY_NAMES = re.findall(r"^-- name: (\w+)$", QUERIES_TEXT, re.MULTILINE)


@pytest.fixture
def table(store: Store) -> reg.TableRow:
    """Version 0: a and b; 1: c; 2: a goes; 3: b gets other statistics, a comes back."""
    table = register(store)
    load(
        store,
        table,
        [
            [PROTOCOL, METADATA, add("a", low=0, high=9), add("b", day="tue", low=10, high=19), info("WRITE")],
            [add("c", low=20, high=29, size=300), info("WRITE")],
            [remove("a"), info("DELETE")],
            [add("b", day="tue", low=10, high=12), add("a", low=0, high=9), info("MERGE")],
        ],
    )
    return table


def paths(found: pa.Table) -> list[str]:
    return sorted(found["path"].to_pylist())


def test_every_query_runs_on_every_engine(store: Store) -> None:
    failed = {}
    for query in QUERY_NAMES:
        parameters = named(query, store.dialect).parameters
        try:
            with store.write() as conn:
                ask = conn.all if named_queries()[query].startswith(("select", "with")) else conn.run
                ask(query, **{parameter: some_value(parameter) for parameter in parameters})
        except DuplicateRowError:
            pass  # it ran: a query before it has put the same row there
        except StoreError as error:
            failed[query] = error
    assert failed == {}


def some_value(parameter: str) -> Any:
    # The one parameter that stands for several, and has the type of another.
    kind = str(arrow_types().get("grantee" if parameter == "grantee_group" else parameter, pa.int64()))
    return {"string": "x", "binary": b"x", "bool": True, "double": 1.0}.get(kind, 9)


def test_every_query_has_a_reason_and_a_user() -> None:
    for name, reason in re.findall(r"^-- name: (\w+)\n(.*)$", QUERIES_TEXT, re.MULTILINE):
        assert reason.startswith("-- "), name
    root = SQL_FOLDER.parents[1]
    used = "".join(file.read_text(encoding="utf-8") for file in root.rglob("*.py")) + Path(__file__).read_text()
    assert [name for name in QUERY_NAMES if f'"{name}"' not in used] == []


def test_pattern_1_the_latest_version(store: Store, table: reg.TableRow) -> None:
    with store.read() as conn:
        row = conn.one("select_head", table_id=table.table_id)
    assert row is not None
    assert (row["current_version"], row["num_files"], row["size_bytes"], row["num_records"]) == (3, 3, 500, 30)


def test_pattern_2_the_active_files(store: Store, table: reg.TableRow) -> None:
    with store.read() as conn:
        found = conn.arrow("select_live_files", table_id=table.table_id)
        counted = conn.one("count_live_files", table_id=table.table_id)
        head = reg.read_head(conn, table.table_id)
    assert paths(found) == ["a", "b", "c"]
    assert counted is not None
    assert head is not None
    assert {name: int(value) for name, value in counted.items()} == {
        name: getattr(head, name) for name in ("num_files", "size_bytes", "num_records", "files_without_records")
    }


@pytest.mark.parametrize("side", ["select_files_added_up_to", "select_files_removed_after"])
def test_pattern_3_time_travel_by_version_from_either_side(store: Store, table: reg.TableRow, side: str) -> None:
    with store.read() as conn:
        found = [paths(conn.arrow(side, table_id=table.table_id, version=version)) for version in range(4)]
        old_stats = conn.arrow(side, table_id=table.table_id, version=2).sort_by("path")["stats"].to_pylist()[0]
    assert found == [["a", "b"], ["a", "b", "c"], ["b", "c"], ["a", "b", "c"]]
    assert '"id": 19' in old_stats


@pytest.mark.parametrize(
    ("at_ms", "version"), [(999, None), (1000, 0), (1999, 0), (2000, 1), (3999, 2), (4000, 3), (10**15, 3)]
)
def test_pattern_4_time_travel_by_timestamp(store: Store, table: reg.TableRow, at_ms: int, version: int | None) -> None:
    with store.read() as conn:
        row = conn.one("select_version_at", table_id=table.table_id, at_ms=at_ms)
    assert (row and row["version"]) == version


def test_pattern_5_files_by_statistics(store: Store, table: reg.TableRow) -> None:
    with store.read() as conn:
        columns = {
            row["column_path"]: row["column_id"] for row in conn.all("select_bounds_columns", table_id=table.table_id)
        }

        def within(lower: float, upper: float) -> list[str]:
            parameters = {"table_id": table.table_id, "column_id": columns['["id"]'], "lower": lower, "upper": upper}
            return [row["path"] for row in conn.all("select_live_files_by_stats", **parameters)]

        assert within(5, 5) == ["a"]
        assert within(13, 19) == []
        assert within(9, 20) == ["a", "b", "c"]
        assert within(100, 200) == []


def test_pattern_6_files_by_partition(store: Store, table: reg.TableRow) -> None:
    with store.read() as conn:
        found = conn.all("select_live_files_by_partition", table_id=table.table_id, partition_values='{"day":"tue"}')
    assert found == [{"path": "b", "size": 100}]


def test_pattern_7_compare_and_set_of_the_version(store: Store, table: reg.TableRow) -> None:
    with store.write() as conn:
        head = reg.lock_head(conn, table.table_id)
        assert head is not None
        moved = asdict(replace(head, current_version=4))
        assert conn.run("advance_head", **moved, expected=3) == 1
        assert conn.run("advance_head", **moved, expected=3) == 0


def test_lineage_names_the_commits_that_produced_a_version(store: Store, table: reg.TableRow) -> None:
    with store.read() as conn:
        at_2 = conn.all("select_lineage", table_id=table.table_id, version=2)
        at_3 = conn.all("select_lineage", table_id=table.table_id, version=3)
    assert [(row["version"], row["operation"], int(row["num_files"])) for row in at_2] == [
        (1, "WRITE", 1),
        (0, "WRITE", 1),
    ]
    # Version 0 has no file left in version 3, but it set the metadata.
    assert [(row["version"], int(row["num_files"])) for row in at_3] == [(3, 2), (1, 1), (0, 0)]


def test_the_difference_of_two_versions_is_told_by_file_key(store: Store, table: reg.TableRow) -> None:
    with store.read() as conn:

        def diff(earlier: int, later: int) -> tuple[list[str], list[str]]:
            versions = {"table_id": table.table_id, "earlier": earlier, "later": later}
            return paths(conn.arrow("select_diff_added", **versions)), paths(
                conn.arrow("select_diff_removed", **versions)
            )

        assert diff(0, 1) == (["c"], [])
        assert diff(1, 2) == ([], ["a"])
        assert diff(0, 2) == (["c"], ["a"])
        assert diff(2, 3) == (["a"], [])
        assert diff(0, 3) == (["c"], [])
        assert diff(1, 1) == ([], [])


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("query", "index"),
    [
        ("select_live_files", "dl_add_files_by_removal (table_id=? AND removed_version=?)"),
        ("select_files_added_up_to", "dl_add_files_by_version (table_id=? AND version<?)"),
        ("select_files_removed_after", "dl_add_files_by_removal (table_id=? AND removed_version>?)"),
        ("select_version_at", "dl_table_versions_by_time (table_id=? AND committed_at_ms<?)"),
        ("select_app_transaction", "dl_txn_actions_by_app (table_id=? AND app_id=? AND version<?)"),
    ],
)
def test_reads_go_through_the_index_meant_for_them(store: Store, query: str, index: str) -> None:
    statement = named(query, store.dialect)
    values = {parameter: some_value(parameter) for parameter in statement.parameters}
    with store.read() as conn:
        plan = conn.sql(f"explain query plan {named_queries()[query]}", **values)
    assert [row["detail"] for row in plan] == [f"SEARCH {index.split('_by_')[0]} USING INDEX {index}"]


def test_parameters_names_and_percents_are_spelled_for_each_engine() -> None:
    dialect = queries.Dialect(
        "postgres", parameter="%%(%s)s", for_update="for update", schema="s", doubles_percent=True
    )
    text = (
        "select ':no', a::text, \"dl_tables\" from dl_tables t -- :no dl_tables\n "
        "where t.x = :yes and y like '%' {for update}"
    )
    spelled = spell(text, dialect)
    assert spelled.parameters == {"yes"}
    assert spelled.text == (
        "select ':no', a::text, \"dl_tables\" from s.dl_tables t -- :no dl_tables\n "
        "where t.x = %(yes)s and y like '%%' for update"
    )
