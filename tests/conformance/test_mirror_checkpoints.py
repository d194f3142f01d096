"""Checkpoints, checksums and clean-up of the mirror: right, made by one process at a time, and holding nothing back."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from deltalakedb.log.protocol.actions import AddFile, RemoveFile
from deltalakedb.mirror import bookkeeping
from deltalakedb.mirror.engine import MirrorEngine
from deltalakedb.store import Store
from tests.conformance.mirrored import Managed, adds, removes
from tests.conformance.proposing import drop
from tests.fixtures.sizes import sized

DAY_MS = 86_400_000


@pytest.fixture
def table(store: Store, tmp_path: Path) -> Managed:
    """A table that wants a checkpoint every four versions."""
    return Managed.create(store, tmp_path / "lake" / "orders", configuration={"delta.checkpointInterval": "4"})[0]


@pytest.fixture
def mirror(table: Managed) -> Iterator[MirrorEngine]:
    with table.engine() as engine:
        engine.mirror_table(table.row)
        yield engine


def checkpoints(table: Managed) -> list[int]:
    return sorted(int(path.name[:20]) for path in table.folder.glob("*.checkpoint.parquet"))


def remembered(table: Managed) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.store.select("select * from dl_checkpoints").to_pylist()
    return rows


def append(table: Managed, mirror: MirrorEngine, number: int) -> None:
    """Commits, each with all that follows it before the next."""
    for outcome in (table.append(1)[0] for _ in range(number)):
        mirror.after_commit(outcome)
        assert mirror.flush()


# -- checkpoints


def test_a_checkpoint_comes_with_every_so_many_versions(table: Managed, mirror: MirrorEngine) -> None:
    append(table, mirror, 9)
    assert checkpoints(table) == [4, 8]
    assert json.loads((table.folder / "_last_checkpoint").read_bytes())["version"] == 8
    (row,) = remembered(table)
    assert (row["table_id"], row["version"], row["cleaned_before"]) == (table.row.table_id, 8, 0)
    assert row["written_at_ms"] >= table.head.last_commit_ms - 60_000


def test_the_setting_counts_where_the_table_says_nothing(store: Store, tmp_path: Path) -> None:
    table, _ = Managed.create(store, tmp_path / "lake" / "plain")
    with table.engine(mirror_checkpoint_interval=3) as mirror:
        append(table, mirror, 7)
    assert checkpoints(table) == [3, 6]


def test_an_interval_that_makes_no_sense_is_not_followed(store: Store, tmp_path: Path) -> None:
    table, _ = Managed.create(store, tmp_path / "lake" / "odd", configuration={"delta.checkpointInterval": "often"})
    with table.engine(mirror_checkpoint_interval=2) as mirror:
        append(table, mirror, 3)
    assert checkpoints(table) == [2]


def test_a_reader_finds_in_a_checkpoint_what_was_in_the_commits(table: Managed, mirror: MirrorEngine) -> None:
    append(table, mirror, 3)
    mirror.after_commit(table.delete("f-0-2.parquet"))
    append(table, mirror, 1)
    assert checkpoints(table) == [4]
    for version in range(5):
        (table.folder / f"{version:020d}.json").unlink()
    opened = DeltaTable(table.folder.parent)
    assert opened.version() == 5
    paths = sorted(opened.get_add_actions().column("path").to_pylist())
    assert paths == ["f-0-1.parquet", "f-0-3.parquet", "f-0-5.parquet"]
    assert opened.protocol().min_writer_version == 7
    assert "deltalakedb" in (opened.protocol().writer_features or [])


def test_a_checkpoint_left_undone_is_made_by_the_next_process(table: Managed) -> None:
    with table.engine() as first:
        first.mirror_table(table.row)
        assert take_claim(table, "somebody")
        append(table, first, 5)
    assert checkpoints(table) == []
    release_claim(table, "somebody")
    with table.engine() as second:
        append(table, second, 1)
    assert checkpoints(table) == [4]


def test_while_another_has_the_claim_commits_go_on_without_checkpoints(table: Managed, mirror: MirrorEngine) -> None:
    assert take_claim(table, "somebody")
    append(table, mirror, 6)
    assert checkpoints(table) == []
    assert len(table.commits_on_disk()) == 7
    assert table.failures() == []


def test_a_claim_whose_holder_died_runs_out(table: Managed, mirror: MirrorEngine) -> None:
    with table.store.write() as conn:
        past_ms = conn.now_ms() - 1
        conn.run(
            "take_lease", lease=f"checkpoint:{table.row.table_id}", holder="dead", until_ms=past_ms, now_ms=past_ms
        )
    append(table, mirror, 4)
    assert checkpoints(table) == [4]


def test_nobody_holds_a_claim_when_all_is_done(table: Managed, mirror: MirrorEngine) -> None:
    append(table, mirror, 4)
    assert checkpoints(table) == [4]
    assert table.store.select("select * from dl_leases").num_rows == 0


def test_a_checkpoint_that_cannot_be_written_holds_no_commit_back(
    table: Managed, mirror: MirrorEngine, caplog: pytest.LogCaptureFixture
) -> None:
    (table.folder / "00000000000000000004.checkpoint.parquet").mkdir()
    append(table, mirror, 6)
    assert len(table.commits_on_disk()) == 7
    assert table.head.mirrored_version == 6
    assert "no checkpoint" in caplog.text
    assert remembered(table) == []
    assert table.store.select("select * from dl_leases").num_rows == 0


def test_a_late_mirror_checkpoints_the_newest_version_that_is_due(table: Managed) -> None:
    table.append(13)
    with table.engine() as mirror:
        assert mirror.mirror_table(table.row).to_version == 13
    assert checkpoints(table) == [12]


# -- checksums


def checksum(table: Managed, version: int) -> dict[str, Any]:
    value = json.loads((table.folder / f"{version:020d}.crc").read_bytes())
    assert isinstance(value, dict)
    return value


def test_every_commit_gets_its_checksum(table: Managed, mirror: MirrorEngine) -> None:
    append(table, mirror, 3)
    for version in range(4):
        found = checksum(table, version)
        assert (found["numFiles"], found["tableSizeBytes"]) == (version, version * 100)
        assert (found["numMetadata"], found["numProtocol"]) == (1, 1)
        assert found["metadata"]["id"] == table.metadata.id
        assert "deltalakedb" in found["protocol"]["writerFeatures"]
        assert "inCommitTimestampOpt" not in found


def test_a_table_with_in_commit_timestamps_has_them_in_its_checksums(store: Store, tmp_path: Path) -> None:
    table, _ = Managed.create(
        store,
        tmp_path / "lake" / "timed",
        configuration={"delta.enableInCommitTimestamps": "true"},
        features=("inCommitTimestamp",),
    )
    with table.engine() as mirror:
        mirror.mirror_table(table.row)
        append(table, mirror, 2)
    for version in range(3):
        info = json.loads(table.commits_on_disk()[f"{version:020d}.json"].splitlines()[0])["commitInfo"]
        assert checksum(table, version)["inCommitTimestampOpt"] == info["inCommitTimestamp"]


@pytest.mark.in_turn
@pytest.mark.parametrize("seed", range(sized(3, 30)))
def test_at_every_version_of_a_random_history_the_checksum_equals_a_recount(table: Managed, seed: int) -> None:
    """Files that come, go, come again with other statistics or sizes, or without any; mirrored at once or late."""
    chance = random.Random(seed)
    live: dict[str, int] = {}
    counted = [(0, 0)]
    mirror = table.engine(mode=chance.choice(["inline", "background"]))
    for step in range(30):
        statements: list[tuple[AddFile | RemoveFile, ...]] = []
        for _ in range(chance.choice([1, 1, 3])):
            gone = chance.sample(sorted(live), k=min(len(live), chance.randrange(3)))
            again = [path for path in live if path not in gone and chance.random() < 0.2]
            fresh = [f"file-{step}-{len(counted)}-{n}" for n in range(chance.randrange(1, 4))]
            sizes = {path: chance.randrange(1, 1_000) for path in (*again, *fresh)}
            made = [
                add
                for path, size in sizes.items()
                for add in adds(path, size=size, num_records=chance.choice([None, 7]))
            ]
            statements.append((*removes(*gone), *made))
            live = {path: size for path, size in live.items() if path not in gone} | sizes
            counted.append((len(live), sum(live.values())))
        outcome = table.commit(*statements, reads=True)
        if chance.random() < 0.7:
            mirror.after_commit(outcome)
        if chance.random() < 0.3:
            mirror.flush()
    mirror.mirror_table(table.row)
    mirror.close()
    for version, (num_files, size_bytes) in enumerate(counted):
        found = checksum(table, version)
        assert (found["numFiles"], found["tableSizeBytes"]) == (num_files, size_bytes), version
    head = table.head
    assert (head.num_files, head.size_bytes) == counted[-1]


# -- clean-up


def make_old(table: Managed, last_version: int, days: int) -> None:
    """As if the versions up to one had been committed so long ago."""
    with table.store.write() as conn:
        at_ms = conn.now_ms() - days * DAY_MS
        for version in range(last_version + 1):
            conn.sql(
                "update dl_table_versions set committed_at_ms = :at_ms "
                "where table_id = :table_id and version = :version returning version",
                at_ms=at_ms + version,
                table_id=table.row.table_id,
                version=version,
            )
    for version in range(last_version + 1):
        seconds = (at_ms + version) / 1000
        os.utime(table.folder / f"{version:020d}.json", (seconds, seconds))


def test_old_commits_go_once_a_checkpoint_stands_for_them(table: Managed, mirror: MirrorEngine) -> None:
    append(table, mirror, 6)
    make_old(table, 6, 40)
    append(table, mirror, 2)
    assert checkpoints(table) == [4, 8]
    assert sorted(table.commits_on_disk()) == [f"{version:020d}.json" for version in range(4, 9)]
    assert sorted(path.name for path in table.folder.glob("*.crc")) == [
        f"{version:020d}.crc" for version in range(4, 9)
    ]
    assert remembered(table)[0]["cleaned_before"] == 4
    assert DeltaTable(table.folder.parent, version=5).version() == 5
    forget = table.engine()
    assert forget.mirror_table(table.row).num_written == 0
    forget.close()


@pytest.mark.parametrize(
    "configuration", [{"delta.enableExpiredLogCleanup": "false"}, {"delta.logRetentionDuration": "interval 100 days"}]
)
def test_a_table_may_keep_its_commits(store: Store, tmp_path: Path, configuration: dict[str, str]) -> None:
    table, _ = Managed.create(
        store, tmp_path / "lake" / "kept", configuration={"delta.checkpointInterval": "2", **configuration}
    )
    with table.engine() as mirror:
        mirror.mirror_table(table.row)
        append(table, mirror, 3)
        make_old(table, 3, 40)
        append(table, mirror, 1)
    assert checkpoints(table) == [2, 4]
    assert len(table.commits_on_disk()) == 5


def take_claim(table: Managed, holder: str) -> bool:
    with table.store.write() as conn:
        return bookkeeping.take_lease(conn, f"checkpoint:{table.row.table_id}", holder)


def release_claim(table: Managed, holder: str) -> None:
    with table.store.write() as conn:
        bookkeeping.release_lease(conn, f"checkpoint:{table.row.table_id}", holder)


def test_a_claim_is_kept_while_its_holder_works(table: Managed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bookkeeping, "LEASE_SECONDS", 1.2)
    assert take_claim(table, "slow")
    with bookkeeping.renewed(table.store, f"checkpoint:{table.row.table_id}", "slow"):
        time.sleep(1.6)  # longer than the lease; a renewal may be late on a busy machine
        assert not take_claim(table, "other")
    time.sleep(1.3)
    assert take_claim(table, "other")


def test_the_lag_view_knows_the_newest_checkpoint(table: Managed, mirror: MirrorEngine) -> None:
    append(table, mirror, 5)
    (row,) = table.store.select("select * from vw_mirror_lag").to_pylist()
    assert (row["checkpoint_version"], row["versions_behind"], row["state"]) == (4, 0, "live")
    with table.store.write() as conn:
        drop(conn, table.row, at_ms=conn.now_ms())
    assert table.store.select("select * from vw_mirror_lag").num_rows == 0
