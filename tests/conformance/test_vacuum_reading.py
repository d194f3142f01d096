"""Old versions whose files a vacuum took say so, and where the vacuum watermark is; on every engine.

A table `t` has a row in each of its first versions; version 3 replaces them all, so that a vacuum takes their files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from deltalakedb import Catalog, DeltaTable
from deltalakedb.exceptions import DeltaError, FilesVacuumedError
from deltalakedb.store import registry
from deltalakedb.store.registry import Head
from deltalakedb.store.vacuums import PURGED
from tests.conformance.transacting import numbers, open_catalog


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


READING: dict[str, Callable[[DeltaTable], object]] = {
    "to_pyarrow_table": lambda table: table.to_pyarrow_table(),
    "with a filter": lambda table: table.to_pyarrow_table(filters="id = 1"),
    "to_pandas": lambda table: table.to_pandas(),
    "scan": lambda table: table.scan().read_all(),
    "to_pyarrow_dataset": lambda table: table.to_pyarrow_dataset().to_table(),
    "by expressions": lambda table: table.to_pyarrow_table(columns={"x": pa.compute.field("id")}),  # type: ignore[arg-type]  # as pyarrow's datasets take them
    "lazy_dataset": lambda table: table.lazy_dataset().to_table(),
    "load_cdf": lambda table: table.load_cdf(1).read_all(),
}


@pytest.mark.parametrize("read", READING)
def test_a_version_whose_files_are_gone_says_why(catalog: Catalog, read: str) -> None:
    table = catalog.table("t", version=2)
    vacuum(catalog)
    with pytest.raises(FilesVacuumedError, match=r"vacuum watermark of default\.t: .* versions below 3 have"):
        READING[read](table)


def test_who_reads_through_the_interface_of_arrow_streams_is_told_too(catalog: Catalog) -> None:
    table = catalog.table("t", version=2)
    vacuum(catalog)
    with pytest.raises(OSError, match=r"vacuum watermark of default\.t"):  # it carries few types of errors
        pa.table(table)


@pytest.mark.parametrize("read", READING)
def test_a_version_whose_files_were_kept_is_read(catalog: Catalog, read: str) -> None:
    vacuum(catalog, 1, 2)
    READING[read](catalog.table("t", version=2))


def test_a_file_that_somebody_else_deleted_is_not_blamed_on_a_vacuum(catalog: Catalog) -> None:
    vacuum(catalog)
    (uri,) = catalog.table("t").file_uris()
    Path(uri).unlink()
    with pytest.raises(DeltaError, match="not found: the log names this data file") as told:
        catalog.table("t").to_pyarrow_table()
    assert not isinstance(told.value, FilesVacuumedError)


def test_a_vector_that_a_vacuum_took_is_missed_by_restore(target: str, tmp_path: Path) -> None:
    with open_catalog(target, tmp_path) as catalog:
        catalog.create_table("t", "id long", properties={"delta.enableDeletionVectors": "true"})
        with catalog.begin() as tx:
            tx.write("t", numbers(*range(10)), mode="append")
        catalog.table("t").delete("id = 1")
        catalog.table("t").delete("id = 2")
        (gone,) = vacuum(catalog)
        assert gone.endswith(".bin"), "the data file is needed, the first vector is not"
        with pytest.raises(FilesVacuumedError, match="Find missing file"):
            catalog.table("t").restore(2)


@pytest.mark.parametrize("question", [lambda t: t.to_pyarrow_table(), lambda t: t.count(), lambda t: t.plan("id = 1")])
def test_no_version_of_a_purged_table_can_be_read(catalog: Catalog, question: Callable[[DeltaTable], object]) -> None:
    newest, older = catalog.table("t"), catalog.table("t", version=1)
    head = head_of(catalog)
    with catalog.store.write() as conn:
        ids = {"table_id": head.table_id, "vacuum_count": head.vacuum_count}
        conn.run("set_vacuum_marks", **ids, vacuumed_version=PURGED)
    for table in (newest, older):
        with pytest.raises(FilesVacuumedError, match="its files were purged"):
            question(table)
        assert table.schema().fields
