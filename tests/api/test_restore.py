"""DeltaTable.restore, repair, generate and what is asked of the log itself do what `deltalake`'s do."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import deltalakedb
from deltalakedb.schema import Field, PrimitiveType
from tests.api.both import Both, Library

ROWS = {"id": list(range(6)), "p": ["a", "b"] * 3}


def test_restore_brings_an_older_version_back(everywhere: Both) -> None:
    both = everywhere
    both.seed(ROWS, ROWS, ROWS)
    both.same(lambda lib: lib.table().restore(1), exactly=True)
    both.same_rows()
    both.same(lambda lib: lib.table().restore(3), exactly=True)
    both.same_rows()
    both.same_history()
    both.mirror_agrees()


def test_restore_undoes_changes_of_rows_and_columns(both: Both) -> None:
    both.seed(ROWS, ROWS)
    both.same(lambda lib: lib.table().delete("id > 2")["num_deleted_rows"])
    both.same(lambda lib: lib.table().alter.add_columns(lib.find("schema.Field")("n", _string(lib))))
    both.same(lambda lib: lib.table().restore(2), exactly=True)
    both.same_rows()
    both.same_schema()


def _string(lib: Library) -> Any:
    return lib.find("schema.PrimitiveType")("string")


@pytest.mark.parametrize("target", [2, 99, -1, 1.5, "foo", "2100-01-01T00:00:00Z"])
def test_what_cannot_be_restored_is_an_error(both: Both, target: Any) -> None:
    both.seed(ROWS, ROWS)
    both.fails(lambda lib: lib.table().restore(target))
    both.same_version()


def test_restore_takes_a_time(on_paths: Both) -> None:
    on_paths.seed(ROWS, ROWS)
    before = datetime(2000, 1, 1, tzinfo=UTC)
    on_paths.same(lambda lib: lib.table().restore(before), exactly=True)
    on_paths.same(lambda lib: lib.table().history(1)[0]["operationParameters"], exactly=True)
    on_paths.fails(lambda lib: lib.table().restore(datetime.now(UTC) + timedelta(days=1)))


def test_restore_past_a_vacuum_is_an_error_unless_files_may_be_missing(both: Both) -> None:
    both.seed(ROWS, ROWS)
    both.same(lambda lib: lib.table().optimize.compact()["numFilesAdded"])
    both.same(lambda lib: len(lib.table().vacuum(0, dry_run=False, enforce_retention_duration=False)), exactly=True)
    both.fails(lambda lib: lib.table().restore(1))
    both.same(lambda lib: lib.table().restore(1, ignore_missing_files=True), exactly=True)
    both.same(lambda lib: len(lib.table().repair()["files_removed"]), exactly=True)
    both.same_rows()


def test_repair_takes_out_what_is_gone(everywhere: Both) -> None:
    both = everywhere
    both.seed(ROWS, ROWS)
    both.same(lambda lib: lib.table().repair(), exactly=True)

    def lose(lib: Library) -> None:
        Path(min(lib.table().file_uris())).unlink()

    both.same(lose)
    both.same(lambda lib: len(lib.table().repair(dry_run=True)["files_removed"]), exactly=True)
    both.same(lambda lib: len(lib.table().repair()["files_removed"]), exactly=True)
    both.same_rows()
    both.same_history()


@pytest.mark.parametrize("partition_by", [[], ["p"]])
def test_generate_writes_lists_of_files(both: Both, partition_by: list[str]) -> None:
    both.seed(ROWS, ROWS, partition_by=partition_by)
    both.same(lambda lib: lib.table().generate())

    def lists(lib: Library) -> dict[str, bool]:
        root = lib.folder / "_symlink_format_manifest"
        files = {str(path.relative_to(root)): path.read_text() for path in root.rglob("manifest")}
        named = sorted(line for text in files.values() for line in text.splitlines())
        return dict.fromkeys(files, named == sorted(lib.table().file_uris()))

    outcome = both.same(lists, exactly=True)
    assert all(outcome.value.values())


def test_checkpoints_and_compacted_logs(anywhere: Both) -> None:
    both = anywhere
    both.seed(ROWS, ROWS, ROWS)
    both.same(lambda lib: lib.table().create_checkpoint())
    both.same(lambda lib: lib.table().compact_logs(0, 2))
    both.same(lambda lib: lib.table().compact_logs(0, 2))
    both.same(lambda lib: lib.table().cleanup_metadata())
    both.fails(lambda lib: lib.table().compact_logs(2, 1))
    both.fails(lambda lib: lib.table().compact_logs(1, 1))
    both.fails(lambda lib: lib.table().compact_logs(0, 10))

    def log(lib: Library) -> list[str]:
        names = {path.name for path in (lib.folder / "_delta_log").iterdir() if not path.name.startswith(".")}
        return sorted(name for name in names if not name.endswith(".crc"))

    both.same(log, exactly=True)

    def pointed(lib: Library) -> tuple[int, int]:
        value = json.loads((lib.folder / "_delta_log" / "_last_checkpoint").read_text())
        return value["version"], value["numOfAddFiles"]

    both.same(pointed, exactly=True)
    both.same_rows()
    both.mirror_agrees()


HOURS = {"an hour": "interval 1 hours", "a day": "interval 1 days", "nothing": "interval 0 days"}


@pytest.mark.parametrize(
    ("retention", "checkpoints", "ages"),
    [
        ("an hour", [2], {"0": 2, "1": 2, "2": 2, "3": 2}),
        ("a day", [2], {"0": 25, "1": 25, "2": 25, "3": 25}),
        ("a day", [2], {"0": 25, "1": 25}),
        ("a day", [2], {"0": 25, "1": 1, "2": 25}),
        ("a day", [1, 3], {"0": 25, "1": 25, "2": 25, "3": 25}),
        ("a day", [1, 3], {"0": 25, "1": 25, "2": 25, "3": 25, "1.checkpoint.parquet": 25, "3.checkpoint.parquet": 25}),
        ("a day", [], {"0": 25, "1": 25, "2": 25, "3": 25}),
        ("nothing", [2], {}),
    ],
)
def test_old_commits_go_when_a_checkpoint_stands_for_them(
    anywhere: Both, retention: str, checkpoints: list[int], ages: dict[str, int]
) -> None:
    """By the times of the files; `ages` are in hours, of commits where nothing else is said."""
    both = anywhere
    both.seed(ROWS, ROWS, ROWS, configuration={"delta.logRetentionDuration": HOURS[retention]})

    def age(lib: Library) -> None:
        for version in checkpoints:
            lib.table(version=version).create_checkpoint()
        for name, hours in ages.items():
            number, _, kind = name.partition(".")
            path = lib.folder / "_delta_log" / f"{int(number):020d}.{kind or 'json'}"
            os.utime(path, (time.time() - hours * 3600,) * 2)

    def left(lib: Library) -> list[str]:
        return sorted(path.name for path in (lib.folder / "_delta_log").glob("0*") if path.suffix != ".crc")

    both.same(age)
    both.same(lambda lib: lib.table().cleanup_metadata())
    both.same(left, exactly=True)
    both.same_rows()


@pytest.mark.parametrize(("checkpoints", "version"), [((9,), 5), ((3, 9), 5), ((3, 7, 9), 7), ((5,), 5), ((9,), 9)])
def test_clean_up_leaves_what_the_version_of_the_object_needs(
    anywhere: Both, checkpoints: tuple[int, ...], version: int
) -> None:
    both = anywhere
    both.seed(*[ROWS] * 9, configuration={"delta.logRetentionDuration": "interval 0 days"})

    def clean_up(lib: Library) -> list[str]:
        for number in checkpoints:
            lib.table(version=number).create_checkpoint()
        lib.table(version=version).cleanup_metadata()
        assert lib.table(version=version).version() == version
        return sorted(path.name for path in (lib.folder / "_delta_log").glob("0*") if path.suffix != ".crc")

    both.same(clean_up, exactly=True)


def test_a_transaction_restores_and_alters_several_tables(tmp_path: Path) -> None:
    cat = deltalakedb.connect(str(tmp_path / "c.db"), warehouse=str(tmp_path / "lake"))
    for name in ("s.a", "s.b"):
        deltalakedb.write_deltalake(cat.create_table(name, "id long"), pa.table({"id": [1]}), mode="append")
    with cat.begin() as tx:
        assert tx.restore("s.a", 0) == {"numRemovedFile": 1, "numRestoredFile": 0}
        tx.alter("s.b").add_columns(Field("note", PrimitiveType("string")))
        assert tx.table("s.a").totals().num_files == 0
        assert cat.table("s.a").totals().num_files == 1, "nobody else sees it yet"
    assert tx.result == {"s.a": 2, "s.b": 2}
    assert [field.name for field in cat.table("s.b").schema().fields] == ["id", "note"]
    assert cat.table("s.a").to_pyarrow_table().num_rows == 0


def test_a_transaction_restores_what_it_has_compacted_and_altered(tmp_path: Path) -> None:
    cat = deltalakedb.connect(str(tmp_path / "c.db"), warehouse=str(tmp_path / "lake"))
    cat.create_table("s.t", "id long")
    for number in range(2):
        deltalakedb.write_deltalake(cat.table("s.t"), pa.table({"id": [number]}), mode="append")
    with cat.begin() as tx:
        tx.optimize("s.t")
        tx.alter("s.t").set_table_description("compacted")
        tx.restore("s.t", 2)
    table = cat.table("s.t")
    assert (table.version(), table.metadata().description, table.totals().num_files) == (5, None, 2)
    assert sorted(table.to_pyarrow_table().column("id").to_pylist()) == [0, 1]
    assert cat.validate("s.t").drifts == ()
