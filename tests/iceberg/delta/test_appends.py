"""Appends of Iceberg clients to Delta tables: every reader of either format sees the rows once."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table

from deltalakedb import Catalog
from tests.conformance.transacting import days, ids_in, numbers
from tests.fixtures.readers import DuckDB
from tests.iceberg.delta.appending import EXISTING, Append, Lake, ManifestToWrite, data_files, new_id
from tests.iceberg.delta.judges import check_readers, folder_of
from tests.iceberg.rest.wire import change_of


def create(catalog: Catalog, rows: pa.Table, *partition_by: str, name: str = "t", **properties: str) -> None:
    with catalog.begin() as tx:
        tx.write(f"shop.{name}", rows, partition_by=list(partition_by) or None, properties=properties)


def actions_of(catalog: Catalog, version: int, kind: str, name: str = "t") -> list[dict[str, Any]]:
    """The actions of a kind in the log of a table, as the mirror wrote it."""
    catalog.mirror.flush()
    file = folder_of(catalog, f"shop.{name}") / "_delta_log" / f"{version:020}.json"
    return [action[kind] for action in map(json.loads, file.read_text().splitlines()) if kind in action]


def partition_values(catalog: Catalog, version: int, column: str) -> set[str | None]:
    return {add["partitionValues"][column] for add in actions_of(catalog, version, "add")}


def test_an_append_is_a_version_that_every_reader_sees(catalog: Catalog, lake: Lake) -> None:
    create(catalog, numbers(1, 2))
    lake.load().append(numbers(3))
    lake.load().append(numbers(4, 5))
    check_readers(catalog, lake, numbers(1, 2, 3, 4, 5))
    assert catalog.table("shop.t").version() == 2


def test_the_client_s_snapshot_id_and_an_append_are_in_the_history(catalog: Catalog, lake: Lake) -> None:
    create(catalog, days((1, "a")), "day")
    table = lake.load()
    append = Append(table, data_files(table, days((2, "b"), (3, "c"))))
    assert lake.post(append.body()).json["metadata"]["current-snapshot-id"] == append.snapshot_id
    (info,) = actions_of(catalog, 1, "commitInfo")
    assert info["operation"] == "WRITE"
    assert info["operationParameters"] == {"mode": "Append", "partitionBy": '["day"]'}
    assert info["operationMetrics"] == {"num_added_files": 2, "num_added_rows": 2}
    assert (info["icebergSnapshotId"], info["isBlindAppend"]) == (append.snapshot_id, True)
    assert [item.snapshot_id for item in lake.load().metadata.snapshots][1] == append.snapshot_id


def test_files_are_found_whatever_their_names(catalog: Catalog, lake: Lake) -> None:
    create(catalog, numbers(1))
    folder = folder_of(catalog, "shop.t")
    for number, name in enumerate(("a:b.parquet", "a b%20c+.parquet"), 2):
        pq.write_table(numbers(number), folder / name)
        lake.load().add_files([f"file://{folder}/{name}"])
    check_readers(catalog, lake, numbers(1, 2, 3))


BEFORE_1970 = datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)
PARTITIONED: dict[str, tuple[pa.DataType, list[Any]]] = {
    "s": (pa.string(), ["a b", "k+0", "ä/ö", "50%", "a=b", "null", ":", None]),
    "i": (pa.int32(), [-5, 0, 2**31 - 1, None]),
    "n": (pa.int64(), [-(2**63), 2**63 - 1, None]),
    "d": (pa.date32(), [date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31), None]),
    "ts": (pa.timestamp("us", "UTC"), [BEFORE_1970, datetime(2024, 2, 29, tzinfo=UTC), None]),
    "tn": (pa.timestamp("us"), [datetime(1900, 1, 1, 0, 0, 0, 1), datetime(2024, 2, 29, 12), None]),
    "dec": (pa.decimal128(10, 2), [Decimal("-0.01"), Decimal("12345678.90"), Decimal("0.00"), None]),
    "b": (pa.bool_(), [True, False, None]),
}  # fmt: skip


@pytest.mark.parametrize("name", PARTITIONED)
def test_partition_values_of_every_type_arrive(catalog: Catalog, lake: Lake, name: str) -> None:
    """Delta's texts are those of our own writer, and readers give the values back."""
    kind, values = PARTITIONED[name]
    rows = pa.table({"id": pa.array(range(len(values)), pa.int64()), name: pa.array(values, kind)})
    create(catalog, rows, name)
    assert lake.append(rows).status == 200
    assert partition_values(catalog, 1, name) == partition_values(catalog, 0, name)
    check_readers(catalog, lake, pa.concat_tables([rows, rows]), served=False)


