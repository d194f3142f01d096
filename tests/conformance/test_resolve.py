"""Another writer's commit in the files, or a database behind its own: both become one story, nothing is overwritten."""

import json
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from deltalakedb.exceptions import CommitFailedError, ExternalWriterError, NotWritableError
from deltalakedb.files.writer import FileTxnLogWriter
from deltalakedb.log.protocol.actions import AppTransaction
from deltalakedb.log.protocol.fence import FEATURE
from deltalakedb.log.protocol.proposal import ProposedCommit
from deltalakedb.mirror.detach import open_registered
from deltalakedb.mirror.engine import MirrorEngine
from deltalakedb.mirror.follow import attach
from deltalakedb.mirror.promote import promote
from deltalakedb.mirror.resolve import Decision, resolve
from deltalakedb.mirror.validate import validate
from deltalakedb.runtime.config import load_config
from deltalakedb.store.connection import Store
from deltalakedb.store.proposals import Proposal, TableProposal
from deltalakedb.store.reader import SqlTxnLogReader
from deltalakedb.store.registry import TableRow
from deltalakedb.store.rewind import RESOLUTIONS
from deltalakedb.store.writer import SqlTxnLogWriter
from tests.conformance.lives import (
    append,
    audited,
    commit,
    delete_whole_files,
    dump,
    foreign_append,
    foreign_commit,
    foreign_delete,
    head_of,
    live_files,
    log_bytes,
    mirror,
    put_back,
    read_ids,
    row_of,
    write_file,
    write_rows,
)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    path = tmp_path / "t"
    write_rows(path, 0)
    write_rows(path, 1)
    return path


@pytest.fixture
def table(store: Store, lake: Path) -> TableRow:
    """Managed, at version 2 (the fence), with the rows 0 and 1."""
    attached = attach(store, str(lake), namespace="default", name="t").table
    return promote(store, attached).table


def frozen_by_the_mirror(store: Store, table: TableRow) -> None:
    with MirrorEngine(store, config=load_config(), mode="off") as engine, pytest.raises(ExternalWriterError):
        engine.mirror_table(table)
    assert row_of(store).state == "frozen"


def check_level(store: Store, table: TableRow, lake: Path, ids: list[int]) -> None:
    """SQL and the files say the same, `deltalake` reads these rows, and the head counts what is there."""
    mirror(store, row_of(store))
    assert validate(store, table).drift is None
    assert read_ids(lake) == ids
    head = head_of(store, table)
    with store.read() as conn:
        counted = conn.one("count_live_files", table_id=table.table_id)
        rows = conn.sql("select version from dl_table_versions order by version")
    assert counted is not None
    assert (head.num_files, head.size_bytes, head.num_records) == (
        int(counted["num_files"]), int(counted["size_bytes"] or 0), int(counted["num_records"] or 0),
    )  # fmt: skip
    assert [row["version"] for row in rows] == list(range(head.current_version + 1)), "gapless"
    assert row_of(store).state == "live"


def test_adopt_puts_ours_behind_the_other_writer_under_their_transactions(
    store: Store, table: TableRow, lake: Path, tmp_path: Path
) -> None:
    first, second = append(store, table, lake, 10, message="first"), append(store, table, lake, 11)
    foreign_append(lake, tmp_path / "scratch", 20)
    frozen_by_the_mirror(store, table)
    files = log_bytes(lake)
    done = resolve(store, table, "adopt", actor="bob", origin="test")
    assert (done.first_version, done.last_version, done.version, done.num_own) == (3, 3, 5, 0)
    assert [(one.old_version, one.new_version, one.txn_id) for one in done.recommitted] == [
        (3, 4, first.txn_id),
        (4, 5, second.txn_id),
    ]
    history = SqlTxnLogReader(store, table).history()
    assert [entry.txn_id for entry in history][:2] == [second.txn_id, first.txn_id]
    assert history[1].message == "first"
    check_level(store, table, lake, [0, 1, 10, 11, 20])
    assert files.items() <= log_bytes(lake).items(), "nothing was overwritten"
    assert audited(store) == ["attach", "promote", "freeze", "resolve"]
    info = json.loads(log_bytes(lake)[f"{5:020d}.json"].splitlines()[0])["commitInfo"]
    assert info["deltalakedb"]["participants"][0]["version"] == 5


