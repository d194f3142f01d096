"""Datasets, file names and the storage handler in an object store, beside `deltalake`'s."""

from __future__ import annotations

import deltalake
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pa_fs

import deltalakedb as dl
from deltalakedb.fs import DeltaStorageHandler
from tests.fixtures.s3 import S3


def test_a_table_in_an_object_store_is_read_in_every_way(s3: S3) -> None:
    uri, options = s3.uri("lake/orders"), s3.storage_options
    rows = pa.table({"id": [1, 2, 3], "kind": ["a b", "a b", "c"]})
    deltalake.write_deltalake(uri, rows, partition_by=["kind"], storage_options=options)
    ours, theirs = (lib.DeltaTable(uri, storage_options=options) for lib in (dl, deltalake))
    assert sorted(ours.file_uris()) == sorted(theirs.file_uris())
    dataset = ours.to_pyarrow_dataset()
    assert sorted(dataset.files) == sorted(theirs.to_pyarrow_dataset().files)
    assert dataset.to_table().sort_by("id").equals(rows)
    assert dataset.to_table(filter=ds.field("kind") == "a b").num_rows == 2
    assert pa.table(ours.scan(predicate="id = 3")).to_pylist() == [{"id": 3, "kind": "c"}]


def test_the_storage_handler_works_in_an_object_store(s3: S3) -> None:
    files = pa_fs.PyFileSystem(DeltaStorageHandler(s3.uri("lake/notes"), s3.storage_options))
    with files.open_output_stream("texts/a.txt") as stream:
        stream.write(b"words")
    files.copy_file("texts/a.txt", "texts/deep/b.txt")
    assert files.open_input_file("texts/deep/b.txt").read() == b"words"
    assert [info.path for info in files.get_file_info(pa_fs.FileSelector("texts"))] == ["texts/deep", "texts/a.txt"]
    everything = files.get_file_info(pa_fs.FileSelector("texts", recursive=True))
    assert sorted(info.path for info in everything) == ["texts/a.txt", "texts/deep", "texts/deep/b.txt"]
    assert files.get_file_info("texts").type == pa_fs.FileType.Directory
    files.delete_file("texts/a.txt")
    files.delete_dir("texts")
    assert files.get_file_info("texts/deep/b.txt").type == pa_fs.FileType.NotFound
    assert s3.list_keys() == []
