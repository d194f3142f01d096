"""Validate of a managed table: SQL is the authority, its files may be late but not different; and how to mend them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltalakedb import Catalog
from deltalakedb.exceptions import NotWritableError
from deltalakedb.mirror.validate import Drift
from deltalakedb.store.gc import DAY_MS, Retention, collect_garbage
from tests.conformance.transacting import ids_in, numbers, open_catalog

NAME = "sales.orders"
on_one_engine = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
"""For what happens in the files alone."""


@pytest.fixture
def catalog(target: str, tmp_path: Path) -> Iterator[Catalog]:
    with open_catalog(target, tmp_path) as opened:
        yield opened


@pytest.fixture
def log(catalog: Catalog, tmp_path: Path) -> Path:
    """The log of a table at version 5, with a checkpoint at 4 and a checksum of every version."""
    catalog.create_table(NAME, "id long", properties={"delta.checkpointInterval": "4"})
    append(catalog, *range(5))
    catalog.mirror.flush()
    folder = tmp_path / "lake" / "sales" / "orders" / "_delta_log"
    assert (folder / f"{4:020}.checkpoint.parquet").exists()
    assert (folder / f"{5:020}.crc").exists()
    return folder


def append(catalog: Catalog, *numbers_: int) -> None:
    for number in numbers_:
        with catalog.begin() as tx:
            tx.write(NAME, numbers(number), mode="append")


def the_drift(catalog: Catalog) -> Drift:
    (drift,) = catalog.validate(NAME).drifts
    return drift


def commit_file(log: Path, version: int) -> Path:
    return log / f"{version:020}.json"


# -- no drift


def test_files_that_say_what_sql_says_have_not_drifted(catalog: Catalog, log: Path) -> None:
    report = catalog.validate(NAME)
    assert (report.drifts, report.lag, report.sql_version, report.files_version) == ((), 0, 5, 5)
    assert (report.num_commits_compared, report.num_checkpoints_compared, report.num_checksums_compared) == (6, 1, 6)
    assert '"deltalakedb"' in commit_file(log, 0).read_text(), "the fence is in the files, and not in SQL"


def test_a_mirror_that_is_late_has_not_drifted(target: str, tmp_path: Path) -> None:
    with open_catalog(target, tmp_path, mirror_mode="off") as catalog:
        catalog.create_table(NAME, "id long")
        append(catalog, 1, 2)
        never = catalog.validate(NAME)
        assert (never.drifts, never.lag, never.files_version) == ((), 3, -1)
    with open_catalog(target, tmp_path) as catalog:
        append(catalog, 3)
    with open_catalog(target, tmp_path, mirror_mode="off") as catalog:
        append(catalog, 4)
        late = catalog.validate(NAME)
    assert (late.drifts, late.lag, late.num_commits_compared) == ((), 1, 4)


@pytest.mark.usefixtures("log")
def test_who_writes_meanwhile_does_not_look_like_drift(catalog: Catalog, target: str, tmp_path: Path) -> None:
    with open_catalog(target, tmp_path) as other:
        thread = threading.Thread(target=append, args=(other, *range(20)))
        thread.start()
        while thread.is_alive():
            assert catalog.validate(NAME).drifts == ()
        thread.join()
    assert catalog.validate(NAME).drifts == ()


def test_after_garbage_collection_and_clean_up_the_states_are_compared(catalog: Catalog, log: Path) -> None:
    append(catalog, *range(6))
    catalog.mirror.flush()
    collect_garbage(catalog.store, Retention(0, 0))
    for version in range(6):
        commit_file(log, version).unlink()
    report = catalog.validate(NAME)
    assert report.drifts == ()
    assert (report.num_commits_compared, report.num_states_compared) == (1, 2)


@on_one_engine
def test_files_from_which_no_state_can_be_rebuilt_are_drift(catalog: Catalog, log: Path) -> None:
    for version in range(5):
        commit_file(log, version).unlink()
    (log / f"{4:020}.checkpoint.parquet").unlink()
    (log / "_last_checkpoint").unlink()
    drift = the_drift(catalog)
    assert (drift.part, drift.version) == ("state", 5)
    assert "version 0 is missing" in drift.in_files
    assert catalog.repair(NAME).versions == (0, 1, 2, 3, 4)
    assert catalog.validate(NAME).drifts == ()


# -- drift in commits


def test_a_commit_of_another_writer_is_named_with_both_sides_and_the_way_out(catalog: Catalog, log: Path) -> None:
    commit_file(log, 6).write_text(json.dumps({"commitInfo": {"operation": "foreign"}}) + "\n")
    drift = the_drift(catalog)
    assert (drift.part, drift.version, drift.in_sql, drift.in_files) == ("versions", 6, "5 as the newest", "6")
    assert f"dl mirror resolve {NAME} --adopt" in drift.remedy


def test_a_foreign_commit_in_the_place_of_ours_is_named(
    target: str, catalog: Catalog, log: Path, tmp_path: Path
) -> None:
    with open_catalog(target, tmp_path, mirror_mode="off") as silent:
        append(silent, 7)
    commit_file(log, 6).write_text(json.dumps({"commitInfo": {"operation": "foreign"}}) + "\n")
    drift = the_drift(catalog)
    assert (drift.part, drift.version) == ("commit", 6)
    assert "action 1: SQL has " in drift.difference
    assert "foreign" in drift.in_files
    assert "resolve" in drift.remedy


def test_a_mirrored_file_that_was_changed_is_found_and_mended(catalog: Catalog, log: Path) -> None:
    right = commit_file(log, 3).read_bytes()
    commit_file(log, 3).write_text(right.decode().replace('"dataChange":true', '"dataChange":false'))
    drift = the_drift(catalog)
    assert (drift.part, drift.version) == ("commit", 3)
    assert "--repair" in drift.remedy
    commit_file(log, 3).unlink()
    assert catalog.repair(NAME).versions == (3,)
    assert commit_file(log, 3).read_bytes() == right
    assert catalog.validate(NAME).drifts == ()


@on_one_engine
def test_a_fence_that_somebody_took_off_is_drift(catalog: Catalog, log: Path) -> None:
    text = commit_file(log, 0).read_text()
    commit_file(log, 0).write_text(text.replace(',"deltalakedb"]', "]"))
    drift = the_drift(catalog)
    assert (drift.version, "deltalakedb" in drift.in_sql, "deltalakedb" in drift.in_files) == (0, True, False)


@on_one_engine
def test_a_file_that_is_no_commit_is_drift(catalog: Catalog, log: Path) -> None:
    commit_file(log, 2).write_text("not json\n")
    drift = the_drift(catalog)
    assert (drift.part, drift.version) == ("commit", 2)
    assert "cannot be read" in drift.in_files


@pytest.mark.parametrize("version", [2, 5])
def test_a_file_that_is_gone_is_drift_and_is_put_back(catalog: Catalog, log: Path, version: int) -> None:
    before = commit_file(log, version)
    data, modified = before.read_bytes(), before.stat().st_mtime_ns
    before.unlink()
    drift = the_drift(catalog)
    assert (drift.part, drift.version) == ("versions", version)
    assert catalog.repair(NAME).versions == (version,)
    assert (before.read_bytes(), before.stat().st_mtime_ns) == (data, modified)
    assert catalog.validate(NAME).drifts == ()
    assert catalog.audit(table=NAME)[0]["details"] == {"versions": [version], "num_versions": 1, "checkpoint": None}


def test_a_log_that_is_gone_altogether_is_made_anew(catalog: Catalog, log: Path) -> None:
    append(catalog, *range(6))
    catalog.mirror.flush()
    with catalog.store.read() as conn:
        now_ms = conn.now_ms()
    collect_garbage(catalog.store, Retention(0, now_ms + DAY_MS))  # SQL has only the last two versions
    for file in log.iterdir():
        file.unlink()
    assert the_drift(catalog).part == "versions"
    done = catalog.repair(NAME)
    assert (done.versions, done.checkpoint) == ((11,), 11)
    assert catalog.validate(NAME).drifts == ()
    rows = deltalake.DeltaTable(str(log.parent)).to_pyarrow_table()
    assert sorted(rows["id"].to_pylist()) == ids_in(catalog, NAME)


@on_one_engine
def test_where_nothing_is_lost_a_repair_does_nothing(catalog: Catalog, log: Path) -> None:
    before = {file.name: file.read_bytes() for file in log.iterdir()}
    done = catalog.repair(NAME)
    assert (done.versions, done.checkpoint) == ((), None)
    assert {file.name: file.read_bytes() for file in log.iterdir()} == before


def test_the_files_of_others_are_not_repaired(catalog: Catalog, tmp_path: Path) -> None:
    deltalake.write_deltalake(str(tmp_path / "theirs"), numbers(1))
    catalog.attach_table(tmp_path / "theirs", "a.b")
    with pytest.raises(NotWritableError, match="a.b is follower"):
        catalog.repair("a.b")


# -- drift in what is derived


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize("counter", ["num_files", "size_bytes", "num_records", "files_without_records"])
def test_a_counter_of_the_head_that_is_no_recount_is_drift(catalog: Catalog, counter: str) -> None:
    with catalog.store.write() as conn:
        conn.sql(f"update dl_table_heads set {counter} = {counter} + 1 returning table_id")
    drifts = {drift.part: drift for drift in catalog.validate(NAME).drifts}
    drift = drifts["counters"]
    assert drift.difference.startswith(f"{counter}: the head row says {drift.in_sql}")
    assert int(drift.in_sql) == int(drift.in_files) + 1


def rewrite(file: Path, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    table = pq.read_table(file)
    pq.write_table(pa.Table.from_pylist(change(table.to_pylist()), schema=table.schema), file)


@on_one_engine
def test_a_checkpoint_with_another_state_is_drift(catalog: Catalog, log: Path) -> None:
    rewrite(log / f"{4:020}.checkpoint.parquet", lambda rows: [row for row in rows if row["add"] is None])
    parts = {drift.part: drift for drift in catalog.validate(NAME).drifts}
    assert parts["checkpoint"].version == 4
    assert "active files: SQL has 4 that the other lacks" in parts["checkpoint"].difference


@on_one_engine
def test_a_broken_checkpoint_is_drift_and_is_replaced(catalog: Catalog, log: Path) -> None:
    checkpoint = log / f"{4:020}.checkpoint.parquet"
    checkpoint.write_bytes(checkpoint.read_bytes()[:100])
    drift = the_drift(catalog)
    assert (drift.part, drift.version) == ("checkpoint", 4)
    assert "cannot be read" in drift.in_files
    checkpoint.unlink()
    (log / "_last_checkpoint").unlink()
    assert catalog.repair(NAME).checkpoint == 5
    assert catalog.validate(NAME).drifts == ()


@on_one_engine
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"version":3,"size":5}', "names the checkpoint of version 3"),
        ('{"version":4,"size":5,"checksum":"00000000000000000000000000000000"}', "checksum"),
        ("nonsense", "JSON with a version"),
    ],
)
def test_a_wrong_pointer_to_the_newest_checkpoint_is_drift(catalog: Catalog, log: Path, text: str, words: str) -> None:
    (log / "_last_checkpoint").write_text(text)
    drift = the_drift(catalog)
    assert drift.part == "pointer"
    assert words in drift.difference
    assert "delete `_last_checkpoint`" in drift.remedy


@on_one_engine
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"numFiles": 99}, "checksum, numFiles: SQL has 3, the files have 99"),
        ({"tableSizeBytes": 0}, "checksum, tableSizeBytes"),
        ({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, "checksum, protocol"),
        ({"metadata": None}, "checksum: SQL has a checksum"),
    ],
)
def test_a_wrong_checksum_is_drift(catalog: Catalog, log: Path, change: dict[str, Any], words: str) -> None:
    file = log / f"{3:020}.crc"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    drift = the_drift(catalog)
    assert (drift.part, drift.version) == ("checksum", 3)
    assert words in drift.difference


@pytest.mark.usefixtures("log")
def test_a_frozen_table_is_validated_too(catalog: Catalog) -> None:
    from deltalakedb.store import registry

    with catalog.store.write() as conn:
        row = registry.resolve_table(conn, "sales", "orders")
        assert row is not None
        registry.change_table(conn, row.table_id, at_ms=conn.now_ms(), state="frozen")
    report = catalog.validate(NAME)
    assert (report.table.state, report.drifts) == ("frozen", ())
