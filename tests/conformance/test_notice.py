"""The notice beside a managed table's log: it comes with the fence, goes with it, and disturbs nobody."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.dataset
import pytest

import deltalakedb as dl
from deltalakedb.catalog.entries import require_table
from deltalakedb.mirror.notice import prepare_notice, put_notice, render_notice
from deltalakedb.store.names import parse_table_name
from deltalakedb.store.registry import TableRow
from tests.fixtures.readers import Deltalake, DuckDB, Polars
from tests.fixtures.s3 import S3, SECRET_ACCESS_KEY

ROWS = pa.table({"id": [1, 2]})


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[dl.Catalog]:
    with dl.connect(tmp_path / "catalog.db", warehouse=str(tmp_path / "lake")) as opened:
        yield opened


def notice(folder: Path) -> Path:
    return folder / "_dldb" / "README.txt"


def write(catalog: dl.Catalog, name: str = "sales.orders") -> Path:
    with catalog.begin() as tx:
        tx.write(name, ROWS, mode="append")
    assert catalog.mirror.flush(30)
    return Path(catalog.table(name).table_uri.removeprefix("file://"))


def row_of(catalog: dl.Catalog, name: str = "sales.orders") -> TableRow:
    with catalog.store.read() as conn:
        return require_table(conn, parse_table_name(name))


def test_a_managed_table_says_whose_it_is_how_to_write_it_and_the_way_out(catalog: dl.Catalog, tmp_path: Path) -> None:
    folder = write(catalog)
    lines = notice(folder).read_text().splitlines()
    assert len(lines) == 5
    assert f"Table sales.orders, catalog deltasql://sqlite/{tmp_path}/catalog.db (id " in lines[1]
    assert "unsupported writer feature: deltalakedb" in lines[2]
    assert f"dldb:///file{folder}" in lines[2]
    assert "`dl detach sales.orders`" in lines[3]
    assert f"`dl doctor file://{folder}`" in lines[4]


def test_readers_and_vacuum_pass_over_it_and_so_do_our_own_checks(catalog: dl.Catalog) -> None:
    folder = write(catalog)
    assert notice(folder).exists()
    for reader in (Deltalake(), DuckDB(), Polars()):
        assert reader.latest(folder).rows.num_rows == 2, reader
    assert pyarrow.dataset.dataset(folder).count_rows() == 2, "the Parquet files of the folder, without any log"
    unused = catalog.table("sales.orders").vacuum(retention_hours=0, dry_run=True, enforce_retention_duration=False)
    assert unused == []
    assert catalog.validate("sales.orders").drifts == ()
    catalog.detach_table("sales.orders")
    notice(folder).parent.mkdir(exist_ok=True)
    notice(folder).write_text("mine")  # what deltalake's vacuum thinks of it when nothing refuses it
    unused = deltalake.DeltaTable(folder).vacuum(retention_hours=0, dry_run=True, enforce_retention_duration=False)
    assert unused == []


def test_it_is_looked_at_once_a_process_and_written_again_by_the_next_one(catalog: dl.Catalog, tmp_path: Path) -> None:
    folder = write(catalog)
    notice(folder).unlink()
    write(catalog)
    assert not notice(folder).exists(), "further commits pay nothing for it"
    with dl.connect(tmp_path / "catalog.db", warehouse=str(tmp_path / "lake")) as again:
        write(again)
    assert notice(folder).exists()


def test_it_goes_with_the_fence(catalog: dl.Catalog) -> None:
    folder = write(catalog)
    catalog.detach_table("sales.orders")
    assert catalog.mirror.flush(30)
    assert not notice(folder).exists()
    catalog.promote_table("sales.orders")
    assert catalog.mirror.flush(30)
    assert notice(folder).exists()


def test_an_imported_table_has_one_until_it_is_dropped(catalog: dl.Catalog, tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    deltalake.write_deltalake(folder, ROWS)
    catalog.import_table(folder, "sales.theirs")
    assert catalog.mirror.flush(30)
    assert "Table sales.theirs" in notice(folder).read_text()
    catalog.drop_table("sales.theirs")
    assert not notice(folder).exists()
    deltalake.write_deltalake(folder, ROWS, mode="append")


def test_a_follower_has_none(catalog: dl.Catalog, tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    deltalake.write_deltalake(folder, ROWS)
    catalog.attach_table(folder, "sales.theirs")
    deltalake.write_deltalake(folder, ROWS, mode="append")
    catalog.follow("sales.theirs")
    assert not notice(folder).parent.exists()


def test_a_renamed_table_is_called_by_its_new_name(catalog: dl.Catalog) -> None:
    folder = write(catalog)
    catalog.rename_table("sales.orders", "sales.bills")
    write(catalog, "sales.bills")
    assert "Table sales.bills" in notice(folder).read_text()


def test_a_file_of_somebody_else_is_never_touched(catalog: dl.Catalog, tmp_path: Path) -> None:
    folder = write(catalog)
    notice(folder).write_text("mine")
    with dl.connect(tmp_path / "catalog.db", warehouse=str(tmp_path / "lake")) as again:
        write(again)
    assert notice(folder).read_text() == "mine"
    catalog.detach_table("sales.orders")
    assert notice(folder).read_text() == "mine"


def test_a_notice_that_comes_after_the_detach_does_not_stay(catalog: dl.Catalog) -> None:
    folder = write(catalog)
    mirror = catalog.mirror._mirror_of(row_of(catalog))
    notice(folder).unlink()
    mirror.is_explained = False
    with catalog.store.read() as conn:
        prepare_notice(conn, mirror, "somewhere")
    catalog.detach_table("sales.orders")
    put_notice(catalog.store, mirror)
    assert not notice(folder).exists()


def test_a_rebuilt_catalog_puts_its_own_address_there(catalog: dl.Catalog, tmp_path: Path) -> None:
    folder = write(catalog)
    catalog.close()
    with dl.connect(tmp_path / "other.db", warehouse=str(tmp_path / "lake")) as other:
        other.rebuild(tmp_path / "lake")
        assert other.mirror.flush(30)
    assert f"{tmp_path}/other.db" in notice(folder).read_text()


def test_on_s3_it_comes_and_goes_too(tmp_path: Path, s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in s3.storage_options.items():
        monkeypatch.setenv(key, value)
    with dl.connect(tmp_path / "catalog.db", warehouse=s3.uri("lake")) as catalog:
        with catalog.begin() as tx:
            tx.write("sales.orders", ROWS)
        assert catalog.mirror.flush(30)
        key = "lake/sales/orders/_dldb/README.txt"
        text = s3.client.get_object(Bucket=s3.bucket, Key=key)["Body"].read().decode()
        assert f"dldb:///s3a/{s3.bucket}/lake/sales/orders" in text
        assert SECRET_ACCESS_KEY not in text
        catalog.detach_table("sales.orders")
        assert key not in s3.list_keys()


def test_no_secret_of_the_catalogs_address_is_in_it(catalog: dl.Catalog) -> None:
    write(catalog)
    text = render_notice(row_of(catalog), "an-id", "postgresql://ann:hunter2@db.example/lake").decode()
    assert "hunter2" not in text
    assert "db.example" in text
