"""Files for Iceberg clients are written to an object store as they are to a disk."""

from pathlib import Path

import deltalake
import pyarrow as pa

from deltalakedb import connect
from tests.fixtures.s3 import S3
from tests.iceberg.delta.reading import rows_of


def numbers(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "p": [f"p {number % 3}" for number in ids]})


def test_a_table_on_s3(tmp_path: Path, s3: S3) -> None:
    deltalake.write_deltalake(s3.uri("lake/t"), numbers(1, 2), partition_by=["p"], storage_options=s3.storage_options)
    with connect(str(tmp_path / "catalog.db")) as catalog:
        catalog.create_namespace("shop")
        catalog.attach_table(s3.uri("lake/t"), "shop.t", storage_options=s3.storage_options)
        options = {**s3.storage_options, "aws_conditional_put": "etag"}
        for number in range(3, 5):
            deltalake.write_deltalake(s3.uri("lake/t"), numbers(number), mode="append", storage_options=options)
            table = catalog.iceberg("shop.t", storage_options=s3.storage_options)
            assert rows_of(table.scan().to_arrow()) == rows_of(numbers(*range(1, number + 1)))
    assert len([key for key in s3.list_keys() if key.startswith("lake/t/_iceberg/")]) == 3 + 3 + 2
