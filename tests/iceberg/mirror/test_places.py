"""Paths of data files as the log has them, on disks and in object stores."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import deltalakedb
from deltalakedb.exceptions import CannotMirrorError
from deltalakedb.iceberg.mirror.places import to_delta_path
from tests.fixtures.catalogs import NewCatalog
from tests.fixtures.readers import sort_rows
from tests.fixtures.s3 import S3


@pytest.mark.parametrize(
    ("path", "location", "expected"),
    [
        ("file:///lake/t/data/a.parquet", "file:///lake/t", "data/a.parquet"),
        ("file:/lake/t/data/a.parquet", "file:///lake/t/", "data/a.parquet"),
        ("/lake/t/data/a.parquet", "file:///lake/t", "data/a.parquet"),
        ("file:///lake/t/data/a b%20+ä.parquet", "file:///lake/t", "data/a%20b%2520+%C3%A4.parquet"),
        ("file:///lake/t2/a.parquet", "file:///lake/t", "file:///lake/t2/a.parquet"),
        ("file:///lake/é x.parquet", "file:///lake/t", "file:///lake/%C3%A9%20x.parquet"),
        ("s3a://bucket/t/a=1/b.parquet", "s3://bucket/t", "a=1/b.parquet"),
        ("s3://other/t/b.parquet", "s3://bucket/t", "s3://other/t/b.parquet"),
        ("gs://bucket/t/b.parquet", "gs://bucket/t", "b.parquet"),
    ],
)
def test_a_path_is_relative_or_absolute(path: str, location: str, expected: str) -> None:
    assert to_delta_path(path, location) == expected


@pytest.mark.parametrize("path", ["file:///lake/t/../u/a.parquet", "file:///lake/t//a.parquet", "s3://b/t/./a.parquet"])
def test_a_path_with_several_spellings_is_refused(path: str) -> None:
    with pytest.raises(CannotMirrorError, match="not in its simplest form"):
        to_delta_path(path, "file:///lake/t")


def test_a_table_in_an_object_store(s3: S3, tmp_path: Path, new_catalog: NewCatalog) -> None:
    path = tmp_path / "catalog.db"
    new_catalog("sqlite", path)
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "s": ["a", "b", None]})
    options = s3.storage_options
    with deltalakedb.connect(f"deltasql://sqlite/{path}", warehouse=s3.uri("lake")) as catalog:
        catalog.create_namespace("shop")
        table = catalog.iceberg(storage_options=options).create_table("shop.t", rows.schema)
        table.append(rows)
        table.delete("id = 2")
        mirrored = catalog.mirror_iceberg("shop.t", options)
        assert mirrored.commits == (0, 1, 2)
        assert catalog.mirror_iceberg("shop.t", options).commits == ()
    read = deltalakedb.DeltaTable(mirrored.location, storage_options=options).to_pyarrow_table()
    assert sort_rows(read)["id"].to_pylist() == [1, 3]
