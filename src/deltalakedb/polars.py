"""Polars on our tables: read_delta, scan_delta and write_delta, for tables, names and URIs."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from deltalakedb.table import DeltaTable

if TYPE_CHECKING:
    import polars as pl

    from deltalakedb.merge import TableMerger

_READ_FROM_PATHS = frozenset({"string", "byte", "short", "integer", "long", "date"})
_PLAIN = re.compile(r"[\w.-]+", re.ASCII)
"""Values that are spelled the same in a path and in a URL."""
Source = str | os.PathLike[str] | DeltaTable


def scan_delta(source: Source, *, version: int | str | datetime | None = None, **options: Any) -> pl.LazyFrame:
    """Scan a table of ours, or anything that DeltaTable opens, with `polars.scan_delta`; Polars reads the files itself.

    A table that Polars cannot read itself is scanned as a lazy dataset: one with column mapping, or whose partition
    values are not in its paths, where Polars looks for them.
    """
    import polars as pl

    table = _open(source, version)
    if any(item.name != item.physical_name for item in table._struct.fields) or not _is_hive_like(table):
        # Polars must not push its filters down to Arrow, which orders NaN differently and counts null as not in a list.
        return pl.scan_pyarrow_dataset(table.lazy_dataset(), allow_pyarrow_filter=False)
    return pl.scan_delta(as_deltalake(table), **options)


def _is_hive_like(table: DeltaTable) -> bool:
    """Return whether Polars finds the partition values of all files in their paths, and reads them correctly."""
    columns = [table._struct.field(name) for name in table._snapshot.metadata.partition_columns]
    if any(item is None or str(item.type) not in _READ_FROM_PATHS for item in columns):
        return False
    if not columns:
        return True
    files = table.files(["path", "partition_values"])
    for path, values in zip(*(column.to_pylist() for column in files.columns), strict=True):
        folders = path.split("/")[:-1]
        for name, value in json.loads(values or "{}").items():
            if value is None or not _PLAIN.fullmatch(value) or f"{name}={value}" not in folders:
                return False
    return True


def read_delta(
    source: Source,
    *,
    version: int | str | datetime | None = None,
    columns: list[str] | None = None,
    **options: Any,
) -> pl.DataFrame:
    """Read a table, or some of its columns, as `polars.read_delta` does."""
    frame = scan_delta(source, version=version, **options)
    return (frame if columns is None else frame.select(columns)).collect()


def write_delta(
    frame: pl.DataFrame,
    target: Source,
    *,
    mode: str = "error",
    storage_options: dict[str, str] | None = None,
    delta_write_options: Mapping[str, Any] | None = None,
    delta_merge_options: Mapping[str, Any] | None = None,
) -> TableMerger | None:
    """Write a frame as `DataFrame.write_delta` does; mode "merge" returns a TableMerger to add clauses to."""
    from deltalakedb.writer import write_deltalake

    if mode != "merge":
        write_deltalake(
            target,
            frame,
            mode=mode,  # type: ignore[arg-type]  # write_deltalake checks the mode
            storage_options=storage_options,
            **(delta_write_options or {}),
        )
        return None
    if delta_merge_options is None:
        raise ValueError("a merge needs `delta_merge_options`, with a predicate at least")
    table = target if isinstance(target, DeltaTable) else DeltaTable(target, storage_options=storage_options)
    return table.merge(frame, **delta_merge_options)


def as_deltalake(table: DeltaTable) -> Any:
    """Return the table, which Polars' own functions take once `deltalake` is loaded.

    `deltalake` must be installed; without it Polars has no `scan_delta` either.
    """
    try:
        import deltalake  # noqa: F401  Polars looks for its class
    except ImportError as error:
        raise ImportError("Polars reads Delta tables with the package deltalake: pip install deltalake") from error
    return table


def _open(source: Source, version: int | str | datetime | None) -> DeltaTable:
    table = source if isinstance(source, DeltaTable) else DeltaTable(source)
    if version is None or version == table.version():
        return table
    other = object.__new__(type(table))
    other.__dict__.update(table.__dict__)  # a copy: the caller's object stays at its version
    other.load_as_version(version)
    return other
