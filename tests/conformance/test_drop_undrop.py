"""Dropping and undropping: names go at once, files of the catalog stay for a while, files of a user stay with him."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import deltalake
import pytest

import deltalakedb as dl
from deltalakedb import Catalog
from deltalakedb.exceptions import (
    DropProtectedError,
    FilesPurgedError,
    LocationOwnedError,
    NameChangedError,
    StorageError,
    TableExistsError,
    TableNotFoundError,
)
from deltalakedb.mirror.reconciler import Reconciler
from deltalakedb.runtime import steps
from tests.conformance.lives import kill_at
from tests.conformance.transacting import data_files, ids_in, ids_of, numbers, open_catalog, operations


@pytest.fixture
def catalog(target: str, tmp_path: Path) -> Iterator[Catalog]:
    with open_catalog(target, tmp_path) as opened:
        yield opened


def place_of(catalog: Catalog, name: str) -> Path:
    return Path(catalog.table(name).table_uri.removeprefix("file://"))


def reconcile(catalog: Catalog) -> None:
    with Reconciler(catalog.store, config=catalog.config, options_of=catalog.storage_options_of) as reconciler:
        reconciler.once()


def expire(catalog: Catalog) -> None:
    """As if the retention were over."""
    with catalog.store.write() as conn:
        conn.sql("update dl_locations set expires_ms = 1 where location_state = 'dropped' returning location")


def now_ms(catalog: Catalog) -> int:
    """An instant that has surely begun and ended before whatever comes next."""
    time.sleep(0.005)
    with catalog.store.read() as conn:
        at_ms = conn.now_ms()
    time.sleep(0.005)
    return at_ms


def test_a_dropped_table_comes_back_with_its_rows_and_its_history(catalog: Catalog) -> None:
    with catalog.begin() as tx:
        tx.write("s.t", numbers(1), mode="append")
    catalog.begin().rollback()
    place = place_of(catalog, "s.t")
    catalog.drop_table("s.t")
    assert (catalog.tables(), catalog.tables(dropped=True)) == ([], ["s.t"])
    (dropped,) = catalog.dropped_tables("s")
    assert (dropped.version, dropped.num_files) == (1, 1)
    assert dropped.undrop_until_ms - dropped.dropped_at_ms == 7 * 86_400_000
    assert deltalake.DeltaTable(place).to_pyarrow_table().num_rows == 1, "a reader of the path still sees the table"
    with pytest.raises(deltalake.exceptions.DeltaError):
        deltalake.write_deltalake(place, numbers(9), mode="append")
    catalog.undrop_table("S.T")
    assert (catalog.tables(), catalog.tables(dropped=True)) == (["s.t"], [])
    with catalog.begin() as tx:
        tx.write("s.t", numbers(2), mode="append")
    assert ids_in(catalog, "s.t") == [1, 2]
    assert operations(catalog, "s.t") == ["WRITE", "DROP TABLE", "UNDROP TABLE", "WRITE"]
    assert sorted(deltalake.DeltaTable(place).to_pyarrow_table().column("id").to_pylist()) == [1, 2]
    assert catalog.validate("s.t").drifts == ()


def test_a_table_comes_back_under_another_name_beside_the_new_one_of_its_name(catalog: Catalog) -> None:
    for number in (1, 2):
        with catalog.begin() as tx:
            tx.write("t", numbers(number), mode="append")
        if number == 1:
            first = place_of(catalog, "t")
            catalog.drop_table("t")
    assert place_of(catalog, "t") != first, "the folder is the dropped table's until it is purged"
    with pytest.raises(TableExistsError, match="bring default.t back under another name"):
        catalog.undrop_table("t")
    catalog.undrop_table("t", as_="new.old")
    assert (ids_in(catalog, "t"), ids_in(catalog, "new.old")) == ([2], [1])
    assert catalog.namespaces() == ["default", "new"]
    with pytest.raises(TableNotFoundError, match=r"no dropped table default\.t.*nothing can be undropped"):
        catalog.undrop_table("t", as_="x")


def test_of_several_dropped_tables_of_one_name_the_last_one_comes_back_first(catalog: Catalog) -> None:
    for number in (1, 2, 3):
        with catalog.begin() as tx:
            tx.write("t", numbers(number), mode="append")
        catalog.drop_table("t")
    for number in (3, 2, 1):
        catalog.undrop_table("t", as_=f"t{number}")
        assert ids_in(catalog, f"t{number}") == [number]


def test_in_one_transaction_a_table_is_replaced_and_the_old_one_can_come_back(catalog: Catalog) -> None:
    with catalog.begin() as tx:
        tx.write("t", numbers(1), mode="append")
    with catalog.begin() as tx:
        tx.drop_table("t")
        tx.write("t", numbers(2), mode="append")
    assert ids_in(catalog, "t") == [2]
    with catalog.begin() as tx:
        tx.rename_table("t", "newer")
        tx.undrop_table("t")
        tx.write("t", numbers(3), mode="append")
        assert ids_of(tx.table("t")) == [1, 3]
    assert (ids_in(catalog, "t"), ids_in(catalog, "newer")) == ([1, 3], [2])


def test_after_the_retention_upkeep_deletes_the_files_and_the_place_is_free(catalog: Catalog) -> None:
    with catalog.begin() as tx:
        tx.write("t", numbers(1), mode="append")
    place, then = place_of(catalog, "t"), now_ms(catalog)
    catalog.drop_table("t")
    reconcile(catalog)
    assert place.exists(), "not yet"
    expire(catalog)
    reconcile(catalog)
    assert not place.exists()
    with pytest.raises(TableNotFoundError, match="nothing can be undropped"):
        catalog.undrop_table("t")
    assert catalog.at(then).tables() == ["default.t"]
    with pytest.raises(FilesPurgedError, match=r"default\.t.*its files are deleted"):
        catalog.at(then).table("t")
    catalog.create_table("t", "id long")
    assert place_of(catalog, "t") == place
    assert [entry["action"] for entry in catalog.audit()][:3] == ["create", "purge", "drop"]


def test_without_retention_a_drop_purges_at_once(target: str, tmp_path: Path) -> None:
    with open_catalog(target, tmp_path, catalog_drop_retention=0) as catalog:
        catalog.create_table("t", "id long")
        place = place_of(catalog, "t")
        catalog.drop_table("t")
        assert (place.exists(), catalog.tables(dropped=True)) == (False, [])


def test_an_undrop_and_a_purge_exclude_each_other(catalog: Catalog) -> None:
    with catalog.begin() as tx:
        tx.write("t", numbers(1), mode="append")
    catalog.drop_table("t")
    late = catalog.begin()
    late.undrop_table("t")
    expire(catalog)
    reconcile(catalog)
    with pytest.raises(TableNotFoundError, match="cannot be undropped any more"):
        late.commit()
    assert catalog.tables() == []


def test_two_undrops_of_one_table_do_not_both_commit(catalog: Catalog) -> None:
    catalog.create_table("t", "id long")
    catalog.drop_table("t")
    first, second = catalog.begin(), catalog.begin()
    first.undrop_table("t")
    second.undrop_table("t", as_="other")
    second.commit()
    with pytest.raises(NameChangedError, match="undropped by another transaction"):
        first.commit()
    assert catalog.tables() == ["default.other"]


def test_a_purge_that_died_while_it_deleted_is_finished_and_nobody_undrops_the_rest(
    target: str, tmp_path: Path
) -> None:
    with open_catalog(target, tmp_path) as catalog:
        with catalog.begin() as tx:
            tx.write("t", numbers(1), mode="append")
        place = place_of(catalog, "t")
        catalog.drop_table("t")
        expire(catalog)
    script = "from deltalakedb.mirror.purge import finish_purges; finish_purges(cat.store, cat.storage_options_of)"
    kill_at("drop.data_deleted", target, script)
    with open_catalog(target, tmp_path) as catalog:
        assert (data_files(place), place.exists()) == ([], True)
        with pytest.raises(TableNotFoundError):
            catalog.undrop_table("t")
        with catalog.store.write() as conn:
            conn.sql("update dl_leases set until_ms = 0 returning lease")
        reconcile(catalog)
        assert not place.exists()


def test_a_table_whose_location_was_given_is_not_undropped_but_attached(catalog: Catalog, tmp_path: Path) -> None:
    with catalog.begin() as tx:
        tx.write("t", numbers(1), mode="append", location=tmp_path / "mine")
    catalog.drop_table("t")
    assert catalog.tables(dropped=True) == []
    with pytest.raises(TableNotFoundError, match="dl attach"):
        catalog.undrop_table("t")
    deltalake.write_deltalake(tmp_path / "mine", numbers(2), mode="append")
    assert ids_of(catalog.attach_table(tmp_path / "mine", "t")) == [1, 2]


def test_the_place_of_a_dropped_table_is_its_own_until_it_is_mirrored_to_the_end(target: str, tmp_path: Path) -> None:
    """Whatever the mirror writes late, it lands in nobody else's log."""
    with open_catalog(target, tmp_path, mirror_mode="off") as catalog:
        with catalog.begin() as tx:
            tx.write("t", numbers(1), mode="append", location=tmp_path / "mine")
        with catalog.begin() as tx:
            tx.drop_table("t")
        with pytest.raises(LocationOwnedError, match=r"default\.t, which was dropped and is not yet mirrored"):
            catalog.create_table("u", "id long", location=tmp_path / "mine")
        reconcile(catalog)
        assert deltalake.DeltaTable(tmp_path / "mine").to_pyarrow_table().num_rows == 1
        assert catalog.create_table("u", location=tmp_path / "mine").mode == "follower"


