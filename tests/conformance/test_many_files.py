"""A commit of many files leaves behind what the same files leave behind in small commits."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from deltalakedb import Catalog
from deltalakedb.exceptions import InvalidCommitError
from deltalakedb.log.protocol.actions import Action, AddFile, AppTransaction, CommitInfo, DeletionVector, RemoveFile
from deltalakedb.store import registry as reg
from deltalakedb.store.commit_sizes import MANY_FILES
from deltalakedb.store.connection import Row
from deltalakedb.store.loader import SLICE_FILES
from deltalakedb.store.reader import SqlTxnLogReader
from tests.conformance.transacting import open_catalog

MANY = MANY_FILES + 200
SMALL = 100
PROPERTIES = {"delta.enableDeletionVectors": "true"}
STATS = [
    '{"numRecords":%d,"minValues":{"id":%d,"name":"a%d"},"maxValues":{"id":%d,"name":"b"},"nullCount":{"id":0}}',
    '{"numRecords":%d,"minValues":{"id":%d,"name":"\\u00e9\\"%d"},"maxValues":{"id":%d}}',
    '{"numRecords":%d,"tightBounds":false,"minValues":{"id":%d},"x":[%d,%d]}',
]


def add(number: int, *, odd: bool = False) -> AddFile:
    stats: str | None = STATS[number % len(STATS)] % (number, number, number, number + 5)
    if odd and number % 50 == 0:
        stats = [None, "", "no statistics", '{"numRecords":1.0}', '{"minValues":{"id":"x"}}'][number // 50 % 5]
    day = None if number % 9 == 0 else f"2024-01-{number % 28 + 1:02}"
    path = f"day={day}/part-{number}.parquet" if number % 7 else f"de\\pt-\u00e9-{number}.parquet"
    vector = DeletionVector("u", "ab^-aqEH.-t@S}K{vb[*k^", 36, 0, number) if not odd and number % 11 == 0 else None
    return AddFile(path, {"day": day}, 100 + number, number, number % 2 == 0, stats, deletion_vector=vector)


def create(catalog: Catalog, name: str) -> reg.TableRow:
    schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("day", pa.date32())])
    catalog.create_table(name, schema, ["day"], properties=PROPERTIES)
    with catalog.store.read() as conn:
        row = reg.resolve_table(conn, *name.split("."))
    assert row is not None
    return row


def commit(catalog: Catalog, name: str, actions: list[Action]) -> None:
    with catalog.begin() as tx:
        tx.commit_actions(name, actions, read="table")


def live(catalog: Catalog, row: reg.TableRow) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]], object]:
    """Live files, their bounds and the counters of the head: what does not depend on how files came in."""
    with catalog.store.read() as conn:
        files = conn.sql(
            "select path, dv_id, key_hash, size, modification_time, data_change, num_records, partition_values, stats, "
            "deletion_vector, extra from dl_add_files where table_id = :table_id and removed_version = :live "
            "order by path, dv_id",
            table_id=row.table_id,
            live=2**63 - 1,
        )
        bounds = conn.sql(
            "select a.path, a.dv_id, c.column_path, b.width_class, b.lower, b.upper, b.lower_text, b.upper_text, "
            "b.null_count from dl_file_bounds b join dl_add_files a on a.table_id = b.table_id and a.file_id = "
            "b.file_id join dl_bounds_columns c on c.table_id = b.table_id and c.column_id = b.column_id "
            "where b.table_id = :table_id and a.removed_version = :live order by a.path, a.dv_id, c.column_path",
            table_id=row.table_id,
            live=2**63 - 1,
        )
        head = reg.read_head(conn, row.table_id)
    assert head is not None
    counters = (head.num_files, head.num_records, head.files_without_records, head.size_bytes)
    return [tuple(_plain(one).values()) for one in files], [tuple(one.values()) for one in bounds], counters


def _plain(row: Row) -> Row:
    return {**row, "key_hash": bytes(row["key_hash"]), "data_change": bool(row["data_change"])}


def together(actions: list[Action]) -> list[list[Action]]:
    """The actions of one path beside each other: they belong into one commit."""
    removes = {action.path: action for action in actions if isinstance(action, RemoveFile)}
    pairs: list[list[Action]] = []
    for action in actions:
        if isinstance(action, AddFile):
            remove = removes.pop(action.path, None)
            pairs.append([action] if remove is None else [action, remove])
    pairs.extend([remove] for remove in removes.values())
    return pairs


@pytest.mark.parametrize("odd", [False, True])
def test_many_files_of_one_commit_are_what_they_are_in_small_commits(target: str, tmp_path: Path, odd: bool) -> None:
    adds: list[Action] = [add(number, odd=odd) for number in range(MANY)]
    again: list[Action] = []
    for number in range(0, MANY, 3):
        old = add(number, odd=odd)
        again += [RemoveFile.of(old, at_ms=1)] if number % 2 else [add(number, odd=not odd)]
        if number % 2 == 0 and old.deletion_vector != add(number, odd=not odd).deletion_vector:
            again.append(RemoveFile.of(old, at_ms=1))
    again += [add(number, odd=odd) for number in range(MANY, 3 * MANY)]
    with open_catalog(target, tmp_path) as catalog:
        large, small = create(catalog, "lab.large"), create(catalog, "lab.small")
        for actions in (adds, again):
            commit(catalog, "lab.large", [AppTransaction("app", len(actions)), *actions])
            pairs = together(actions)
            for start in range(0, len(pairs), SMALL):
                commit(catalog, "lab.small", [action for pair in pairs[start : start + SMALL] for action in pair])
            assert live(catalog, large) == live(catalog, small)
        reader = SqlTxnLogReader(catalog.store, large)
        told = [action for action in next(iter(reader.commits(2))).actions if not isinstance(action, CommitInfo)]
        assert told == [AppTransaction("app", len(again)), *again]


def test_the_file_of_a_large_commit_has_the_bytes_that_sql_would_render(target: str, tmp_path: Path) -> None:
    adds: list[Action] = [add(number) for number in range(3_000)]
    with open_catalog(target, tmp_path, mirror_mode="inline") as catalog:
        row = create(catalog, "lab.large")
        commit(catalog, "lab.large", adds)
        written = (Path(row.location.removeprefix("file://")) / "_delta_log" / f"{1:020}.json").read_bytes()
        (told,) = SqlTxnLogReader(catalog.store, row).mirror_commits(1, 1)
    assert written == told.data
    assert len(written.splitlines()) == len(adds) + 1


def test_more_files_than_are_written_at_once_are_all_there(target: str, tmp_path: Path) -> None:
    count = SLICE_FILES + 10
    stats = json.dumps({"numRecords": 2, "minValues": {"id": 1}, "maxValues": {"id": 2}, "nullCount": {"id": 0}})
    adds: list[Action] = [AddFile(f"f{n}", {"day": None}, n, 1, True, stats) for n in range(count)]
    with open_catalog(target, tmp_path, mirror_mode="off") as catalog:
        row = create(catalog, "lab.large")
        commit(catalog, "lab.large", adds)
        files, bounds, counters = live(catalog, row)
        assert (len(files), len(bounds)) == (count, 3 * count)
        assert counters == (count, 2 * count, 0, sum(range(count)))
        missing: list[Action] = [
            RemoveFile("nobody", True),
            *(AddFile(f"g{n}", {"day": None}, 1, 1, True) for n in range(MANY)),
        ]
        with pytest.raises(InvalidCommitError, match="removes nobody, which is not in the table"):
            commit(catalog, "lab.large", missing)
        assert live(catalog, row) == (files, bounds, counters)
