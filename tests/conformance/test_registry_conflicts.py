"""Names and locations in the conflict check: what transactions beside each other may do to tables as a whole."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import deltalake
import pytest

from deltalakedb import Catalog
from deltalakedb.exceptions import (
    FilesVacuumedError,
    LocationOwnedError,
    NameChangedError,
    NotWritableError,
    TableNotFoundError,
)
from deltalakedb.mirror.detach import open_registered
from deltalakedb.mirror.reconciler import Reconciler
from deltalakedb.store.proposals import Proposal, TableProposal
from deltalakedb.store.registry import TableRow
from deltalakedb.store.writer import SqlTxnLogWriter
from tests.conformance.lives import row_of
from tests.conformance.transacting import data_files, ids_in, log_files, numbers, open_catalog


@pytest.fixture
def catalog(target: str, tmp_path: Path) -> Iterator[Catalog]:
    with open_catalog(target, tmp_path) as opened:
        yield opened


@pytest.fixture
def unmirrored(target: str, tmp_path: Path) -> Iterator[Catalog]:
    """The same catalog, whose commits the mirror does not follow."""
    with open_catalog(target, tmp_path, mirror_mode="off") as opened:
        yield opened


def reconcile(catalog: Catalog) -> None:
    with Reconciler(catalog.store, config=catalog.config, options_of=catalog.storage_options_of) as reconciler:
        reconciler.once()


def ids_in_files(catalog: Catalog, name: str) -> list[int]:
    """What an unmodified reader finds."""
    table = deltalake.DeltaTable(catalog.table(name).table_uri)
    assert table.version() == catalog.table(name).version()
    return sorted(table.to_pyarrow_table().column("id").to_pylist())


def location_states(catalog: Catalog) -> list[str]:
    return list(catalog.sql("select location_state from dl_locations order by 1").column("location_state").to_pylist())


# -- clean-up goes by who wrote a file


@pytest.mark.parametrize("way", ["drop", "purge", "rename and drop", "another name at the location"])
def test_what_replaces_a_new_table_in_its_transaction_keeps_its_files(
    catalog: Catalog, tmp_path: Path, way: str
) -> None:
    place = tmp_path / "given" if way == "another name at the location" else None
    with catalog.begin() as tx:
        tx.write("s.a", numbers(1), location=place)
        if way == "rename and drop":
            tx.rename_table("s.a", "s.b")
            tx.drop_table("s.b")
        else:
            tx.drop_table("s.a", purge=way == "purge")
        name = "s.c" if place else "s.a"
        tx.write(name, numbers(2), location=place)
    assert catalog.tables() == [name]
    assert ids_in(catalog, name) == ids_in_files(catalog, name) == [2]
    assert len(data_files(tmp_path)) == 1, "the files of the table that was dropped again are gone"
    assert location_states(catalog) == ["live"]


def test_a_rolled_back_transaction_leaves_the_files_of_others_at_its_location(catalog: Catalog, tmp_path: Path) -> None:
    tx = catalog.begin()
    tx.write("s.a", numbers(1))
    with catalog.begin() as other:
        other.write("s.a", numbers(2))
    tx.rollback()
    assert ids_in(catalog, "s.a") == ids_in_files(catalog, "s.a") == [2]
    assert len(data_files(tmp_path)) == 1


# -- a name that another table has meanwhile


@pytest.mark.parametrize("purge", [False, True])
def test_a_drop_means_the_table_that_had_the_name(catalog: Catalog, purge: bool) -> None:
    with catalog.begin() as tx:
        tx.write("s.a", numbers(1))
    late = catalog.begin()
    late.drop_table("s.a", purge=purge)
    catalog.rename_table("s.a", "s.keep")
    with catalog.begin() as tx:
        tx.write("s.a", numbers(2))
    with pytest.raises(NameChangedError, match=r"s\.a was renamed to s\.keep"):
        late.commit()
    assert {name: ids_in(catalog, name) for name in catalog.tables()} == {"s.a": [2], "s.keep": [1]}
    assert {name: ids_in_files(catalog, name) for name in catalog.tables()} == {"s.a": [2], "s.keep": [1]}


def test_of_two_renames_of_one_table_the_second_fails(catalog: Catalog) -> None:
    catalog.create_table("s.a", "id long")
    first, second = catalog.begin(), catalog.begin()
    first.rename_table("s.a", "s.first")
    second.rename_table("s.a", "s.second")
    first.commit()
    with pytest.raises(NameChangedError, match=r"s\.a was renamed to s\.first"):
        second.commit()
    assert catalog.tables() == ["s.first"]


def test_a_change_of_the_state_leaves_a_name_given_meanwhile(catalog: Catalog) -> None:
    catalog.create_table("s.a", "id long")
    seen = open_registered(catalog.store, row_of(catalog.store, "a", "s"))
    catalog.rename_table("s.a", "s.b")
    # What `detach` proposes, from a registry row that it has read before the rename.
    change = TableProposal(
        seen.table,
        seen.head.current_version,
        protocol=seen.protocol,
        metadata=seen.metadata,
        changes={"state": "detaching"},
    )
    txn_id = str(uuid.uuid4())
    SqlTxnLogWriter(catalog.store).commit(Proposal((change,), txn_id, txn_id))
    row: TableRow = row_of(catalog.store, "b", "s")
    assert (catalog.tables(), row.state) == (["s.b"], "detaching")


def test_a_rename_does_not_undo_a_detach(catalog: Catalog) -> None:
    catalog.create_table("s.a", "id long")
    late = catalog.begin()
    late.rename_table("s.a", "s.b")
    catalog.detach_table("s.a")
    with pytest.raises(NotWritableError, match="detached"):
        late.commit()
    assert (catalog.tables(), catalog.table("s.a").mode) == (["s.a"], "detached")


def test_two_names_are_swapped_in_one_transaction(catalog: Catalog) -> None:
    with catalog.begin() as tx:
        tx.write("s.a", numbers(1))
        tx.write("s.b", numbers(2))
    with catalog.begin() as tx:
        tx.rename_table("s.a", "s.spare")
        tx.rename_table("s.b", "s.a")
        tx.rename_table("s.spare", "s.b")
    assert catalog.tables() == ["s.a", "s.b"]
    assert [ids_in(catalog, name) for name in ("s.a", "s.b")] == [[2], [1]]
    assert [ids_in_files(catalog, name) for name in ("s.a", "s.b")] == [[2], [1]]


# -- what was seen of names is a read


def test_two_who_list_the_tables_and_create_one_do_not_both_commit(catalog: Catalog) -> None:
    first, second = catalog.begin(), catalog.begin()
    for tx, name in ((first, "s.a"), (second, "t.b")):
        assert tx.tables() == []
        tx.create_table(name, "id long")
    first.commit()
    with pytest.raises(NameChangedError, match=r"listed the tables.*s\.a"):
        second.commit()
    assert catalog.tables() == ["s.a"]


def test_two_who_look_for_each_others_table_do_not_both_commit(catalog: Catalog) -> None:
    first, second = catalog.begin(tables=["s.a", "t.b"]), catalog.begin()
    for tx, looked_for, name in ((first, "s.a", "t.b"), (second, "t.b", "s.a")):
        with pytest.raises(TableNotFoundError):
            tx.table(looked_for)
        tx.create_table(name, "id long")
    first.commit()
    with pytest.raises(NameChangedError):
        second.commit()
    assert catalog.tables() == ["t.b"]


@pytest.mark.parametrize("statement", ["create", "write"])
def test_a_table_that_mode_ignore_found_must_still_be_there(catalog: Catalog, statement: str) -> None:
    catalog.create_table("s.a", "id long")
    tx = catalog.begin()
    if statement == "create":
        tx.create_table("s.a", "id long", mode="ignore")
    else:
        tx.write("s.a", numbers(1), mode="ignore")
    tx.create_table("s.log", "id long")
    catalog.drop_table("s.a")
    with pytest.raises(NameChangedError, match=r"s\.a was dropped"):
        tx.commit()
    assert catalog.tables() == []


def test_a_name_found_free_by_a_failed_statement_must_still_be_free(catalog: Catalog) -> None:
    catalog.create_table("s.log", "id long")
    tx = catalog.begin()
    with pytest.raises(TableNotFoundError):
        tx.drop_table("s.a")
    tx.write("s.log", numbers(1), mode="append")
    catalog.create_table("s.a", "id long")
    with pytest.raises(NameChangedError, match=r"s\.a was created"):
        tx.commit()
    assert ids_in(catalog, "s.log") == []


# -- a folder has one owner, however late the mirror is


@pytest.mark.parametrize("retention_days", [0, 7])
@pytest.mark.parametrize("at_once", [False, True], ids=["one by one", "in one transaction"])
def test_a_table_made_after_a_drop_that_is_not_mirrored_has_a_log_of_its_own(
    target: str, tmp_path: Path, retention_days: int, at_once: bool
) -> None:
    with open_catalog(target, tmp_path, mirror_mode="off", catalog_drop_retention=retention_days) as catalog:
        with catalog.begin() as tx:
            tx.write("s.a", numbers(1))
        if at_once:
            with catalog.begin() as tx:
                tx.drop_table("s.a")
                tx.write("s.a", numbers(2))
        else:
            catalog.drop_table("s.a")
            with catalog.begin() as tx:
                tx.write("s.a", numbers(2))
        reconcile(catalog)
        assert ids_in(catalog, "s.a") == ids_in_files(catalog, "s.a") == [2]
        assert catalog.validate("s.a").drifts == ()
        assert catalog.table_infos()[0].state == "live"
        behind = catalog.sql("select table_id from dl_table_heads where mirrored_version < current_version")
        assert behind.num_rows == 0, "the mirror of the dropped table is at its end too"
        assert len(catalog.dropped_tables()) == (1 if retention_days else 0)
        if retention_days:
            catalog.undrop_table("s.a", as_="s.old")
            reconcile(catalog)
            assert ids_in(catalog, "s.old") == ids_in_files(catalog, "s.old") == [1]


@pytest.mark.parametrize("mode", ["background", "inline"])
def test_a_late_mirror_of_another_process_leaves_the_folder_of_a_purged_table_alone(
    target: str, tmp_path: Path, catalog: Catalog, mode: str
) -> None:
    folder = tmp_path / "lake/s/a"
    with open_catalog(target, tmp_path, mirror_mode=mode) as other:
        with other.begin() as tx:
            tx.write("s.a", numbers(1))
        # Its JSON (in the background) and its checksum (always) are still to be written.
        catalog.drop_table("s.a", purge=True)
    assert not folder.exists()
    assert location_states(catalog) == []


def test_a_table_given_back_to_its_user_leaves_no_owner_behind(unmirrored: Catalog, tmp_path: Path) -> None:
    with unmirrored.begin() as tx:
        tx.write("s.a", numbers(1), location=tmp_path / "mine")
    with unmirrored.begin() as tx:
        tx.drop_table("s.a")
    with pytest.raises(LocationOwnedError, match=r"s\.a, which was dropped and is not yet mirrored"):
        unmirrored.create_table("s.b", "id long", location=tmp_path / "mine")
    reconcile(unmirrored)
    assert location_states(unmirrored) == []
    deltalake.write_deltalake(tmp_path / "mine", numbers(2), mode="append")
    assert unmirrored.import_table(tmp_path / "mine", "s.b").to_pyarrow_table().num_rows == 2


def test_a_purge_leaves_what_a_user_has_put_into_the_folder_of_a_table_that_was_detached(
    catalog: Catalog, tmp_path: Path
) -> None:
    with catalog.begin() as tx:
        tx.write("s.a", numbers(1))
    catalog.detach_table("s.a")
    note = tmp_path / "lake/s/a/note.txt"
    note.write_text("mine")
    catalog.promote_table("s.a")
    catalog.drop_table("s.a", purge=True)
    assert [path for path in note.parent.rglob("*") if path.is_file()] == [note]


def test_a_statement_that_fails_leaves_no_file_although_its_transaction_commits(
    catalog: Catalog, tmp_path: Path
) -> None:
    with catalog.begin() as tx:
        tx.write("s.a", numbers(1))
    with catalog.begin() as tx:
        catalog.drop_table("s.a", purge=True)
        with pytest.raises(FilesVacuumedError):
            tx.write("s.a", numbers(2), mode="overwrite")
    assert not list((tmp_path / "lake").rglob("*.parquet"))


def test_a_purge_elsewhere_waits_for_a_commit_that_is_on_its_way_into_the_files(
    catalog: Catalog, target: str, tmp_path: Path
) -> None:
    with open_catalog(target, tmp_path, mirror_mode="background") as busy:
        with busy.begin() as tx:
            tx.write("s.a", numbers(1))
        catalog.drop_table("s.a", purge=True)
        assert busy.mirror.flush(30)
    assert not (tmp_path / "lake/s/a").exists()


def test_the_owner_of_a_location_is_named_as_it_is_called_now(catalog: Catalog, tmp_path: Path) -> None:
    catalog.create_table("s.a", "id long", location=tmp_path / "mine")
    catalog.rename_table("s.a", "s.b")
    with pytest.raises(LocationOwnedError, match=r"belongs to the table s\.b\b"):
        catalog.create_table("s.c", "id long", location=tmp_path / "mine")


# -- drop and undrop


def test_a_table_comes_back_once(catalog: Catalog) -> None:
    catalog.create_table("s.a", "id long")
    catalog.drop_table("s.a")
    with catalog.begin() as tx:
        tx.undrop_table("s.a", as_="s.b")
        with pytest.raises(TableNotFoundError, match="there is no dropped table"):
            tx.undrop_table("s.a", as_="s.c")
    assert (catalog.tables(), catalog.tables(dropped=True)) == (["s.b"], [])


def test_of_two_who_undrop_a_table_the_second_fails(catalog: Catalog) -> None:
    catalog.create_table("s.a", "id long")
    catalog.drop_table("s.a")
    first, second = catalog.begin(), catalog.begin()
    first.undrop_table("s.a", as_="s.b")
    second.undrop_table("s.a", as_="s.c")
    first.commit()
    with pytest.raises(NameChangedError, match="undropped by another transaction"):
        second.commit()
    assert catalog.tables() == ["s.b"]


def test_a_table_renamed_and_dropped_in_one_transaction_is_dropped_under_its_new_name(
    catalog: Catalog, tmp_path: Path
) -> None:
    with catalog.begin() as tx:
        tx.write("s.a", numbers(1))
        tx.create_table("t.b", "id long")
    with catalog.begin() as tx:
        tx.drop_table("t.b")
        tx.rename_table("s.a", "t.b")
        tx.drop_table("t.b")
    assert catalog.tables(dropped=True) == ["t.b", "t.b"]
    assert [entry["table"] for entry in catalog.audit() if entry["action"] == "drop"] == ["t.b", "t.b"]
    assert catalog.dropped_tables("s") == []
    with pytest.raises(TableNotFoundError, match="there is no dropped table"):
        catalog.undrop_table("s.a")
    catalog.undrop_table("t.b", as_="s.x")
    catalog.undrop_table("t.b", as_="s.y")
    assert sorted(ids_in(catalog, name) for name in ("s.x", "s.y")) == [[], [1]]
    assert log_files(tmp_path / "lake/s/a")