def test_a_purge_leaves_alone_what_others_have_in_the_folder_of_a_user(catalog: Catalog, tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path / "mine" / "other", numbers(7))
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    with catalog.begin() as tx:
        tx.write("t", numbers(1), mode="append", location=tmp_path / "mine")
    own = set(data_files(tmp_path / "mine")) - {f"other/{file}" for file in data_files(tmp_path / "mine" / "other")}
    assert len(own) == 1
    catalog.drop_table("t", purge=True)
    left = sorted(path.name for path in (tmp_path / "mine").iterdir())
    assert left == ["notes.txt", "other"]
    assert deltalake.DeltaTable(tmp_path / "mine" / "other").to_pyarrow_table().num_rows == 1


def test_a_rebuilt_catalog_knows_when_a_table_was_dropped_and_undropped(catalog: Catalog, tmp_path: Path) -> None:
    def write(name: str, number: int) -> None:
        with catalog.begin() as tx:
            tx.write(name, numbers(number), mode="append")

    write("b.t", 1)
    catalog.drop_table("b.t")
    write("b.t", 50)
    then = now_ms(catalog)
    catalog.undrop_table("b.t", as_="b.old")
    write("b.gone", 3)
    catalog.drop_table("b.gone")
    reconcile(catalog)
    with dl.connect(str(tmp_path / "again.db"), warehouse=str(tmp_path / "lake")) as rebuilt:
        rebuilt.rebuild(tmp_path / "lake")
        assert (rebuilt.tables(), rebuilt.tables(dropped=True)) == (["b.old", "b.t"], ["b.gone"])
        for one in (catalog, rebuilt):
            assert one.at(then).tables() == ["b.t"]
            assert ids_of(one.at(then).table("b.t")) == [50]
        rebuilt.undrop_table("b.gone")
        assert ids_in(rebuilt, "b.gone") == [3]