@pytest.mark.parametrize(("name", "value"), [("byte", 7), ("short", -300), ("float", 1.5), ("double", -2.25)])
def test_partition_values_of_small_and_of_floating_types_arrive(
    catalog: Catalog, lake: Lake, name: str, value: float
) -> None:
    arrow = {"byte": pa.int8(), "short": pa.int16(), "float": pa.float32(), "double": pa.float64()}[name]
    rows = pa.table({"id": pa.array([1], pa.int64()), "p": pa.array([value], arrow)})
    create(catalog, rows, "p")
    theirs = rows.set_column(1, "p", rows["p"].cast(pa.int32() if name in ("byte", "short") else arrow))
    assert lake.append(theirs).status == 200
    assert partition_values(catalog, 1, "p") == {str(value)}
    assert catalog.table("shop.t").to_pyarrow_table()["p"].to_pylist() == [value, value]


NESTED = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "l": pa.array([[1, None], [], None], pa.list_(pa.int32())),
        "s": pa.array([{"a": 1, "b": {"c": "x"}}, {"a": None, "b": None}, None],
                      pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.string())]))])),
        "m": pa.array([[("k", 1.5)], [], None], pa.map_(pa.string(), pa.float64())),
        "ls": pa.array([[{"x": 1}], [None], []], pa.list_(pa.struct([("x", pa.int32())]))),
        "bin": pa.array([b"\0\xff", b"", None]),
    }
)  # fmt: skip


def test_nested_columns_arrive(catalog: Catalog, lake: Lake) -> None:
    create(catalog, NESTED)
    lake.load().append(NESTED)
    check_readers(catalog, lake, pa.concat_tables([NESTED, NESTED]))


def test_statistics_hold_for_all_values(catalog: Catalog, lake: Lake) -> None:
    """A NaN is above all numbers, a text may be long, and timestamps are cut to milliseconds."""
    rows = pa.table(
        {
            "id": pa.array([1, 2], pa.int64()),
            "x": pa.array([1.5, math.nan]),
            "s": pa.array(["a" * 300, "ö" * 300]),
            "t": pa.array([BEFORE_1970] * 2, pa.timestamp("us", "UTC")),
            "c": pa.array([Decimal("-1.5"), Decimal("99999999.9")], pa.decimal128(9, 1)),
            "b": pa.array([None, True]),
        }
    )
    create(catalog, rows)
    lake.load().append(rows)
    for version in (0, 1):
        (stats,) = [json.loads(add["stats"]) for add in actions_of(catalog, version, "add")]
        assert stats["numRecords"] == 2
        assert stats["nullCount"] == {"id": 0, "x": 0, "s": 0, "t": 0, "c": 0, "b": 1}
        assert "x" not in stats["maxValues"]
        assert (stats["minValues"]["x"], stats["minValues"]["c"], stats["maxValues"]["c"]) == (1.5, -1.5, 99999999.9)
        assert len(stats["maxValues"]["s"].encode()) <= 70
        assert stats["maxValues"]["s"] > "ö" * 300
        assert stats["minValues"]["t"] == "1969-12-31T23:59:59.999Z"
        assert stats["maxValues"]["t"] == ("1969-12-31T23:59:59.999Z", "1970-01-01T00:00:00Z")[version]
    for predicate in ("s > 'b'", "t > '1969-12-31T23:59:59.999Z'", "c > 99999999"):
        found = DuckDB()._rows(f"from delta_scan(?) where {predicate}", [str(folder_of(catalog, "shop.t"))])
        assert found.num_rows == (4 if predicate.startswith("t") else 2), predicate


def test_columns_that_the_client_does_not_write_are_null(catalog: Catalog, lake: Lake) -> None:
    create(catalog, days((1, "a")))
    table = lake.load()
    table.append(pa.table({"id": pa.array([2], pa.int64()), "day": pa.array([None], pa.string())}))
    file = data_files(lake.load(), numbers(3))
    assert lake.post(Append(lake.load(), file).body()).status == 200
    assert catalog.table("shop.t").to_pyarrow_table().sort_by("id")["day"].to_pylist() == ["a", None, None]


