"""DeltaTable.vacuum does what `deltalake`'s does, and never takes a file that a kept version needs."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import deltalakedb
from deltalakedb.exceptions import DeltaError
from deltalakedb.log.protocol.actions import AddFile, RemoveFile
from deltalakedb.log.protocol.commit import render_commit
from tests.api.both import Both

ROWS = {"id": list(range(6)), "p": ["a", "b"] * 3}
FREE: dict[str, Any] = {"retention_hours": 0, "enforce_retention_duration": False}


def data_files(folder: Path) -> set[str]:
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {str(path) for path in found if path.parts[0] not in {"_delta_log", "_dldb"}}


def found(lib: Any, **arguments: Any) -> int:
    return len(lib.table().vacuum(**{**FREE, **arguments}))


def test_vacuum_deletes_what_was_removed(everywhere: Both) -> None:
    both = everywhere
    both.seed(ROWS, ROWS)
    both.same(lambda lib: lib.table().optimize.compact()["numFilesRemoved"], exactly=True)
    both.same(lambda lib: found(lib), exactly=True)
    both.same(lambda lib: len(data_files(lib.folder)), exactly=True)
    both.same(lambda lib: found(lib, dry_run=False), exactly=True)
    both.same(lambda lib: len(data_files(lib.folder)), exactly=True)
    both.same_rows()
    both.same_history()


def test_less_than_the_table_promises_is_refused(both: Both) -> None:
    both.seed(ROWS)
    both.fails(lambda lib: lib.table().vacuum(0))
    both.fails(lambda lib: lib.table().vacuum(100, dry_run=False))
    both.fails(lambda lib: lib.table().vacuum(-1))
    both.same(lambda lib: lib.table().vacuum(169), exactly=True)
    both.same(lambda lib: lib.table().vacuum(), exactly=True)
    both.same_version()


def test_the_table_says_how_long(both: Both) -> None:
    both.seed(ROWS, ROWS, configuration={"delta.deletedFileRetentionDuration": "interval 1 hours"})
    both.same(lambda lib: lib.table().optimize.compact()["numFilesRemoved"])
    both.fails(lambda lib: lib.table().vacuum(0))
    both.same(lambda lib: lib.table().vacuum(2), exactly=True)


def test_full_takes_what_no_commit_names_and_leaves_hidden_folders(both: Both) -> None:
    both.seed(ROWS, partition_by=["p"])

    def litter(lib: Any) -> None:
        for name in ("left.parquet", ".hidden", "_work/x.parquet", "_change_data/c.parquet", "p=a/deep/note.txt"):
            at = lib.folder / name
            at.parent.mkdir(parents=True, exist_ok=True)
            at.write_bytes(b"x")

    both.same(litter)
    both.same(lambda lib: sorted(lib.table().vacuum(**FREE)), exactly=True)
    both.same(lambda lib: sorted(lib.table().vacuum(**FREE, full=True)), exactly=True)
    both.same(lambda lib: sorted(lib.table().vacuum(**FREE, full=True, dry_run=False)), exactly=True)
    both.same(lambda lib: sorted(name for name in data_files(lib.folder) if "part-" not in name), exactly=True)
    both.same_rows()


def test_versions_can_be_kept(both: Both) -> None:
    both.seed(ROWS, ROWS, ROWS)
    both.same(lambda lib: lib.table().optimize.compact()["numFilesRemoved"])
    both.same(lambda lib: [found(lib, keep_versions=keep) for keep in ([1], [0], [1, 2], [])], exactly=True)
    both.fails(lambda lib: lib.table().vacuum(**FREE, keep_versions=[99]))
    both.same(lambda lib: found(lib, keep_versions=[2], dry_run=False), exactly=True)
    both.same_rows(2)
    both.same_rows()


def test_arguments_by_position_are_deprecated(both: Both) -> None:
    both.seed(ROWS)
    both.same(lambda lib: lib.table().vacuum(200, True, True, None, None, True))


def connected(tmp_path: Path) -> deltalakedb.Catalog:
    return deltalakedb.connect(str(tmp_path / "c.db"), warehouse=str(tmp_path / "lake"))


def test_files_elsewhere_and_other_tables_inside_are_left_alone(tmp_path: Path) -> None:
    root = tmp_path / "t"
    deltalakedb.write_deltalake(str(root), pa.table({"id": [1]}))
    foreign, inside = tmp_path / "elsewhere.parquet", root / "kept here.parquet"
    shutil.copy(next(root.glob("*.parquet")), foreign)
    shutil.copy(foreign, inside)
    size = foreign.stat().st_size
    named = [str(foreign), inside.as_uri()]
    adds = [AddFile(path, {}, size, 1, True, '{"numRecords":1}') for path in named]
    (root / "_delta_log" / f"{1:020}.json").write_bytes(render_commit(adds, fenced=False))
    gone = [RemoveFile.of(adds[0], at_ms=1)]
    (root / "_delta_log" / f"{2:020}.json").write_bytes(render_commit(gone, fenced=False))
    deltalakedb.write_deltalake(str(root / "inner"), pa.table({"id": [1]}))
    table = deltalakedb.DeltaTable(str(root))
    assert table.to_pyarrow_table().num_rows == 2
    assert table.vacuum(**FREE, full=True, dry_run=False) == []
    assert foreign.exists(), "it lies outside of the table"
    assert inside.exists(), "it is live, however the log spells its path"
    assert deltalakedb.DeltaTable(str(root / "inner")).to_pyarrow_table().num_rows == 1


def test_vacuum_is_no_part_of_a_transaction(tmp_path: Path) -> None:
    cat = connected(tmp_path)
    cat.create_table("s.t", "id long")
    with cat.begin() as tx, pytest.raises(DeltaError, match="no part of a transaction"):
        tx.table("s.t").vacuum()


STEPS = st.sampled_from(["append", "delete", "update", "compact", "restore", "overwrite"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=8)
@given(
    steps=st.lists(STEPS, min_size=2, max_size=6),
    vectors=st.booleans(),
    full=st.booleans(),
    in_catalog=st.booleans(),
    pick=st.randoms(use_true_random=False),
)
def test_every_kept_version_can_be_read_after_a_vacuum(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], vectors: bool, full: bool, in_catalog: bool, pick: Any
) -> None:
    folder = tmp_path_factory.mktemp("vacuum")
    configuration = {"delta.enableDeletionVectors": str(vectors).lower(), "delta.enableChangeDataFeed": "true"}
    table = _new(folder, configuration, in_catalog)
    for number, step in enumerate(steps):
        _do(table, step, number)
    keep = sorted(pick.sample(range(table.version() + 1), pick.randint(0, min(2, table.version()))))
    wanted = {version: _rows_at(table, version) for version in (*keep, table.version())}
    orphan = Path(table.table_uri.removeprefix("file://")) / "orphan.parquet"
    orphan.write_bytes(b"x")
    os.utime(orphan, (time.time() - 10, time.time() - 10))
    doomed = table.vacuum(**FREE, full=full, keep_versions=keep)
    assert table.vacuum(**FREE, full=full, keep_versions=keep, dry_run=False) == doomed
    assert orphan.exists() != full
    for version, rows in wanted.items():
        assert _rows_at(table, version) == rows
    assert table.vacuum(**FREE, full=full, keep_versions=keep) == [], "what is left is needed"


def _new(folder: Path, configuration: dict[str, str], in_catalog: bool) -> deltalakedb.DeltaTable:
    if not in_catalog:
        deltalakedb.write_deltalake(str(folder / "t"), pa.table({"id": [0, 1, 2, 3]}), configuration=configuration)
        return deltalakedb.DeltaTable(str(folder / "t"))
    cat = connected(folder)
    cat.create_table("s.t", "id long", properties=configuration)
    with cat.begin() as tx:
        tx.write("s.t", pa.table({"id": [0, 1, 2, 3]}), mode="append")
    return cat.table("s.t")


def _do(table: deltalakedb.DeltaTable, step: str, number: int) -> None:
    more = pa.table({"id": [10 * number + offset for offset in range(4)]})
    match step:
        case "append" | "overwrite":
            deltalakedb.write_deltalake(table, more, mode=step)
            table.update_incremental()
        case "delete":
            table.delete("id % 4 = 1")
        case "update":
            table.update({"id": "id + 1"}, predicate="id % 4 = 2")
        case "compact":
            table.optimize.compact()
        case _:
            table.restore(table.version() - 1)


def _rows_at(table: deltalakedb.DeltaTable, version: int) -> list[int]:
    now = table.version()
    table.load_as_version(version)
    rows: list[int] = sorted(table.to_pyarrow_table().column("id").to_pylist())
    table.load_as_version(now)
    return rows