def test_a_purge_that_died_is_no_live_table_for_a_rebuilt_catalog(target: str, tmp_path: Path) -> None:
    with open_catalog(target, tmp_path) as catalog, catalog.begin() as tx:
        tx.write("t", numbers(1), mode="append")
    kill_at("drop.data_deleted", target, "cat.drop_table('t', purge=True)")
    with dl.connect(str(tmp_path / "again.db"), warehouse=str(tmp_path / "lake")) as rebuilt:
        rebuilt.rebuild(tmp_path / "lake")
        assert (rebuilt.tables(), rebuilt.tables(dropped=True)) == ([], ["default.t"])


def test_a_promotion_that_died_leaves_no_fence_behind_when_its_table_is_dropped(target: str, tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path / "mine", numbers(1))
    with open_catalog(target, tmp_path) as catalog:
        catalog.create_table("t", location=tmp_path / "mine")
    kill_at("promote.fence_put", target, "cat.table('t').delete('id = 1')")
    with open_catalog(target, tmp_path) as catalog:
        assert catalog.table("t").mode == "follower"
        catalog.drop_table("t")
    deltalake.write_deltalake(tmp_path / "mine", numbers(2), mode="append")
    assert deltalake.DeltaTable(tmp_path / "mine").to_pyarrow_table().num_rows == 2


def test_a_table_that_is_there_is_not_taken_for_one_with_other_properties(catalog: Catalog, tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path / "mine", numbers(1))
    for asked in ({"properties": {"drop_protection": "true"}}, {"description": "x"}, {"schema": "id long not null"}):
        with pytest.raises(dl.exceptions.SchemaMismatchError, match="a Delta table is there already"):
            catalog.create_table("t", location=tmp_path / "mine", **asked)
    with pytest.raises(dl.exceptions.ConfigError, match="whole disk"):
        catalog.create_table("t", "id long", location="/")
    assert catalog.tables() == []


def test_a_detached_table_is_forgotten_whatever_its_properties_say(catalog: Catalog) -> None:
    catalog.create_table("t", "id long", properties={"drop_protection": "true"})
    catalog.detach_table("t")
    catalog.drop_table("t")
    assert catalog.tables() == []


