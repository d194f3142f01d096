"""What a proposed commit must keep true: file actions, one sentence a rule."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltalakedb.exceptions import DeltaError, InvalidCommitError, UnsupportedFeatureError
from deltalakedb.log.checks.commit_checks import check_commit
from deltalakedb.log.protocol.actions import (
    Action,
    AddCDCFile,
    AddFile,
    AppTransaction,
    CheckpointMetadata,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    FileKey,
    Format,
    Metadata,
    Protocol,
    RemoveFile,
    Sidecar,
    UnknownAction,
)
from deltalakedb.log.protocol.commit import CommitChecker
from deltalakedb.log.schema.types import DataType, DecimalType, PrimitiveType, StructField, StructType
from tests.unit.log.strategies import actions as any_actions

SCHEMA = StructType((StructField("x", PrimitiveType("long")), StructField("day", PrimitiveType("date"))))
METADATA = Metadata("id", Format(), SCHEMA.to_json(), (), {})
BY_DAY = replace(METADATA, partition_columns=("day",))
PROTOCOL = Protocol(1, 2)
VECTORS = Protocol(3, 7, ("deletionVectors",), ("deletionVectors", "appendOnly"))
VECTOR = DeletionVector("u", "a" * 20, 30, 2)


def with_features(*names: str) -> Protocol:
    return Protocol(1, 7, None, names)


def add(path: str = "a.parquet", **fields: Any) -> AddFile:
    values: dict[str, Any] = {"partition_values": {}, "size": 1, "modification_time": 1, "data_change": True}
    return AddFile(path, **{**values, **fields})


def remove(path: str = "a.parquet", **fields: Any) -> RemoveFile:
    return RemoveFile(path, **{"data_change": True, "deletion_timestamp": 1, **fields})


def check(*actions: Action, protocol: Protocol = PROTOCOL, metadata: Metadata = METADATA, **options: Any) -> None:
    check_commit(actions, protocol=protocol, metadata=metadata, table="sales.orders", version=7, **options)


def refused(match: str, *actions: Action, **options: Any) -> None:
    with pytest.raises(InvalidCommitError, match=match) as raised:
        check(*actions, **options)
    assert str(raised.value).startswith("table sales.orders, version 7: ")
    assert "nothing was committed" in str(raised.value)


def test_an_ordinary_commit_passes() -> None:
    check(add(), remove("b.parquet"), AppTransaction("app", 1))
    check()
    check_commit(
        [PROTOCOL, BY_DAY, add(partition_values={"day": "2026-01-02"})],
        protocol=None,
        metadata=None,
        table="t",
        version=0,
    )


def test_a_first_commit_needs_protocol_and_metadata() -> None:
    for actions, missing in (([METADATA], "protocol"), ([PROTOCOL], "metaData"), ([add()], "protocol")):
        with pytest.raises(InvalidCommitError, match=f"no {missing} action"):
            check_commit(actions, protocol=None, metadata=None, table="t", version=0)


@pytest.mark.parametrize(
    ("actions", "why"),
    [
        ([add(), add()], "adds the file a.parquet twice"),
        ([add(), remove()], "adds and removes the file a.parquet"),
        ([remove(), remove()], "removes the file a.parquet twice"),
        ([METADATA, METADATA], "more than one metaData"),
        ([PROTOCOL, PROTOCOL], "more than one protocol"),
        ([AppTransaction("a", 1), AppTransaction("a", 2)], "more than one txn"),
        ([CommitInfo("{}")], "commitInfo"),
        ([Sidecar("s", 1, 1)], "checkpoints"),
        ([CheckpointMetadata("{}")], "checkpoints"),
        ([UnknownAction("rowIdHighWaterMark", "{}")], "unknown kind rowIdHighWaterMark"),
        ([add(size=-1)], "the size -1"),
        ([remove(size=-1)], "the size -1"),
    ],
)
def test_actions_that_cannot_be_in_one_commit_are_refused(actions: list[Action], why: str) -> None:
    refused(why, *actions)


def test_a_path_is_added_once_whatever_its_deletion_vectors() -> None:
    stats = '{"numRecords":5}'
    one, two = (add(deletion_vector=replace(VECTOR, offset=n), stats=stats) for n in (1, 2))
    refused("twice", one, two, protocol=VECTORS)
    check(remove(), one, protocol=VECTORS)


# ---- paths


@pytest.mark.parametrize(
    "path", ["part-0.parquet", "day=2026-01-02/part-0.parquet", "a%20b/c.parquet", "..a/b..c", "_x=1/a", ".hidden"]
)
def test_a_path_below_the_table_passes(path: str) -> None:
    check(add(path))


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("../a", "leaves the table's folder"),
        ("a/%2e%2e/%2E%2e/b", "leaves the table's folder"),
        ("a/..\\..\\b", "leaves the table's folder"),
        ("", "without a path"),
        ("/etc/passwd", "outside of the table's location"),
        ("file:///lake/other/a", "outside of the table's location"),
        ("file:///lake/orders/../other/a", "outside of the table's location"),
        ("file:///lake/orders2/a", "outside of the table's location"),
        ("s3://bucket/a", "outside of the table's location"),
        ("_delta_log/00000000000000000007.json", "part of the log"),
        ("%5Fdelta_log/a", "part of the log"),
        ("./a", "idle dot"),
        ("a/./b", "idle dot"),
    ],
)
def test_a_path_that_is_not_the_tables_own_is_refused(path: str, why: str) -> None:
    refused(why, add(path), location="file:///lake/orders")


def test_an_absolute_path_inside_of_the_table_passes() -> None:
    check(add("file:///lake/orders/a"), add("/lake/orders/b"), location="file:///lake/orders")
    check(add("s3://bucket/orders/a"), location="s3://bucket/orders/")
    refused("outside", add("s3://bucket/orders/a"))


def test_a_file_of_a_clone_may_get_a_deletion_vector_where_it_lies() -> None:
    elsewhere = "s3://bucket/original/a"
    check(remove(elsewhere), add(elsewhere, deletion_vector=VECTOR, stats='{"numRecords":5}'), protocol=VECTORS)
    check(remove(elsewhere))


def test_files_elsewhere_are_those_of_a_clone_or_were_in_the_table_before() -> None:
    elsewhere = add("s3://bucket/original/a")
    check(elsewhere, clones=True)
    check(elsewhere, restores=True)
    refused("leaves the table's folder", add("../a"), clones=True)


# ---- partitions


@pytest.mark.parametrize("values", [{}, {"day": "2026-01-02", "x": "1"}, {"Day": "2026-01-02"}, {"x": "1"}])
def test_partition_values_are_those_of_the_partition_columns(values: dict[str, str]) -> None:
    refused("the table's partition columns are day", add(partition_values=values), metadata=BY_DAY)
    if values:
        refused("partition columns are none", add(partition_values=values))
        refused("partition columns are day", remove(partition_values=values), metadata=BY_DAY)


@pytest.mark.parametrize(
    ("data_type", "good", "bad"),
    [
        (PrimitiveType("date"), ["2026-01-02", "", None], ["monday", "2026-13-01"]),
        (PrimitiveType("long"), ["-9223372036854775808", "0"], ["9223372036854775808", "1.0", "x"]),
        (PrimitiveType("integer"), ["2147483647"], ["2147483648"]),
        (PrimitiveType("short"), ["-32768"], ["32768"]),
        (PrimitiveType("byte"), ["127"], ["128"]),
        (PrimitiveType("boolean"), ["true", "False"], ["yes"]),
        (PrimitiveType("double"), ["1.5", "-1e9", "NaN"], ["one"]),
        (PrimitiveType("timestamp"), ["2026-01-02 03:04:05.6", "2026-01-02T03:04:05.6Z"], ["now"]),
        (PrimitiveType("string"), ["anything", "ü", "a/b"], []),
        (PrimitiveType("binary"), ["\x01"], []),
        (DecimalType(4, 2), ["12.34", "-99.99", "1", "1.200", "0"], ["123.45", "1.234", "100", "x"]),
    ],
    ids=str,
)
def test_a_partition_value_is_one_of_its_type(data_type: DataType, good: list[str | None], bad: list[str]) -> None:
    schema = StructType((StructField("x", PrimitiveType("long")), StructField("k", data_type)))
    metadata = replace(METADATA, schema_string=schema.to_json(), partition_columns=("k",))
    for number, value in enumerate(good):
        check(add(f"{number}", partition_values={"k": value}), metadata=metadata)
    for value in bad:
        refused("wrong partition value: k=", add(partition_values={"k": value}), metadata=metadata)


def test_a_partition_column_that_is_not_null_gets_no_null() -> None:
    schema = StructType((StructField("x", PrimitiveType("long")), StructField("k", PrimitiveType("string"), False)))
    metadata = replace(METADATA, schema_string=schema.to_json(), partition_columns=("k",))
    check(add(partition_values={"k": "v"}), metadata=metadata)
    for nothing in (None, ""):
        refused("k is null", add(partition_values={"k": nothing}), metadata=metadata)


def test_partition_values_go_by_physical_names_under_column_mapping() -> None:
    mapped = StructField(
        "k", PrimitiveType("long"), metadata={"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}
    )
    metadata = replace(METADATA, schema_string=StructType((mapped,)).to_json(), partition_columns=("k",))
    check(add(partition_values={"col-1": "5"}), metadata=metadata)
    refused("partition columns are col-1", add(partition_values={"k": "5"}), metadata=metadata)


def test_files_may_leave_under_the_partition_values_they_had() -> None:
    """An overwrite may change the partition columns with all files."""
    check(BY_DAY, remove(partition_values={"x": "1"}), metadata=replace(METADATA, partition_columns=("x",)))


# ---- deletion vectors


def test_a_deletion_vector_needs_the_feature() -> None:
    refused("no feature deletionVectors", add(deletion_vector=VECTOR, stats='{"numRecords":5}'))


@pytest.mark.parametrize(
    ("stats", "vector", "why"),
    [
        (None, VECTOR, "without numRecords"),
        ("{}", VECTOR, "without numRecords"),
        ("not json", VECTOR, "without numRecords"),
        ('{"numRecords":1}', VECTOR, "deletes 2 of 1 rows"),
        ('{"numRecords":9}', replace(VECTOR, storage_type="x"), "that is none"),
        ('{"numRecords":9}', replace(VECTOR, cardinality=-1), "that is none"),
    ],
)
def test_a_deletion_vector_must_be_sound(stats: str | None, vector: DeletionVector, why: str) -> None:
    refused(why, add(deletion_vector=vector, stats=stats), protocol=VECTORS)


def test_iceberg_compatible_tables_have_no_deletion_vectors() -> None:
    metadata = replace(METADATA, configuration={"delta.enableIcebergCompatV2": "true"})
    file = add(deletion_vector=VECTOR, stats='{"numRecords":5}')
    refused("Iceberg", file, protocol=VECTORS, metadata=metadata)


# ---- what the table allows


def test_an_append_only_table_loses_no_rows() -> None:
    append_only = replace(METADATA, configuration={"delta.appendOnly": "true"})
    refused("append-only", remove(), metadata=append_only)
    check(remove(data_change=False), add("b", data_change=False), metadata=append_only)
    refused("append-only", remove(), replace(METADATA, configuration={}), metadata=append_only)


def test_change_data_files_need_the_change_data_feed() -> None:
    cdc = AddCDCFile("_change_data/a", {}, 1, data_change=False)
    on = replace(METADATA, configuration={"delta.enableChangeDataFeed": "true"})
    feed = Protocol(1, 4)
    check(cdc, protocol=feed, metadata=on)
    refused("no change data feed", cdc, protocol=feed)
    refused("no change data feed", cdc, metadata=on)
    refused("as a change of data", replace(cdc, data_change=True), protocol=feed, metadata=on)
    refused("partition columns are none", replace(cdc, partition_values={"a": "b"}), protocol=feed, metadata=on)


def test_metadata_domains_need_the_feature_and_leave_deltas_own_alone() -> None:
    def domain(name: str) -> DomainMetadata:
        return DomainMetadata(name, "{}", removed=False)

    refused("no feature domainMetadata", domain("app"))
    check(domain("app"), protocol=with_features("domainMetadata"))
    refused("belongs to Delta", domain("delta.clustering"), protocol=with_features("domainMetadata"))
    check(domain("delta.clustering"), protocol=with_features("domainMetadata", "clustering"))
    check(domain("delta.rowTracking"), protocol=with_features("domainMetadata", "rowTracking"))
    refused("belongs to Delta", domain("delta.mine"), protocol=with_features("domainMetadata", "rowTracking"))


def test_a_table_whose_features_we_cannot_keep_true_is_not_written() -> None:
    with pytest.raises(UnsupportedFeatureError, match="coordinator"):
        check(add(), protocol=with_features("coordinatedCommits-preview"))


# ---- live files


def test_only_live_files_can_be_removed_and_that_is_asked_once() -> None:
    asked: list[set[FileKey]] = []

    def is_live(keys: Collection[FileKey]) -> set[FileKey]:
        asked.append(set(keys))
        return {key for key in keys if key[0] != "gone"}

    check(remove("a"), remove("b"), add("c"), is_live=is_live)
    assert asked == [{("a", ""), ("b", "")}]
    refused("removes gone, which is not in the table", remove("a"), remove("gone"), is_live=is_live)
    check(add("c"), is_live=is_live)
    assert len(asked) == 2


def test_a_file_with_a_deletion_vector_does_not_stand_beside_itself() -> None:
    file = add("a", deletion_vector=VECTOR, stats='{"numRecords":5}')
    refused("beside the whole file", file, protocol=VECTORS, is_live=set)
    check(file, protocol=VECTORS, is_live=lambda _: frozenset())
    check(file, remove("a"), protocol=VECTORS, is_live=set)


# ---- laws


@given(st.lists(any_actions, max_size=4))
def test_whatever_is_proposed_is_taken_or_refused_by_name_and_always_the_same(actions: list[Action]) -> None:
    answers = []
    for _ in range(2):
        try:
            check(*actions)
            answers.append("")
        except DeltaError as error:
            answers.append(f"{type(error)} {error}")
    assert answers[0] == answers[1]


def test_a_hundred_thousand_files_are_checked_in_the_time_of_a_blink() -> None:
    many = [add(f"day=2026-01-{n % 28 + 1:02}/{n}.parquet") for n in range(100_000)]
    many = [replace(file, partition_values={"day": file.path[4:14]}) for file in many]
    checker = CommitChecker("t", 1)
    begun = time.process_time()
    for file in many:
        checker.see(file)
    alone = time.process_time() - begun
    begun = time.process_time()
    check(*many, metadata=BY_DAY)
    assert time.process_time() - begun - alone < 0.5