def test_after_adopting_commits_go_on(store: Store, table: TableRow, lake: Path, tmp_path: Path) -> None:
    append(store, table, lake, 10)
    foreign_append(lake, tmp_path / "scratch", 20)
    frozen_by_the_mirror(store, table)
    with pytest.raises(NotWritableError, match="frozen"):
        append(store, table, lake, 12)
    resolve(store, table, "adopt")
    append(store, table, lake, 13)
    check_level(store, table, lake, [0, 1, 10, 13, 20])


def test_a_clash_changes_nothing_and_names_overrule(store: Store, table: TableRow, lake: Path) -> None:
    (gone, *_) = live_files(store, table)
    delete_whole_files(store, table, gone)
    append(store, table, lake, 10)
    foreign_delete(lake, gone)
    frozen_by_the_mirror(store, table)
    before = [head_of(store, table), live_files(store, table), SqlTxnLogReader(store, table).history(), log_bytes(lake)]
    for dry_run in (True, False):
        with pytest.raises(ExternalWriterError, match=r"our commits 3 to 4 clash.*Nothing was changed.*--overrule"):
            resolve(store, table, "adopt", dry_run=dry_run)
    after = [head_of(store, table), live_files(store, table), SqlTxnLogReader(store, table).history(), log_bytes(lake)]
    assert before == after
    assert row_of(store).state == "frozen"


def test_overrule_undoes_the_other_writer_and_keeps_ours(
    store: Store, table: TableRow, lake: Path, tmp_path: Path
) -> None:
    zero, one = sorted(live_files(store, table), key=lambda path: read_ids_of(lake, path))
    kept = delete_whole_files(store, table, zero)
    append(store, table, lake, 10)
    ours = live_files(store, table)
    foreign_delete(lake, zero, one)
    foreign_append(lake, tmp_path / "scratch", 20, 21)
    files = log_bytes(lake)
    done = resolve(store, table, "overrule", actor="bob")
    assert (done.first_version, done.last_version, done.compensating_version, done.version) == (3, 4, 5, 7)
    assert live_files(store, table) == ours
    assert SqlTxnLogReader(store, table).history()[1].txn_id == kept.txn_id
    check_level(store, table, lake, [1, 10])
    assert files.items() <= log_bytes(lake).items()
    assert read_ids(lake, version=4) == [20, 21], "what the other writer did stays in the history"
    assert SqlTxnLogReader(store, table).history()[2].operation == "RESOLVE"


def read_ids_of(lake: Path, path: str) -> list[int]:
    return [int(value) for value in pq.read_table(lake / path).column("id").to_pylist()]


def test_a_dry_run_says_what_would_be_done_and_does_nothing(
    store: Store, table: TableRow, lake: Path, tmp_path: Path
) -> None:
    append(store, table, lake, 10)
    foreign_append(lake, tmp_path / "scratch", 20)
    before = (head_of(store, table), SqlTxnLogReader(store, table).history(), audited(store))
    decisions: tuple[Decision, ...] = ("adopt", "overrule")
    for decision in decisions:
        done = resolve(store, table, decision, dry_run=True)
        assert (done.first_version, done.dry_run, len(done.recommitted)) == (3, True, 1)
    assert (head_of(store, table), SqlTxnLogReader(store, table).history(), audited(store)) == before
    assert row_of(store).state == "live", "not even frozen"


def test_nothing_to_resolve_is_said_and_a_frozen_table_is_let_go(store: Store, table: TableRow, lake: Path) -> None:
    assert resolve(store, table, "adopt").first_version is None
    append(store, table, lake, 10)
    path = lake / "_delta_log" / f"{3:020d}.json"
    path.write_text('{"commitInfo":{}}\n')
    frozen_by_the_mirror(store, table)
    path.unlink()
    assert resolve(store, table, "adopt").first_version is None
    check_level(store, table, lake, [0, 1, 10])


def test_a_fence_that_was_taken_off_is_put_back(store: Store, table: TableRow, lake: Path) -> None:
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["appendOnly", "invariants"]}
    foreign_commit(lake, json.dumps({"commitInfo": {}}), json.dumps({"protocol": protocol}))
    write_rows(lake, 20)
    done = resolve(store, table, "adopt")
    assert (done.first_version, done.last_version, done.fence_version, done.version) == (3, 4, 5, 5)
    check_level(store, table, lake, [0, 1, 20])
    with pytest.raises(Exception, match=FEATURE):
        write_rows(lake, 21)


