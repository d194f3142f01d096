"""Detaching a table: the fence goes off, the files have everything, and any writer may come again; crashes included."""

import json
from pathlib import Path

import deltalake
import pytest

import deltalakedb as dl
from deltalakedb.exceptions import MirrorError, NotWritableError
from deltalakedb.log.protocol.actions import Protocol
from deltalakedb.log.protocol.fence import FEATURE
from deltalakedb.mirror.detach import detach, plainest
from deltalakedb.mirror.engine import MirrorEngine
from deltalakedb.mirror.follow import attach
from deltalakedb.mirror.promote import promote
from deltalakedb.mirror.resolve import resolve
from deltalakedb.mirror.validate import validate
from deltalakedb.runtime.config import load_config
from deltalakedb.store.connection import Store
from deltalakedb.store.registry import TableRow
from tests.conformance.conftest import OpenStore
from tests.conformance.lives import (
    append,
    audited,
    foreign_append,
    head_of,
    kill_at,
    log_bytes,
    mirror,
    read_ids,
    row_of,
    write_rows,
)
from tests.fixtures.handmade import HandmadeTable
from tests.fixtures.s3 import S3


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    path = tmp_path / "t"
    write_rows(path, 0)
    write_rows(path, 1)
    return path


@pytest.fixture
def table(store: Store, lake: Path) -> TableRow:
    """Managed, at version 2, with the rows 0 and 1."""
    return promote(store, attach(store, str(lake), namespace="default", name="t").table).table


def engine_of(store: Store) -> MirrorEngine:
    return MirrorEngine(store, config=load_config(), mode="off")


def test_a_detached_table_has_everything_in_its_files_and_any_writer_may_write(
    store: Store, table: TableRow, lake: Path
) -> None:
    append(store, table, lake, 10)
    append(store, table, lake, 11)  # neither is mirrored yet
    with engine_of(store) as engine:
        result = detach(store, table, engine, actor="ann")
    assert (result.version, result.table.mode, result.table.state) == (5, "detached", "live")
    assert read_ids(lake) == [0, 1, 10, 11]
    write_rows(lake, 20)
    deltalake.DeltaTable(lake).delete("id = 0")
    assert read_ids(lake) == [1, 10, 11, 20]
    assert audited(store) == ["attach", "promote", "detach"]


def test_the_protocol_is_what_it_was_before_the_promotion(store: Store, table: TableRow, lake: Path) -> None:
    with engine_of(store) as engine:
        detach(store, table, engine)
    protocol = deltalake.DeltaTable(lake).protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version, protocol.writer_features) == (1, 2, None)


@pytest.mark.parametrize(
    ("protocol", "expected"),
    [
        (Protocol(1, 7, None, ("appendOnly", "invariants")), Protocol(1, 2)),
        (Protocol(1, 7, None, ()), Protocol(1, 1)),
        (Protocol(1, 2), Protocol(1, 2)),
        (
            Protocol(2, 7, None, ("columnMapping", "appendOnly", "invariants", "checkConstraints", "changeDataFeed",
                                  "generatedColumns")),
            Protocol(2, 5),
        ),
        (Protocol(1, 7, None, ("appendOnly",)), Protocol(1, 7, None, ("appendOnly",))),
        (Protocol(3, 7, (), ("appendOnly", "invariants")), Protocol(3, 7, (), ("appendOnly", "invariants"))),
    ],
)  # fmt: skip
def test_a_protocol_goes_back_to_its_legacy_version_only_where_that_says_the_same(
    protocol: Protocol, expected: Protocol
) -> None:
    assert plainest(protocol) == expected


def test_our_writers_are_refused_from_then_on(store: Store, table: TableRow, lake: Path) -> None:
    with engine_of(store) as engine:
        detach(store, table, engine)
    with pytest.raises(NotWritableError, match="was detached"):
        append(store, table, lake, 10)


def test_detaching_again_changes_nothing_and_a_follower_is_told_why(store: Store, table: TableRow, lake: Path) -> None:
    with engine_of(store) as engine:
        detach(store, table, engine)
        files = log_bytes(lake)
        assert detach(store, table, engine).already_detached
        assert log_bytes(lake) == files
        other = lake.parent / "other"
        write_rows(other, 1)
        follower = attach(store, str(other), namespace="default", name="other").table
        with pytest.raises(NotWritableError, match="follower.*nothing to detach"):
            detach(store, follower, engine)


@pytest.mark.in_turn
@pytest.mark.parametrize("step", ["commit.written", "commit.committed", "detach.committed", "mirror.json_temp",
                                  "mirror.json_linked", "detach.mirrored", "detach.done"])  # fmt: skip
def test_a_detach_killed_at_any_step_is_finished_by_the_next_one(
    open_again: OpenStore, target: str, lake: Path, step: str
) -> None:
    store = open_again()
    managed = promote(store, attach(store, str(lake), namespace="default", name="t").table).table
    append(store, managed, lake, 10)
    store.close()
    kill_at(step, target, "cat.detach_table('t')")
    store = open_again()
    row = row_of(store)
    if step == "commit.written":
        assert (row.mode, row.state) == ("managed", "live"), "what is not committed has not happened"
    elif step == "detach.done":
        assert (row.mode, row.state) == ("detached", "live")
    else:
        assert (row.mode, row.state) == ("managed", "detaching")
        with pytest.raises(NotWritableError, match="detaching"):
            append(store, managed, lake, 11)
    with engine_of(store) as engine:
        result = detach(store, row, engine)
    assert (result.version, result.table.mode) == (4, "detached")
    assert len(log_bytes(lake)) == 5, "one fence-off, however often it was tried"
    assert read_ids(lake) == [0, 1, 10]
    write_rows(lake, 20)
    assert read_ids(lake) == [0, 1, 10, 20]


