"""`load_cdf`: the same changes as `deltalake` reads, for the same operations and from the same files."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import deltalakedb as dl
from tests.api.both import Both

FEED = {"delta.enableChangeDataFeed": "true"}
KEYS = [("_commit_version", "ascending"), ("_change_type", "ascending"), ("id", "ascending")]


def changes(reader: Any, *, times: bool = False) -> pa.Table:
    """Sorted, with plain texts; times are each library's own."""
    table = pa.table(reader)
    plain = [field.with_type(pa.string()) if field.type == pa.string_view() else field for field in table.schema]
    table = table.cast(pa.schema(plain))
    return (table if times else table.drop_columns(["_commit_timestamp"])).sort_by(KEYS)


@pytest.fixture(scope="module")
def fed(kept_anywhere: Both) -> Both:
    """Every kind of change; the tests only read it."""
    kept_anywhere.seed({"day": ["a", "b", "b"], "id": [1, 2, 3]}, partition_by=["day"], configuration=FEED)
    for lib in kept_anywhere.libraries:
        lib.table().delete("id = 2")
        lib.table().update(updates={"id": "id + 10"}, predicate="id = 1")
        lib.table().delete("day = 'b'")
        lib.write({"day": ["a", "b", "b"], "id": [1, 2, 3]}, mode="append")
        source = pa.table({"day": ["a", "c"], "id": [1, 7]})
        merger = lib.table().merge(source, "s.id = t.id", source_alias="s", target_alias="t")
        merger.when_matched_delete().when_not_matched_insert_all().execute()
        lib.write({"day": ["z"], "id": [9]}, mode="overwrite")
    return kept_anywhere


RANGES: list[dict[str, Any]] = [
    {}, {"starting_version": 2, "ending_version": 4}, {"starting_version": 5}, {"ending_version": 99},
    {"starting_version": 1, "ending_version": 1}, {"starting_timestamp": "2000-01-01T00:00:00Z"},
    {"ending_timestamp": "2099-01-01T00:00:00Z"}, {"ending_timestamp": "2000-01-01T00:00:00Z"},
    {"starting_version": 3, "starting_timestamp": "2000-01-01T00:00:00Z"},
    {"starting_version": 99, "allow_out_of_range": True}, {"predicate": "id > 2 and _change_type = 'insert'"},
    {"predicate": "_commit_version between 2 and 3 and day = 'a'"},
]  # fmt: skip


@pytest.mark.parametrize("arguments", RANGES, ids=str)
def test_changes_are_those_that_deltalake_reads(fed: Both, arguments: dict[str, Any]) -> None:
    theirs, ours = (changes(lib.table().load_cdf(**arguments)) for lib in fed.libraries)
    assert ours.schema.equals(theirs.schema)
    assert ours.to_pylist() == theirs.to_pylist()


def test_deltalake_reads_the_same_changes_from_our_files(fed: Both) -> None:
    judged = changes(deltalake.DeltaTable(fed.ours.folder).load_cdf(), times=True)
    assert changes(fed.ours.table().load_cdf(), times=True).equals(judged)


def test_columns_are_chosen_and_ordered(fed: Both) -> None:
    reader = fed.ours.table().load_cdf(columns=["_change_type", "id"], predicate="day = 'c'")
    assert pa.table(reader).to_pylist() == [
        {"_change_type": "insert", "id": 7},
        {"_change_type": "delete", "id": 7},
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        {"starting_version": 3, "ending_version": 2}, {"starting_version": 99}, {"starting_version": -1},
        {"starting_timestamp": "nope"}, {"starting_timestamp": "2099-01-01T00:00:00Z"}, {"columns": ["nosuch"]},
        {"predicate": "nosuch > 2"}, {"predicate": "id >"},
    ],
    ids=str,
)  # fmt: skip
def test_a_range_or_a_name_that_is_not_there_fails(fed: Both, arguments: dict[str, Any]) -> None:
    fed.fails(lambda lib: lib.table().load_cdf(**arguments))


def test_times_choose_commits(fed: Both) -> None:
    table = fed.ours.table()
    times = {entry["version"]: entry["timestamp"] for entry in table.history()}

    def versions(**arguments: str) -> set[int]:
        return set(table.load_cdf(**arguments).read_all().column("_commit_version").to_pylist())

    at = datetime.fromtimestamp(times[3] / 1000, UTC).isoformat()
    assert versions(starting_timestamp=at) == {3, 4, 5, 6, 7}
    assert versions(ending_timestamp=at) == {1, 2, 3}


def test_a_feed_starts_where_it_was_kept_and_ends_where_it_was_not(on_paths: Both) -> None:
    on_paths.seed({"id": [1]})
    on_paths.fails(lambda lib: lib.table().load_cdf())
    for lib in on_paths.libraries:
        deltalake.DeltaTable(lib.folder).alter.set_table_properties(FEED)
        deltalake.write_deltalake(lib.folder, pa.table({"id": [2]}), mode="append")
    on_paths.same(lambda lib: changes(lib.table().load_cdf(2)))
    for lib in on_paths.libraries:
        deltalake.DeltaTable(lib.folder).alter.set_table_properties({"delta.enableChangeDataFeed": "false"})
    on_paths.fails(lambda lib: lib.table().load_cdf(2))
    on_paths.same(lambda lib: changes(lib.table().load_cdf(2, 3)))


def test_rows_that_a_deletion_vector_takes_are_deletes(both: Both) -> None:
    """A writer that keeps no files for the feed changes only the vector; `deltalake` shows nothing right here."""
    both.ours.seed([pa.table({"id": [1, 2, 3]})], [], {"delta.enableDeletionVectors": "true"})
    both.ours.table().delete("id = 2")
    with both.ours.catalog.begin() as tx:
        tx.set_properties("api.t", FEED)
    table = both.ours.table()
    from deltalakedb.operations.cdf import read_changes

    reader = read_changes(
        table._backing.commits(1, 2),
        table="t",
        metadata=table._snapshot.metadata,
        storage=table._storage(),
        columns=None,
        predicate=None,
        values_before=lambda _: {},
    )
    found = [(row["_commit_version"], row["_change_type"], row["id"]) for row in reader.read_all().to_pylist()]
    assert sorted(found) == [(1, "insert", 1), (1, "insert", 2), (1, "insert", 3), (2, "delete", 2)]


def test_a_transaction_reads_the_feed_up_to_where_it_began(both: Both) -> None:
    both.ours.seed([pa.table({"id": [1]})], [], FEED)
    with both.ours.catalog.begin() as tx:
        tx.write("api.t", pa.table({"id": [2]}), mode="append")
        dl.write_deltalake(both.ours.uri, pa.table({"id": [3]}), mode="append")
        assert tx.table("api.t").load_cdf().read_all().column("id").to_pylist() == [1]
        tx.rollback()