def test_overruling_puts_back_metadata_protocol_and_progress(store: Store, table: TableRow, lake: Path) -> None:
    commit(store, table, AppTransaction("loader", 5), write_file(lake, 10))
    mirror(store, table)
    snapshot = SqlTxnLogReader(store, table).snapshot()
    ours, metadata = live_files(store, table), snapshot.metadata
    line = next(json.loads(text) for text in log_bytes(lake)[f"{0:020d}.json"].splitlines() if b'"metaData"' in text)
    line["metaData"]["configuration"] = {"delta.appendOnly": "false", "by": "somebody else"}
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["appendOnly", "invariants"]}
    foreign_commit(
        lake,
        json.dumps({"commitInfo": {}}),
        json.dumps({"protocol": protocol}),
        json.dumps(line),
        json.dumps({"txn": {"appId": "loader", "version": 9}}),
    )
    done = resolve(store, table, "overrule")
    assert done.compensating_version == 5
    after = SqlTxnLogReader(store, table).snapshot()
    assert (after.metadata, after.fenced, live_files(store, table)) == (metadata, True, ours)
    transaction = after.app_transaction("loader")
    assert transaction is not None
    assert transaction.version == 5
    check_level(store, table, lake, [0, 1, 10])


def test_an_append_only_table_cannot_be_overruled(store: Store, table: TableRow, lake: Path, tmp_path: Path) -> None:
    metadata = SqlTxnLogReader(store, table).snapshot().metadata
    commit(store, table, replace(metadata, configuration={"delta.appendOnly": "true"}), operation="SET TBLPROPERTIES")
    mirror(store, table)
    foreign_append(lake, tmp_path / "scratch", 20)
    with pytest.raises(ExternalWriterError, match="append-only.*--adopt"):
        resolve(store, table, "overrule")
    resolve(store, table, "adopt")
    check_level(store, table, lake, [0, 1, 20])


def test_a_table_put_in_place_of_ours_is_not_adopted(store: Store, table: TableRow, lake: Path) -> None:
    line = next(json.loads(text) for text in log_bytes(lake)[f"{0:020d}.json"].splitlines() if b'"metaData"' in text)
    line["metaData"]["id"] = "99999999-0000-0000-0000-000000000000"
    foreign_commit(lake, json.dumps({"commitInfo": {}}), json.dumps(line))
    with pytest.raises(Exception, match="another table lives at"):
        resolve(store, table, "adopt")
    assert head_of(store, table).current_version == 2


def test_plans_prune_as_before_after_commits_were_taken_out_and_put_back(
    store: Store, table: TableRow, lake: Path, tmp_path: Path
) -> None:
    """The planning index is what a rewind could spoil: bounds of files that died and live again."""
    (doomed, *_) = live_files(store, table)
    append(store, table, lake, 10)
    delete_whole_files(store, table, doomed)
    foreign_commit(lake, json.dumps({"commitInfo": {"isBlindAppend": True}}))
    resolve(store, table, "adopt")
    reader = SqlTxnLogReader(store, table)
    paths = set(live_files(store, table))
    assert doomed not in paths
    resolve_again = foreign_append(lake, tmp_path / "scratch", 500, version=head_of(store, table).current_version + 1)
    mirror_files_up_to(store, table, lake)
    assert resolve_again
    resolve(store, table, "adopt")
    with store.read() as conn:
        bounds = conn.sql(
            "select f.path, b.lower, b.upper from dl_file_bounds b join dl_add_files f on f.table_id = b.table_id "
            "and f.file_id = b.file_id join dl_table_heads h on h.table_id = b.table_id and h.bounds_epoch = b.epoch "
            "where f.removed_version = 9223372036854775807 order by f.path"
        )
        orphans = conn.sql(
            "select count(*) as n from dl_file_bounds b where not exists (select 1 from dl_add_files f "
            "where f.table_id = b.table_id and f.file_id = b.file_id and f.removed_version = 9223372036854775807)"
        )
    assert {row["path"] for row in bounds} == set(live_files(store, table)), "each live file has its bounds"
    assert orphans[0]["n"] == 0
    assert reader.snapshot().files().read_all().num_rows == len(bounds)


