"""The vacuum watermark: a commit that names files which a vacuum takes is refused, in every order of events.

A table `t` has a row in each of its first versions; version 3 replaces them all, so that a vacuum takes their files.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from deltalakedb import Catalog, CatalogTransaction
from deltalakedb.exceptions import DeltaError, FilesVacuumedError, VersionTakenError
from deltalakedb.log.protocol.actions import AddFile
from deltalakedb.log.protocol.rows import add_from_row
from deltalakedb.runtime import steps
from deltalakedb.store import registry
from deltalakedb.store.gc import collect_garbage
from deltalakedb.store.registry import Head
from deltalakedb.store.vacuums import begin_vacuum, end_vacuum
from deltalakedb.tables.upkeep import VacuumMark
from tests.conformance.collecting import EVERYTHING
from tests.conformance.transacting import StopAt, ids_in, ids_of, numbers, open_catalog, operations


@pytest.fixture
def catalog(target: str, tmp_path: Path) -> Iterator[Catalog]:
    with open_catalog(target, tmp_path) as opened:
        opened.create_table("t", "id long", properties={"delta.enableChangeDataFeed": "true"})
        for number in (1, 2):
            with opened.begin() as tx:
                tx.write("t", numbers(number), mode="append")
        with opened.begin() as tx:
            tx.write("t", numbers(3), mode="overwrite")
        yield opened


def head_of(catalog: Catalog, name: str = "t") -> Head:
    with catalog.store.read() as conn:
        head = registry.read_head(conn, catalog.table(name)._sql().row.table_id)
    assert head is not None
    return head


def vacuum(catalog: Catalog, *keep: int) -> list[str]:
    return catalog.table("t").vacuum(0, dry_run=False, enforce_retention_duration=False, keep_versions=list(keep))


def files_at(catalog: Catalog, version: int) -> list[AddFile]:
    return [add_from_row(row) for row in catalog.table("t", version=version).files().to_pylist()]


def add_again(catalog: Catalog, tx: CatalogTransaction, version: int) -> None:
    tx.commit_actions("t", files_at(catalog, version), read="table", operation="RESTORE")


def restore(catalog: Catalog, tx: CatalogTransaction, version: int) -> None:
    del catalog
    tx.restore("t", version)


Statement = Callable[[Catalog, CatalogTransaction, int], None]
BRINGING_BACK: list[Statement] = [restore, add_again]


class Elsewhere:
    """A vacuum in a thread of its own, stopped at a step until `go_on`."""

    def __init__(self, catalog: Catalog, step: str) -> None:
        self._step = step
        self._reached, self._go_on = threading.Event(), threading.Event()
        self._failed: list[BaseException] = []
        steps.observe(self._observe)
        self._thread = threading.Thread(target=self._run, args=(catalog,))
        self._thread.start()
        assert self._reached.wait(60), self._failed

    def _observe(self, step: str) -> None:
        if step == self._step and threading.current_thread() is self._thread:
            self._reached.set()
            assert self._go_on.wait(60)

    def _run(self, catalog: Catalog) -> None:
        try:
            assert len(vacuum(catalog)) == 2
        except BaseException as error:
            self._failed.append(error)
            self._reached.set()

    def go_on(self) -> None:
        self._go_on.set()
        self._thread.join(60)
        assert self._failed == []


# -- the head


def test_a_vacuum_says_which_versions_lost_files_and_that_it_has_ended(catalog: Catalog) -> None:
    assert (head_of(catalog).vacuumed_version, head_of(catalog).vacuum_count) == (0, 0)
    assert len(vacuum(catalog)) == 2
    assert (head_of(catalog).vacuumed_version, head_of(catalog).vacuum_count) == (3, 2)
    assert operations(catalog, "t")[-2:] == ["VACUUM START", "VACUUM END"]
    assert vacuum(catalog) == [], "nothing is left to delete"
    assert (head_of(catalog).vacuumed_version, head_of(catalog).vacuum_count) == (3, 2)


def test_a_vacuum_that_deletes_nothing_leaves_no_mark(catalog: Catalog) -> None:
    catalog.table("t").vacuum(0, dry_run=True, enforce_retention_duration=False)
    assert catalog.table("t").vacuum(dry_run=False) == []
    assert (head_of(catalog).vacuumed_version, head_of(catalog).vacuum_count) == (0, 0)


def test_commits_leave_the_marks_as_they_are(catalog: Catalog) -> None:
    vacuum(catalog)
    for number in range(4, 8):
        with catalog.begin() as tx:
            tx.write("t", numbers(number), mode="append")
    assert (head_of(catalog).vacuumed_version, head_of(catalog).vacuum_count) == (3, 2)


def test_while_it_deletes_the_count_is_odd(catalog: Catalog) -> None:
    elsewhere = Elsewhere(catalog, "vacuum.marked")
    assert (head_of(catalog).vacuumed_version, head_of(catalog).vacuum_count) == (3, 1)
    elsewhere.go_on()
    assert head_of(catalog).vacuum_count == 2


def test_a_vacuum_that_fails_says_that_it_has_ended(catalog: Catalog) -> None:
    with StopAt("vacuum.deleted", DeltaError("the disk is gone")), pytest.raises(DeltaError, match="the disk is gone"):
        vacuum(catalog)
    assert (head_of(catalog).vacuumed_version, head_of(catalog).vacuum_count) == (3, 2)


def test_files_that_cannot_be_deleted_end_it_as_failed(catalog: Catalog) -> None:
    (first, _) = catalog.table("t").vacuum(0, enforce_retention_duration=False)
    path = Path(catalog.table("t").table_uri.removeprefix("file://")) / first
    spoiled: list[Path] = []

    def at(step: str) -> None:
        if not spoiled and step == "vacuum.marked":
            spoiled.append(path)
            path.unlink()
            path.mkdir()  # it cannot be deleted as a file is

    steps.observe(at)
    with pytest.raises(DeltaError, match="1 of 2 files could not be deleted"):
        vacuum(catalog)
    assert spoiled == [path]
    assert head_of(catalog).vacuum_count == 2
    assert catalog.history("t")[0]["operationParameters"] == {"status": "FAILED"}


def test_the_next_vacuum_ends_one_whose_process_died(catalog: Catalog) -> None:
    table_id = catalog.table("t")._sql().row.table_id
    begin_vacuum(catalog.store, table_id, "dead", oldest_kept=3, lease_ms=-1)
    assert head_of(catalog).vacuum_count == 1
    vacuum(catalog)
    assert head_of(catalog).vacuum_count == 4
    begin_vacuum(catalog.store, table_id, "dead, too", oldest_kept=3, lease_ms=-1)
    assert vacuum(catalog) == [], "it had deleted everything"
    assert head_of(catalog).vacuum_count == 6


def test_of_two_vacuums_at_once_the_last_one_ends_it(catalog: Catalog) -> None:
    table_id = catalog.table("t")._sql().row.table_id
    begin_vacuum(catalog.store, table_id, "a", oldest_kept=2, lease_ms=60_000)
    begin_vacuum(catalog.store, table_id, "b", oldest_kept=3, lease_ms=60_000)
    assert (head_of(catalog).vacuumed_version, head_of(catalog).vacuum_count) == (3, 3)
    end_vacuum(catalog.store, table_id, "b")
    assert head_of(catalog).vacuum_count == 3, "a still deletes"
    end_vacuum(catalog.store, table_id, "a")
    assert head_of(catalog).vacuum_count == 4
    begin_vacuum(catalog.store, table_id, "c", oldest_kept=1, lease_ms=60_000)
    assert head_of(catalog).vacuumed_version == 3, "it never goes back"


def test_a_vacuum_that_cannot_renew_its_lease_deletes_nothing_more(catalog: Catalog) -> None:
    table = catalog.table("t")
    mark = VacuumMark(catalog.store, table._sql().row, lease_seconds=0.6)
    mark.begin(3)
    mark.check()
    with catalog.store.write() as conn:
        conn.run("delete_expired_leases", before_ms=2**62)
    threading.Event().wait(0.8)
    with pytest.raises(DeltaError, match="has stopped deleting files; run it again"):
        mark.check()
    mark.end()
    assert head_of(catalog).vacuum_count == 2


def test_a_vacuum_that_lives_keeps_its_lease(catalog: Catalog) -> None:
    mark = VacuumMark(catalog.store, catalog.table("t")._sql().row, lease_seconds=1.8)
    mark.begin(3)
    for _ in range(4):
        threading.Event().wait(0.6)
        mark.check()
    mark.end()
    assert head_of(catalog).vacuum_count == 2


# -- commits against vacuums, in every order


@pytest.mark.parametrize("bring_back", BRINGING_BACK)
def test_a_vacuum_between_the_statement_and_its_commit_refuses_it(catalog: Catalog, bring_back: Statement) -> None:
    tx = catalog.begin()
    bring_back(catalog, tx, 2)
    assert len(vacuum(catalog)) == 2
    with pytest.raises(
        FilesVacuumedError, match=r"default\.t: version 3 removed .* below 3\. Nothing.* Repeat"
    ) as told:
        tx.commit()
    assert told.value.path in {add.path for add in files_at(catalog, 2)}
    assert ids_in(catalog, "t") == [3]


@pytest.mark.parametrize("bring_back", BRINGING_BACK)
def test_a_vacuum_that_is_deleting_refuses_it(catalog: Catalog, bring_back: Statement) -> None:
    before = catalog.begin()
    bring_back(catalog, before, 2)
    elsewhere = Elsewhere(catalog, "vacuum.marked")
    during = catalog.begin()
    bring_back(catalog, during, 2)
    for tx in (before, during):
        with pytest.raises(FilesVacuumedError, match="Wait until the vacuum has ended"):
            tx.commit()
    elsewhere.go_on()
    assert ids_in(catalog, "t") == [3]


@pytest.mark.parametrize("bring_back", BRINGING_BACK)
def test_a_vacuum_that_was_deleting_when_the_transaction_began_refuses_it_afterwards_too(
    catalog: Catalog, bring_back: Statement
) -> None:
    elsewhere = Elsewhere(catalog, "vacuum.marked")
    tx = catalog.begin()
    bring_back(catalog, tx, 2)
    elsewhere.go_on()
    with pytest.raises(FilesVacuumedError, match="Repeat the statement"):
        tx.commit()
    assert ids_in(catalog, "t") == [3]


@pytest.mark.parametrize("bring_back", BRINGING_BACK)
def test_a_vacuum_that_begins_after_the_commit_leaves_its_files(catalog: Catalog, bring_back: Statement) -> None:
    with catalog.begin() as tx:
        bring_back(catalog, tx, 2)
    assert catalog.table("t").count() == len(ids_in(catalog, "t"))
    vacuum(catalog)
    assert set(ids_in(catalog, "t")) >= {1, 2}


def test_a_restore_between_the_plan_of_a_vacuum_and_its_mark_is_seen(catalog: Catalog) -> None:
    """VACUUM START is committed; the mark is not there yet."""
    restored: list[int] = []

    def at(step: str) -> None:
        if not restored and step == "commit.committed" and operations(catalog, "t")[-1] == "VACUUM START":
            restored.append(1)
            catalog.table("t").restore(2)

    steps.observe(at)
    try:
        assert vacuum(catalog) == [], "both files are needed again"
    finally:
        restored.append(2)
    assert restored[0] == 1
    assert ids_in(catalog, "t") == [1, 2]


def test_after_a_vacuum_restore_says_what_is_gone_and_where_the_watermark_is(catalog: Catalog) -> None:
    vacuum(catalog)
    with pytest.raises(
        FilesVacuumedError, match=r"Find missing file .*2 of the files of version 2 .* below 3 have"
    ) as told:
        catalog.table("t").restore(2)
    assert (told.value.table, told.value.version) == ("default.t", 2)
    with catalog.begin() as tx, pytest.raises(FilesVacuumedError, match="vacuum watermark of default.t"):
        tx.restore("t", 1)
    catalog.table("t").restore(2, ignore_missing_files=True)
    assert len(catalog.table("t").repair()["files_removed"]) == 2


def test_files_that_a_vacuum_was_asked_to_keep_can_be_restored(catalog: Catalog) -> None:
    assert vacuum(catalog, 1) != []
    assert head_of(catalog).vacuumed_version == 3
    assert ids_of(catalog.table("t", version=1)) == [1]
    catalog.table("t").restore(1)
    assert ids_in(catalog, "t") == [1]


def test_versions_from_the_watermark_on_can_be_restored_while_a_vacuum_deletes(catalog: Catalog) -> None:
    with catalog.begin() as tx:
        tx.write("t", numbers(4), mode="overwrite")
    table_id = catalog.table("t")._sql().row.table_id
    begin_vacuum(catalog.store, table_id, "running", oldest_kept=3, lease_ms=60_000)
    catalog.table("t").restore(3)
    assert ids_in(catalog, "t") == [3]
    with pytest.raises(FilesVacuumedError):
        catalog.table("t").restore(2)


def test_other_commits_pass_while_a_vacuum_deletes(catalog: Catalog) -> None:
    tx = catalog.begin()
    tx.write("t", numbers(4), mode="append")
    elsewhere = Elsewhere(catalog, "vacuum.marked")
    with catalog.begin() as faster:
        faster.write("t", numbers(5), mode="append")
    tx.commit()
    catalog.table("t").delete("id = 5")
    catalog.table("t").optimize.compact()
    elsewhere.go_on()
    assert ids_in(catalog, "t") == [3, 4]


def test_a_file_that_a_kept_version_has_again_may_be_named(catalog: Catalog) -> None:
    """Its key was closed below the watermark and added again since: no vacuum takes it."""
    catalog.table("t").restore(2)
    (add, *_) = files_at(catalog, 1)
    vacuum(catalog)
    assert head_of(catalog).vacuumed_version == 4
    tx = catalog.begin()
    tx.commit_actions("t", [replace(add, data_change=False)], read=[add.path])
    begin_vacuum(catalog.store, head_of(catalog).table_id, "running", oldest_kept=4, lease_ms=60_000)
    tx.commit()
    assert ids_in(catalog, "t") == [1, 2]


def test_many_files_are_looked_up_too(catalog: Catalog) -> None:
    catalog.create_table("many", "id long")
    adds = [AddFile(f"f{number}", {}, 10, 1, True, '{"numRecords":1}') for number in range(1200)]
    with catalog.begin() as tx:
        tx.commit_actions("many", adds)
    with catalog.begin() as tx:
        tx.write("many", numbers(1), mode="overwrite")
    tx = catalog.begin()
    new = [replace(add, path=f"new-{add.path}") for add in adds]
    tx.commit_actions("many", [*new, adds[-1]])
    begin_vacuum(catalog.store, head_of(catalog, "many").table_id, "running", oldest_kept=2, lease_ms=60_000)
    with pytest.raises(FilesVacuumedError, match="f1199"):
        tx.commit()
    with catalog.begin() as tx:
        tx.commit_actions("many", new)
    assert catalog.table("many").count() == 1201


def test_a_restored_version_that_gc_removed_meanwhile_is_refused(catalog: Catalog) -> None:
    """The database does not know its files any more, so it cannot say which of them the vacuum took."""
    for number in (4, 5):
        with catalog.begin() as tx:
            tx.write("t", numbers(number), mode="append")
    tx = catalog.begin()
    tx.restore("t", 1)
    catalog.mirror.flush()
    collect_garbage(catalog.store, EVERYTHING)
    assert head_of(catalog).base_version == 4
    gone = catalog.table("t").vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert len(gone) == 2
    with pytest.raises(FilesVacuumedError, match=r"restores version 1\. Meanwhile `dl gc` has removed it"):
        tx.commit()


def test_a_commit_that_must_be_exactly_the_next_version_meets_the_vacuum_first(catalog: Catalog) -> None:
    tx = catalog.begin()
    draft = tx._drafts.get("t")
    draft.exactly = True
    tx.restore("t", 2)
    vacuum(catalog)
    with pytest.raises(VersionTakenError):
        tx.commit()