def test_a_request_with_two_appends_makes_two_versions(catalog: Catalog, lake: Lake) -> None:
    create(catalog, numbers(1))
    with lake.load().transaction() as tx:
        tx.append(numbers(2))
        tx.append(numbers(3))
    check_readers(catalog, lake, numbers(1, 2, 3))
    assert catalog.table("shop.t").version() == 2
    assert catalog.table("shop.t").history()[0]["txnId"] == catalog.table("shop.t").history()[1]["txnId"]


def test_an_append_without_rows_is_a_version(catalog: Catalog, lake: Lake) -> None:
    create(catalog, numbers(1))
    append = Append(lake.load())
    assert lake.post(append.body()).json["metadata"]["current-snapshot-id"] == append.snapshot_id
    assert (catalog.table("shop.t").version(), ids_in(catalog, "shop.t")) == (1, [1])


def test_an_empty_table_takes_its_first_rows(catalog: Catalog, lake: Lake) -> None:
    with catalog.begin() as tx:
        tx.create_table("shop.t", numbers().schema)
    lake.load().append(numbers(1))
    check_readers(catalog, lake, numbers(1))


def test_an_append_only_table_takes_rows(catalog: Catalog, lake: Lake) -> None:
    create(catalog, numbers(1), **{"delta.appendOnly": "true"})
    lake.load().append(numbers(2))
    check_readers(catalog, lake, numbers(1, 2))


def test_row_ids_commit_times_and_the_change_feed_are_those_of_any_append(catalog: Catalog, lake: Lake) -> None:
    properties = ("delta.enableRowTracking", "delta.enableInCommitTimestamps", "delta.enableChangeDataFeed")
    create(catalog, numbers(1, 2), **dict.fromkeys(properties, "true"))
    lake.load().append(numbers(3, 4))
    lake.load().append(numbers(5))
    adds = [add for version in range(3) for add in actions_of(catalog, version, "add")]
    assert [(add["baseRowId"], add["defaultRowCommitVersion"]) for add in adds] == [(0, 0), (2, 1), (4, 2)]
    times = [actions_of(catalog, version, "commitInfo")[0]["inCommitTimestamp"] for version in range(3)]
    assert times == sorted(set(times))
    changes = pa.table(catalog.table("shop.t").load_cdf(starting_version=1).read_all()).to_pylist()
    seen = sorted((row["id"], row["_change_type"], row["_commit_version"]) for row in changes)
    assert seen == [(3, "insert", 1), (4, "insert", 1), (5, "insert", 2)]


def test_a_table_with_deletion_vectors_takes_rows(catalog: Catalog, lake: Lake) -> None:
    """Its format is v3, whose manifests PyIceberg does not write: those of v2 are read as well."""
    create(catalog, numbers(1, 2, 3), **{"delta.enableDeletionVectors": "true"})
    catalog.table("shop.t").delete("id = 2")
    assert lake.append(numbers(4)).status == 200
    check_readers(catalog, lake, numbers(1, 3, 4))


def merged(table: Table, *, also: list[Any], files: list[Any]) -> Append:
    """An append whose client merged the manifests of the table into its own."""
    manifests = [ManifestToWrite(also, EXISTING), ManifestToWrite(files)]
    return Append(table, manifests=manifests, kept=0)


def test_manifests_that_the_client_merged_are_read(catalog: Catalog, lake: Lake) -> None:
    create(catalog, numbers(1))
    assert lake.append(numbers(2)).status == 200
    table = lake.load()
    live = [task.file for task in table.scan().plan_files()]
    assert lake.post(merged(table, also=live, files=data_files(table, numbers(3))).body()).status == 200
    check_readers(catalog, lake, numbers(1, 2, 3))


# ---- requests that come again