def mirror_files_up_to(store: Store, table: TableRow, lake: Path) -> None:
    """Ours below the foreign file, so that the log has no gap."""
    writer = FileTxnLogWriter(str(lake), table="t")
    for one in SqlTxnLogReader(store, table).mirror_commits(head_of(store, table).mirrored_version + 1):
        assert writer.put_commit(one.version, one.data, modified_ms=one.timestamp_ms) == "written"


def test_who_read_before_the_resolution_must_read_again(
    store: Store, table: TableRow, lake: Path, tmp_path: Path
) -> None:
    """Versions got other meanings: a transaction that began before must not take them for what it read."""
    append(store, table, lake, 10)
    opened = open_registered(store, table)
    stale = TableProposal(
        opened.table,
        opened.head.current_version,
        commits=(ProposedCommit((write_file(lake, 30),)),),
        protocol=opened.protocol,
        metadata=opened.metadata,
    )
    foreign_append(lake, tmp_path / "scratch", 20)
    done = resolve(store, table, "adopt")
    assert done.table.properties[RESOLUTIONS] == 1
    with pytest.raises(CommitFailedError, match="resolve"):
        SqlTxnLogWriter(store).commit(Proposal((stale,), "late", "late"))
    check_level(store, table, lake, [0, 1, 10, 20])


# -- a database restored from an old backup


def test_a_database_restored_from_a_backup_takes_its_own_commits_back(
    store: Store, table: TableRow, lake: Path
) -> None:
    append(store, table, lake, 10)
    mirror(store, table)
    backup = dump(store)
    lost = [append(store, table, lake, 11, message="lost"), append(store, table, lake, 12)]
    mirror(store, table)
    before = SqlTxnLogReader(store, table).history()
    put_back(store, backup)
    assert head_of(store, table).current_version == 3
    with MirrorEngine(store, config=load_config(), mode="off") as engine, pytest.raises(ExternalWriterError):
        engine.probe(table)
    files = log_bytes(lake)
    done = resolve(store, table, "adopt")
    assert (done.first_version, done.last_version, done.num_own, done.recommitted) == (4, 5, 2, ())
    assert SqlTxnLogReader(store, table).history() == before, "with their transactions, actors and messages"
    with store.read() as conn:
        times = [conn.one("select_transaction", txn_id=one.txn_id) for one in lost]
    assert [row and row["committed_at_ms"] for row in times] == [one.committed_at_ms for one in lost]
    check_level(store, table, lake, [0, 1, 10, 11, 12])
    assert log_bytes(lake) == files


def test_what_was_committed_after_the_restore_comes_after_what_was_lost(
    store: Store, table: TableRow, lake: Path
) -> None:
    backup = dump(store)
    lost = [append(store, table, lake, number).txn_id for number in (10, 11, 12)]
    mirror(store, table)
    put_back(store, backup)
    fresh = [append(store, table, lake, number).txn_id for number in (30, 31)]
    files = log_bytes(lake)
    done = resolve(store, table, "adopt")
    assert (done.num_own, done.version) == (3, 7)
    assert [entry.txn_id for entry in SqlTxnLogReader(store, table).history()][:5] == [
        *reversed(fresh),
        *reversed(lost),
    ]
    check_level(store, table, lake, [0, 1, 10, 11, 12, 30, 31])
    assert files.items() <= log_bytes(lake).items()


def test_a_commit_that_the_files_hold_already_is_not_committed_twice(store: Store, table: TableRow, lake: Path) -> None:
    """The same transaction, in the files under a later version than SQL would give it."""
    backup = dump(store)
    append(store, table, lake, 10)
    mirror(store, table)
    put_back(store, backup)
    kept = dump(store)
    append(store, table, lake, 20)
    put_back(store, kept)
    again = append(store, table, lake, 30)
    line_of_ours = SqlTxnLogReader(store, table).mirror_commits(3)
    data = next(line_of_ours).data
    (lake / "_delta_log" / f"{4:020d}.json").write_bytes(data)
    done = resolve(store, table, "adopt")
    assert (done.first_version, done.last_version, done.recommitted, done.version) == (3, 4, (), 4)
    assert SqlTxnLogReader(store, table).history()[0].txn_id == again.txn_id
    check_level(store, table, lake, [0, 1, 10, 30])
