"""Polars on our tables: read_delta, scan_delta, write_delta, and tables that Polars accepts as `deltalake`'s."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from deltalakedb.table import DeltaTable

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

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
    """Return the table as an instance of `deltalake.DeltaTable` too, which Polars accepts.

    All its members are ours. `deltalake` must be installed; without it Polars has no `scan_delta` either.
    """
    polars_table = object.__new__(_class_of_both(type(table)))  # type: ignore[arg-type]  # a class is hashable
    polars_table.__dict__.update(table.__dict__)
    return polars_table


@cache
def _class_of_both(ours: type[DeltaTable]) -> type[DeltaTable]:
    """Return a subclass of `ours` and `deltalake.DeltaTable`; in a transaction, `ours` records what Polars reads."""
    try:
        import deltalake
    except ImportError as error:
        raise ImportError("Polars reads Delta tables with the package deltalake: pip install deltalake") from error

    import arro3.core
    import pyarrow as pa

    class PolarsTable(ours, deltalake.DeltaTable):  # type: ignore[misc,valid-type]  # ours comes first
        """A table of ours that is an instance of `deltalake`'s class."""

        def get_add_actions(self, flatten: bool = False) -> arro3.core.Table:
            """Return the files without bounds that Polars would misinterpret: NaN is outside all bounds, those of
            booleans are often wrong, and some writers round decimals."""
            actions: Any = pa.table(super().get_add_actions(flatten))
            for side in ("min", "max"):
                index = actions.column_names.index(side) if side in actions.column_names else -1
                if index < 0 or flatten:
                    continue
                names = [item.name for item in actions.schema.field(index).type if not _is_doubtful(item.type)]
                column = actions.column(index).combine_chunks()
                parts = {name: column.field(name) for name in names}
                actions = actions.remove_column(index)
                if parts:
                    bounds = pa.StructArray.from_arrays(list(parts.values()), names=names)
                    actions = actions.add_column(index, side, bounds)
            return arro3.core.Table.from_arrow(actions)

    return PolarsTable


def _is_doubtful(kind: pa.DataType) -> bool:
    import pyarrow.types as pt

    if pt.is_struct(kind):
        return any(_is_doubtful(item.type) for item in kind)
    return bool(pt.is_floating(kind) or pt.is_boolean(kind) or pt.is_decimal(kind))


def _open(source: Source, version: int | str | datetime | None) -> DeltaTable:
    table = source if isinstance(source, DeltaTable) else DeltaTable(source)
    if version is None or version == table.version():
        return table
    other = object.__new__(type(table))
    other.__dict__.update(table.__dict__)  # a copy: the caller's object stays at its version
    other.load_as_version(version)
    return other