def test_a_protected_table_is_dropped_by_nobody(catalog: Catalog, tmp_path: Path) -> None:
    catalog.create_table("t", "id long", properties={"drop_protection": "true"})
    catalog.create_table("u", "id long", properties={"drop_protection": "TRUE"}, location=tmp_path / "mine")
    for name in ("t", "u"):
        for purge in (False, True):
            with pytest.raises(DropProtectedError, match="drop_protection"):
                catalog.drop_table(name, purge=purge)
    catalog.create_table("v", "id long")
    late = catalog.begin()
    late.drop_table("v")
    catalog.set_properties("v", {"drop_protection": "true"})
    with pytest.raises(dl.exceptions.CommitFailedError):
        late.commit()
    catalog.set_properties("v", {"drop_protection": "false"})
    catalog.drop_table("v")
    assert catalog.tables() == ["default.t", "default.u"]


def test_an_instant_shows_names_namespaces_drops_and_undrops_as_of_then(catalog: Catalog) -> None:
    instants = [now_ms(catalog)]
    catalog.create_namespace("eu", {"team": "a"})
    catalog.create_table("eu.t", "id long")
    instants.append(now_ms(catalog))
    catalog.rename_table("eu.t", "eu.u")
    instants.append(now_ms(catalog))
    catalog.drop_table("eu.u")
    catalog.drop_namespace("eu")
    instants.append(now_ms(catalog))
    catalog.undrop_table("eu.u", as_="us.u")
    instants.append(now_ms(catalog))
    seen = [(catalog.at(at).tables(), catalog.at(at).namespaces()) for at in instants]
    assert seen == [
        ([], ["default"]),
        (["eu.t"], ["default", "eu"]),
        (["eu.u"], ["default", "eu"]),
        ([], ["default"]),
        (["us.u"], ["default", "us"]),
    ]
    assert catalog.at(instants[1]).table("eu.t").version() == 0
    assert catalog.at(instants[4]).table("us.u").version() == 3


@pytest.mark.parametrize(("name", "what"), [("a%20b", "percent sign"), ("a\\b", "backslash"), ("a\nb", r"U\+000A")])
def test_a_location_that_other_readers_take_for_another_one_is_refused(
    catalog: Catalog, tmp_path: Path, name: str, what: str
) -> None:
    """`deltalake` decodes the path it is given, and would look in another folder."""
    with pytest.raises(dl.exceptions.ConfigError, match=f"contains .*{what}.*choose a location without it"):
        catalog.create_table("t", "id long", location=str(tmp_path / name))
    deltalake.write_deltalake(str(tmp_path / "plain"), numbers(1))
    (tmp_path / "plain").rename(tmp_path / name)
    assert catalog.attach_table(tmp_path / name, "there").count() == 1, "one that is there already is read"


def test_a_creation_that_died_does_not_keep_a_delta_table_from_being_attached(catalog: Catalog, tmp_path: Path) -> None:
    from deltalakedb.serve.bridge.log import BridgedLog

    BridgedLog(catalog).reserve("died", location=str(tmp_path / "there"))
    deltalake.write_deltalake(str(tmp_path / "there"), numbers(1))
    assert catalog.attach_existing("other", tmp_path / "there")
    assert catalog.tables() == ["default.other"]


def test_a_plain_write_into_the_folder_of_a_dropped_table_is_told_of_undrop(catalog: Catalog) -> None:
    with catalog.begin() as tx:
        tx.write("eu.t", numbers(1))
    place = place_of(catalog, "eu.t")
    catalog.mirror.flush(30)
    with pytest.raises(dl.exceptions.NotWritableError, match=r"open it as deltasql://"):
        dl.write_deltalake(str(place), numbers(2), mode="append")
    catalog.drop_table("eu.t")
    catalog.mirror.flush(30)
    with pytest.raises(dl.exceptions.NotWritableError, match=r"was dropped from its catalog.*`dl undrop eu\.t`"):
        dl.write_deltalake(str(place), numbers(2), mode="append")


def test_a_drop_whose_files_cannot_be_finished_is_committed_all_the_same(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After SQL has committed, nothing may fail the transaction: it would delete the files that it wrote."""
    with catalog.begin() as tx:
        tx.write("old", numbers(1), mode="append")

    def fail(step: str) -> None:
        if step == "drop.committed":
            raise StorageError("the store is away")

    monkeypatch.setattr(steps, "_observers", [fail])
    with catalog.begin() as tx:
        tx.drop_table("old", purge=True)
        tx.write("new", numbers(2), mode="append")
    assert tx.result["default.new"] == 0
    assert ids_of(catalog.table("new")) == [2]
    assert deltalake.DeltaTable(place_of(catalog, "new")).to_pyarrow_table().num_rows == 1
    assert "default.old" not in catalog.tables()