def test_files_that_cannot_be_written_leave_the_table_detaching(store: Store, table: TableRow, lake: Path) -> None:
    append(store, table, lake, 10)
    log, aside = lake / "_delta_log", lake / "aside"
    log.rename(aside)
    log.write_text("in the way")
    with engine_of(store) as engine, pytest.raises(MirrorError, match=r"(?s)not yet done.*dl detach default.t"):
        detach(store, table, engine)
    assert row_of(store).state == "detaching"
    log.unlink()
    aside.rename(log)
    with engine_of(store) as engine:
        assert detach(store, table, engine).table.mode == "detached"
    assert read_ids(lake) == [0, 1, 10]


def test_a_table_once_detached_is_promoted_again_with_what_others_wrote_meanwhile(
    store: Store, table: TableRow, lake: Path
) -> None:
    with engine_of(store) as engine:
        detach(store, table, engine)
        write_rows(lake, 20)
        again = promote(store, row_of(store))
        assert (again.version, again.table.mode) == (5, "managed")
        append(store, again.table, lake, 30)
        mirror(store, again.table)
        assert read_ids(lake) == [0, 1, 20, 30]
        with pytest.raises(deltalake.exceptions.DeltaError, match=FEATURE):
            write_rows(lake, 40)
        assert detach(store, again.table, engine).version == 7
    write_rows(lake, 40)
    assert read_ids(lake) == [0, 1, 20, 30, 40]


def test_attaching_a_detached_table_follows_it_again(target: str, lake: Path) -> None:
    with dl.connect(target) as cat:
        cat.import_table(lake, "t")
        cat.detach_table("t")
        write_rows(lake, 20)
        followed = cat.attach_table(lake, "t")
        assert (followed.mode, followed.version()) == ("follower", 4)
        write_rows(lake, 21)
        assert cat.follow("t")[0].to_version == 5
        assert cat.import_table(lake, "t").mode == "managed"


def test_dropping_a_managed_table_detaches_it_first(target: str, lake: Path) -> None:
    with dl.connect(target) as cat:
        cat.import_table(lake, "t")
        cat.drop_table("t")
        assert cat.tables() == []
        write_rows(lake, 20)
        assert read_ids(lake) == [0, 1, 20]
        assert cat.import_table(lake, "again").mode == "managed"


def test_an_external_writer_before_the_detach_is_resolved_and_the_detach_goes_on(
    store: Store, table: TableRow, lake: Path, tmp_path: Path
) -> None:
    append(store, table, lake, 10)
    foreign_append(lake, tmp_path / "scratch", 20)
    with engine_of(store) as engine:
        with pytest.raises(dl.CommitFailedError, match="frozen"):
            detach(store, table, engine)
        assert row_of(store).state == "frozen"
        resolve(store, table, "adopt")
        assert row_of(store).state == "detaching", "its own last commit took the fence off"
        result = detach(store, table, engine)
    assert (result.version, result.table.mode) == (5, "detached")
    assert read_ids(lake) == [0, 1, 10, 20]
    assert head_of(store, table).mirrored_version == 5


def test_a_table_with_in_commit_timestamps_keeps_them_to_the_end(store: Store, handmade: HandmadeTable) -> None:
    handmade.create()
    line = json.loads(handmade.commit_path(0).read_text().splitlines()[1])
    line["metaData"]["configuration"] = {"delta.enableInCommitTimestamps": "true"}
    features = ["appendOnly", "invariants", "inCommitTimestamp"]
    handmade.commit(
        {"commitInfo": {"inCommitTimestamp": 1_700_000_000_000, "operation": "SET"}},
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}},
        line,
    )
    managed = promote(store, attach(store, str(handmade.path), namespace="default", name="t").table).table
    with engine_of(store) as engine:
        detach(store, managed, engine)
    stamps = [json.loads(handmade.commit_path(v).read_text().splitlines()[0])["commitInfo"] for v in (1, 2, 3)]
    assert [info["inCommitTimestamp"] for info in stamps] == sorted({info["inCommitTimestamp"] for info in stamps})
    protocol = json.loads(handmade.commit_path(3).read_text().splitlines()[1])["protocol"]
    assert protocol["writerFeatures"] == features


def test_a_table_on_s3_is_detached(store: Store, s3: S3) -> None:
    writing = {**s3.storage_options, "aws_conditional_put": "etag"}
    write_rows(s3.uri("t"), 0, options=writing)
    attached = attach(store, s3.uri("t"), namespace="default", name="t", storage_options=s3.storage_options).table
    managed = promote(store, attached, storage_options=s3.storage_options).table
    with MirrorEngine(store, config=load_config(), options_of=lambda _: s3.storage_options, mode="off") as engine:
        assert detach(store, managed, engine).version == 2
    write_rows(s3.uri("t"), 1, options=writing)
    assert read_ids(s3.uri("t"), options=s3.storage_options) == [0, 1]
    again = promote(store, row_of(store), storage_options=s3.storage_options)
    assert again.version == 4
    assert validate(store, again.table, storage_options=s3.storage_options).drift is None
