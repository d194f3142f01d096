"""Data files in a real S3 endpoint: names, sizes, rows, and errors without secrets."""

import os

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from deltalakedb.data import arrow_to_schema, read_files, write_files
from deltalakedb.data.deletion_vectors import DeletionVectors, write_vectors
from deltalakedb.exceptions import DeltaError
from deltalakedb.log.protocol.actions import Format, Metadata, Protocol
from deltalakedb.log.protocol.commit import render_commit
from deltalakedb.log.protocol.paths import decode_path
from deltalakedb.log.protocol.rows import adds_to_batch
from deltalakedb.storage.location import open_storage
from tests.fixtures.s3 import S3, SECRET_ACCESS_KEY

DATA = pa.table({"id": range(6), "p": ["a b", "é/=%:", "", None, "a+b", "~"], "d": [1.5] * 6})
SCHEMA = arrow_to_schema(DATA.schema)


def test_partitions_with_special_names_are_read_back_by_us_and_by_deltalake(s3: S3) -> None:
    storage = open_storage(s3.uri("lake/orders"), s3.storage_options)
    adds = write_files(DATA, storage=storage, schema=SCHEMA, partition_columns=["p"])
    keys = {key.removeprefix("lake/orders/") for key in s3.list_keys()}
    assert keys == {decode_path(add.path) for add in adds}
    for add in adds:
        head = s3.client.head_object(Bucket=s3.bucket, Key=f"lake/orders/{decode_path(add.path)}")
        assert head["ContentLength"] == add.size
    read = read_files(adds_to_batch(adds), storage=storage, schema=SCHEMA, partition_columns=["p"]).read_all()
    expected = [row | {"p": row["p"] or None} for row in DATA.to_pylist()]
    assert read.sort_by("id").to_pylist() == expected
    metadata = Metadata("11111111-2222-3333-4444-555555555555", Format(), SCHEMA.to_json(), ("p",), {})
    s3.put(
        "lake/orders/_delta_log/00000000000000000000.json",
        render_commit([Protocol(1, 2), metadata, *adds], fenced=False),
    )
    theirs = pa.table(DeltaTable(s3.uri("lake/orders"), storage_options=s3.storage_options).scan())
    assert sorted(theirs.select(DATA.column_names).to_pylist(), key=lambda row: row["id"]) == expected


def test_a_large_file_is_uploaded_in_parts_and_read_in_ranges(s3: S3) -> None:
    data = pa.table({"noise": [os.urandom(1000) for _ in range(20_000)]})
    storage = open_storage(s3.uri("lake/large"), s3.storage_options)
    schema = arrow_to_schema(data.schema)
    (add,) = write_files(data, storage=storage, schema=schema)
    assert add.size > 20_000_000
    etag = s3.client.head_object(Bucket=s3.bucket, Key=f"lake/large/{add.path}")["ETag"]
    assert "-" in etag, "the mark of a multipart upload"
    assert read_files(adds_to_batch([add]), storage=storage, schema=schema).read_all().equals(data)


def test_deletion_vectors_are_written_and_read_back(s3: S3) -> None:
    """pyarrow hands over its own buffers for them, and not bytes as for a Parquet file."""
    storage = open_storage(s3.uri("lake/vectors"), s3.storage_options)
    rows = [np.array(numbers, np.uint64) for numbers in ([0, 5, 70_000], [], range(9000))]
    vectors, path = write_vectors(storage, rows)
    assert s3.list_keys() == [f"lake/vectors/{path}"]
    read = DeletionVectors(storage)
    for vector, numbers in zip(vectors, rows, strict=True):
        assert np.array_equal(read.rows(vector), numbers)


def test_a_failed_write_leaves_no_object(s3: S3) -> None:
    storage = open_storage(s3.uri("lake/failed"), s3.storage_options)
    batches = [*DATA.to_batches(), pa.record_batch({"id": [0], "p": ["x"], "d": ["no number"]})]
    with pytest.raises(DeltaError):
        write_files(batches, storage=storage, schema=SCHEMA, target_file_size=1)
    assert s3.list_keys() == []


def test_a_missing_bucket_is_told_without_secrets(s3: S3) -> None:
    storage = open_storage("s3://no-such-bucket/t", s3.storage_options)
    with pytest.raises(DeltaError, match="cannot write s3://no-such-bucket/t/part-00000") as caught:
        write_files(DATA, storage=storage, schema=SCHEMA)
    assert SECRET_ACCESS_KEY not in str(caught.value)


def test_a_missing_object_is_named(s3: S3) -> None:
    storage = open_storage(s3.uri("lake/gone"), s3.storage_options)
    (add,) = write_files(DATA, storage=storage, schema=SCHEMA)
    s3.delete(f"lake/gone/{add.path}")
    with pytest.raises(DeltaError, match=f"{add.path} not found"):
        read_files(adds_to_batch([add]), storage=storage, schema=SCHEMA).read_all()
