"""Other people's readers on what the cluster wrote, wherever it lies: `deltalake`, and DuckDB's delta extension."""

from importlib import import_module
from pathlib import Path
from typing import Any, cast

import deltalake
import duckdb

from tests.fixtures.readers import DuckDB
from tests.fixtures.s3 import ACCESS_KEY_ID, REGION, S3, SECRET_ACCESS_KEY

Rows = list[tuple[Any, ...]]


def rows_by_deltalake(uri: str, bucket: S3) -> Rows:
    """The rows of the mirror, in order."""
    table = deltalake.DeltaTable(uri, storage_options=bucket.storage_options)
    return _sorted(tuple(row.values()) for row in table.to_pyarrow_table().to_pylist())


def rows_by_duckdb(uri: str, bucket: S3) -> Rows:
    reader = DuckDB()
    folder = Path(cast(str, import_module("duckdb_extension_httpfs").__file__)).parent
    endpoint = bucket.endpoint_url.removeprefix("http://")
    reader.run(
        f"load '{folder}/extensions/v{duckdb.__version__}/httpfs.duckdb_extension'",
        f"create secret (type s3, key_id '{ACCESS_KEY_ID}', secret '{SECRET_ACCESS_KEY}', region '{REGION}', "
        f"endpoint '{endpoint}', url_style 'path', use_ssl false)",
    )
    try:
        rows = reader.latest(cast(Path, uri)).rows
        return _sorted(tuple(row.values()) for row in rows.to_pylist())
    finally:
        reader.close()


def _sorted(rows: Any) -> Rows:
    return sorted(rows, key=repr)
