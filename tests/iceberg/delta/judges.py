"""Readers of either format that judge what a Delta table holds after Iceberg clients appended to it."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow as pa

from deltalakedb import Catalog
from tests.fixtures.readers import Deltalake, DuckDB, sort_rows
from tests.iceberg.delta.appending import Lake


def folder_of(catalog: Catalog, name: str) -> Path:
    return Path(unquote(urlparse(catalog.table(name).table_uri).path))


def check_readers(catalog: Catalog, lake: Lake, expected: pa.Table, name: str = "t", *, served: bool = True) -> None:
    """Every reader sees these rows: ours, `deltalake`, DuckDB's delta_scan, and PyIceberg in both of its ways.

    PyIceberg does not read partition values that are null or dates from plans of the catalog: `served` is then false.
    """
    catalog.mirror.flush()
    folder = folder_of(catalog, f"shop.{name}")
    readings = {
        "ours": catalog.table(f"shop.{name}").to_pyarrow_table(),
        "deltalake": Deltalake().latest(folder).rows,
        "duckdb": DuckDB().latest(folder).rows,
    }
    for plans in ("client", "server") if served else ("client",):
        readings[f"pyiceberg, planned by the {plans}"] = lake.load(name, plans=plans).scan().to_arrow()
    wanted = sort_rows(expected).to_pylist()
    for reader, rows in readings.items():
        assert sort_rows(rows, like=expected.schema).to_pylist() == wanted, f"what {reader} reads"
