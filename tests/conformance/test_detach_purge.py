"""Dropping a table with its files: the drop is committed first, then the files go, whatever dies in between."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import deltalakedb as dl
from deltalakedb.catalog.catalog import Catalog
from deltalakedb.exceptions import DeltaError, LocationOwnedError
from deltalakedb.mirror.reconciler import Reconciler
from tests.conformance.lives import kill_at, write_rows
from tests.fixtures.s3 import S3


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def cat(target: str, lake: Path) -> Iterator[Catalog]:
    with dl.connect(target, warehouse=str(lake)) as cat:
        yield cat


def create(cat: Catalog, name: str = "t") -> Path:
    with cat.begin() as tx:
        tx.write(name, pa.table({"id": [1, 2, 3], "day": ["a", "b", "a"]}), partition_by=["day"])
    return Path(cat.table(name).table_uri.removeprefix("file://"))


def reconcile(cat: Catalog) -> None:
    with Reconciler(cat.store, config=cat.config, options_of=cat.storage_options_of) as reconciler:
        reconciler.once()


def notes(cat: Catalog) -> int:
    """Locations whose files are still to be deleted."""
    return len(cat.sql("select * from dl_locations where location_state = 'purging'"))


def expire_leases(cat: Catalog) -> None:
    """Who was killed while it deleted keeps others away for a few seconds."""
    with cat.store.write() as conn:
        conn.sql("update dl_leases set until_ms = 0 returning lease")


def test_a_purged_table_leaves_nothing_and_its_name_is_free(cat: Catalog) -> None:
    folder = create(cat)
    cat.drop_table("t", purge=True)
    assert (cat.tables(), folder.exists(), notes(cat)) == ([], False, 0)
    assert [entry["action"] for entry in cat.audit()] == ["purge", "drop", "create"]
    assert create(cat) == folder


@pytest.mark.in_turn
@pytest.mark.parametrize("step", ["drop.committed", "drop.data_deleted", "drop.purged"])
def test_a_purge_killed_at_any_step_is_finished_by_the_reconciler(target: str, lake: Path, step: str) -> None:
    with dl.connect(target, warehouse=str(lake)) as cat:
        folder = create(cat)
    kill_at(step, target, "cat.drop_table('t', purge=True)")
    with dl.connect(target, warehouse=str(lake)) as cat:
        assert (cat.tables(), notes(cat)) == ([], 1), "the drop is committed, and says what is left to do"
        assert folder.exists() == (step != "drop.purged")
        expire_leases(cat)
        reconcile(cat)
        assert (folder.exists(), notes(cat)) == (False, 0)


def test_a_table_that_came_to_the_place_meanwhile_is_left_alone(target: str, lake: Path) -> None:
    with dl.connect(target, warehouse=str(lake)) as cat:
        folder = create(cat)
    kill_at("drop.committed", target, "cat.drop_table('t', purge=True)")
    shutil.rmtree(folder)
    write_rows(folder, 7)  # a stranger's
    with dl.connect(target, warehouse=str(lake)) as cat:
        reconcile(cat)
        assert (folder.exists(), notes(cat)) == (True, 0)
        assert "another table is there now" in str(cat.audit()[0]["details"])


def test_nobody_gets_the_place_of_a_table_that_is_being_purged(target: str, lake: Path) -> None:
    with dl.connect(target, warehouse=str(lake)) as cat:
        folder = create(cat)
    kill_at("drop.committed", target, "cat.drop_table('t', purge=True)")
    with dl.connect(target, warehouse=str(lake)) as cat:
        with pytest.raises(LocationOwnedError, match=r"default\.t, whose files are being deleted"):
            cat.import_table(folder, "kept")
        again = create(cat)
        assert again != folder, "the same name gets another folder"
        reconcile(cat)
        assert (folder.exists(), notes(cat)) == (False, 0)
        assert cat.table("t").to_pyarrow_table().num_rows == 3


def test_the_files_of_others_are_never_purged(cat: Catalog, tmp_path: Path) -> None:
    write_rows(tmp_path / "theirs", 1)
    cat.attach_table(tmp_path / "theirs", "theirs")
    with pytest.raises(DeltaError, match="belong to others"):
        cat.drop_table("theirs", purge=True)
    assert (tmp_path / "theirs" / "_delta_log").exists()


def test_a_table_on_s3_is_purged(cat: Catalog, s3: S3) -> None:
    with cat.begin() as tx:
        data = pa.table({"id": [1, 2], "v": [3, 4]})
        tx.write("t", data, location=s3.uri("lake/t"), partition_by=["id"], storage_options=s3.storage_options)
    s3.put("lake/t/notes.txt", b"of the user")
    s3.put("lake/t2/part-0.parquet", b"of another table")
    cat.drop_table("t", purge=True)
    assert s3.list_keys() == ["lake/t/notes.txt", "lake/t2/part-0.parquet"]
