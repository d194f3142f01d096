"""The views: the log as one table, the newest action of each path, active files, history, and the mirror's lag."""

import pytest

from deltalakedb.log.protocol.actions import (
    AddCDCFile,
    AppTransaction,
    DeletionVector,
    DomainMetadata,
    Protocol,
    UnknownAction,
)
from deltalakedb.store import Store
from deltalakedb.store import registry as reg
from tests.conformance.histories import METADATA, PROTOCOL, add, info, load, register, remove

SEED_COLUMNS = [
    *("table_id", "version", "ordinal", "action_type", "commit_ts", "commit_user", "operation", "operation_params"),
    *("min_reader_version", "min_writer_version", "reader_features", "writer_features", "table_name", "description"),
    *("schema_json", "partition_columns", "configuration", "path", "partition_values", "size_bytes"),
    *("modification_time", "data_change", "num_records", "stats_json", "deletion_time", "app_id", "app_version"),
]


@pytest.fixture
def table(store: Store) -> reg.TableRow:
    table = register(store)
    vector = DeletionVector("u", "x", 1, 4)
    load(
        store,
        table,
        [
            [info("CREATE"), PROTOCOL, METADATA],
            [add("a"), add("b"), AppTransaction("app", 7), AddCDCFile("cdc", {}, 1, False), info("WRITE")],
            [remove("a"), add("a", deletion_vector=vector), UnknownAction("future", "{}"), info("DELETE")],
            [remove("b"), DomainMetadata("d", "{}", False), Protocol(1, 3)],
        ],
    )
    return table


def test_the_log_is_one_table_with_a_row_per_action(store: Store, table: reg.TableRow) -> None:
    rows = store.select("select * from delta_log_action order by version, ordinal")
    assert rows.schema.names == SEED_COLUMNS
    kinds = [(row["version"], row["ordinal"], row["action_type"]) for row in rows.to_pylist()]
    assert kinds == [
        (0, 0, "commit"), (0, 1, "protocol"), (0, 2, "metadata"),
        (1, 0, "add"), (1, 1, "add"), (1, 2, "txn"), (1, 3, "cdc"), (1, 4, "commit"),
        (2, 0, "remove"), (2, 1, "add"), (2, 2, "future"), (2, 3, "commit"),
        (3, 0, "remove"), (3, 1, "domainMetadata"), (3, 2, "protocol"),
    ]  # fmt: skip
    by_key = {(row["version"], row["ordinal"]): row for row in rows.to_pylist()}
    assert {row["table_id"] for row in rows.to_pylist()} == {table.table_id}
    assert (by_key[0, 0]["operation"], by_key[0, 0]["commit_ts"]) == ("CREATE", 1000)
    assert by_key[0, 2]["partition_columns"] == '["day"]'
    assert (by_key[1, 0]["path"], by_key[1, 0]["size_bytes"], by_key[1, 0]["num_records"]) == ("a", 100, 10)
    assert (by_key[1, 2]["app_id"], by_key[1, 2]["app_version"]) == ("app", 7)
    assert (by_key[2, 0]["path"], by_key[2, 0]["deletion_time"]) == ("a", 1_700_000_000_000)
    assert by_key[3, 2]["min_writer_version"] == 3


def test_the_newest_action_of_a_path_is_an_add_when_it_got_a_new_vector(store: Store, table: reg.TableRow) -> None:
    rows = store.select("select path, version, is_add from vw_latest_action_per_path order by path").to_pylist()
    assert [(row["path"], row["version"], int(row["is_add"])) for row in rows] == [("a", 2, 1), ("b", 3, 0)]
    active = store.select("select namespace, name, path, num_records, table_id from vw_active_files").to_pylist()
    assert active == [
        {"namespace": "sales", "name": "orders", "path": "a", "num_records": 6, "table_id": table.table_id}
    ]


@pytest.mark.usefixtures("table")
def test_history_has_names_and_counts(store: Store) -> None:
    rows = store.select("select * from vw_table_history order by version desc").to_pylist()
    assert [(row["version"], row["operation"], row["num_added_files"]) for row in rows] == [
        (3, None, 0),
        (2, "DELETE", 1),
        (1, "WRITE", 2),
        (0, "CREATE", 0),
    ]
    assert {(row["namespace"], row["name"]) for row in rows} == {("sales", "orders")}


def test_the_lag_counts_versions_not_mirrored_yet(store: Store, table: reg.TableRow) -> None:
    def lag() -> dict[str, object]:
        (row,) = store.select("select * from vw_mirror_lag").to_pylist()
        return {name: row[name] for name in ("versions_behind", "oldest_unmirrored_ms", "attempts", "error")}

    assert lag() == {"versions_behind": 0, "oldest_unmirrored_ms": None, "attempts": None, "error": None}
    with store.write() as conn:
        conn.sql(
            "update dl_tables set mode = 'managed' where table_id = :table_id returning mode", table_id=table.table_id
        )
        conn.sql("update dl_table_heads set mirrored_version = 1 where table_id = 1 returning table_id")
        conn.sql(
            "insert into dl_mirror_status values (1, 2, 3, 'disk full', 9), (1, 3, 1, 'later', 9) returning version"
        )
    assert lag() == {"versions_behind": 2, "oldest_unmirrored_ms": 3000, "attempts": 3, "error": "disk full"}