def test_a_repeated_request_is_answered_as_done(catalog: Catalog, lake: Lake) -> None:
    """Under any key, and also when the request names the newest state as its base."""
    create(catalog, numbers(1))
    table = lake.load()
    append = Append(table, data_files(table, numbers(2)))
    body = append.body()
    keys = ["7f1a0c1e-0000-4000-8000-000000000001", "7f1a0c1e-0000-4000-8000-000000000002"]
    first = lake.post(body, **{"Idempotency-Key": keys[0]})
    answers = [lake.post(body), *(lake.post(body, **{"Idempotency-Key": key}) for key in keys)]
    rebuilt = Append(
        lake.load(), append.files, append.snapshot_id, list_path=append.table.location() + "/_iceberg/new.avro"
    )
    answers.append(lake.post(rebuilt.body()))
    assert [answer.status for answer in (first, *answers)] == [200] * 5
    assert all(answer.json["metadata"] == first.json["metadata"] for answer in answers)
    lake.load().append(numbers(3))
    assert lake.post(body).json["metadata"] == lake.wire.get("/v1/namespaces/shop/tables/t").json["metadata"]
    check_readers(catalog, lake, numbers(1, 2, 3))
    assert catalog.table("shop.t").version() == 2


def test_a_repeat_for_another_table_is_not_taken_for_the_first(catalog: Catalog, lake: Lake) -> None:
    create(catalog, numbers(1))
    create(catalog, numbers(1), name="u")
    table = lake.load()
    body = Append(table, data_files(table, numbers(2))).body()
    assert lake.post(body).status == 200
    assert lake.post(body, "u").error == (409, "CommitFailedException")


# ---- several tables


def transaction(lake: Lake, *changes: dict[str, Any]) -> Any:
    return lake.wire.post("/v1/transactions/commit", {"table-changes": list(changes)})


def test_one_request_appends_to_tables_of_both_formats(catalog: Catalog, lake: Lake) -> None:
    create(catalog, numbers(1))
    create(catalog, numbers(10), name="u")
    native = catalog.iceberg().create_table("shop.native", numbers().schema)
    tables = [lake.load("t"), lake.load("u")]
    bodies = [
        change_of(name, Append(table, data_files(table, numbers(2))).body())
        for name, table in zip("tu", tables, strict=True)
    ]
    snapshot_id = new_id()
    native_snapshot = {
        "snapshot-id": snapshot_id, "sequence-number": 1, "timestamp-ms": native.metadata.last_updated_ms + 1,
        "manifest-list": f"{native.location()}/metadata/snap.avro", "summary": {"operation": "append"}, "schema-id": 0,
    }  # fmt: skip
    updates: list[dict[str, Any]] = [{"action": "add-snapshot", "snapshot": native_snapshot}]
    updates.append({"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": snapshot_id})
    change = change_of("native", {"requirements": [], "updates": updates})
    assert transaction(lake, *bodies, change).status == 204
    assert (ids_in(catalog, "shop.t"), ids_in(catalog, "shop.u")) == ([1, 2], [2, 10])
    snapshot = catalog.iceberg("shop.native").current_snapshot()
    assert snapshot is not None
    assert snapshot.snapshot_id == snapshot_id
    assert len({catalog.table(f"shop.{name}").history(1)[0]["txnId"] for name in "tu"}) == 1
    assert transaction(lake, *bodies).status == 204
    assert (ids_in(catalog, "shop.t"), ids_in(catalog, "shop.u")) == ([1, 2], [2, 10])


def test_if_one_table_refuses_no_table_changes(catalog: Catalog, lake: Lake) -> None:
    create(catalog, numbers(1))
    create(catalog, numbers(1), name="u")
    native = catalog.iceberg().create_table("shop.native", numbers().schema)
    table, other = lake.load(), lake.load("u")
    good = change_of("t", Append(table, data_files(table, numbers(2))).body())
    bad = change_of("u", Append(other, data_files(other, numbers(2)), operation="overwrite").body())
    change = change_of("native", {"requirements": [], "updates": [{"action": "set-properties", "updates": {"a": "b"}}]})
    assert transaction(lake, good, change, bad).error == (400, "BadRequestException")
    assert (ids_in(catalog, "shop.t"), ids_in(catalog, "shop.u")) == ([1], [1])
    assert "a" not in catalog.iceberg("shop.native").properties
    assert native.metadata == catalog.iceberg("shop.native").metadata
    assert transaction(lake, good, change).status == 204
    assert (ids_in(catalog, "shop.t"), catalog.iceberg("shop.native").properties["a"]) == ([1, 2], "b")
