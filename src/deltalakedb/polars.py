"""Polars on our tables: read_delta, scan_delta, write_delta, and tables that Polars takes for those of `deltalake`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from .table import DeltaTable

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

    from .merge import TableMerger

_READ_FROM_PATHS = frozenset({"string", "byte", "short", "integer", "long", "date"})
_PLAIN = re.compile(r"[\w.-]+", re.ASCII)
"""Values that are the same in a path and in a URL."""
Source = str | os.PathLike[str] | DeltaTable


def scan_delta(source: Source, *, version: int | str | datetime | None = None, **options: Any) -> pl.LazyFrame:
    """`polars.scan_delta` for a table of ours, or for anything DeltaTable opens; the files are read by Polars itself.

    A table that Polars cannot read by itself is scanned as a lazy dataset: its columns are mapped, or its partition
    values are not in its paths, from which Polars takes them.
    """
    import polars as pl

    table = _opened(source, version)
    if any(item.name != item.physical_name for item in table._struct.fields) or not _is_hive_like(table):
        # Arrow, to which Polars would hand its filters, orders NaN otherwise, and takes null for not in a list.
        return pl.scan_pyarrow_dataset(table.lazy_dataset(), allow_pyarrow_filter=False)
    return pl.scan_delta(as_deltalake(table), **options)


def _is_hive_like(table: DeltaTable) -> bool:
    """Whether Polars finds the partition values of all files in their paths, and reads them as they are meant."""
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
    """`polars.read_delta`: the rows at once, or some of their columns."""
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
    """`DataFrame.write_delta`: mode "merge" returns the TableMerger to which clauses are added."""
    from .writer import write_deltalake

    if mode != "merge":
        write_deltalake(
            target,
            frame,
            mode=mode,  # type: ignore[arg-type]  # write_deltalake says what modes there are
            storage_options=storage_options,
            **(delta_write_options or {}),
        )
        return None
    if delta_merge_options is None:
        raise ValueError("a merge needs `delta_merge_options`, with a predicate at least")
    table = target if isinstance(target, DeltaTable) else DeltaTable(target, storage_options=storage_options)
    return table.merge(frame, **delta_merge_options)


def as_deltalake(table: DeltaTable) -> Any:
    """The same table as an instance of `deltalake.DeltaTable` too: Polars takes it wherever it takes one of those.

    All its members are ours. `deltalake` must be installed; without it Polars has no `scan_delta` either.
    """
    made = object.__new__(_class_of_both(type(table)))  # type: ignore[arg-type]  # a class is hashable
    made.__dict__.update(table.__dict__)
    return made


@cache
def _class_of_both(ours: type[DeltaTable]) -> type[DeltaTable]:
    """`ours` may be a transaction's table: what Polars reads of it is then recorded."""
    try:
        import deltalake
    except ImportError as error:
        raise ImportError("Polars reads Delta tables with the package deltalake: pip install deltalake") from error

    import pyarrow as pa

    class PolarsTable(ours, deltalake.DeltaTable):  # type: ignore[misc,valid-type]  # ours comes first
        """A table of ours that passes for one of `deltalake`'s."""

        def _add_actions(self, flatten: bool) -> pa.Table:
            """The files, without the bounds that Polars would take for more than they say: NaN is in none of them,
            booleans' are often wrong, and some writers round decimals."""
            actions: Any = super()._add_actions(flatten)
            for side in ("min", "max"):
                place = actions.column_names.index(side) if side in actions.column_names else -1
                if place < 0 or flatten:
                    continue
                kept = [item.name for item in actions.schema.field(place).type if not _is_doubtful(item.type)]
                column = actions.column(place).combine_chunks()
                parts = {name: column.field(name) for name in kept}
                actions = actions.remove_column(place)
                if parts:
                    made = pa.StructArray.from_arrays(list(parts.values()), names=kept)
                    actions = actions.add_column(place, side, made)
            return actions

        @property
        def _table(self) -> _Raw:  # type: ignore[override]  # what Polars and deltalake's writer ask of it
            return _Raw(self)

    return PolarsTable


def _is_doubtful(kind: pa.DataType) -> bool:
    import pyarrow.types as pt

    if pt.is_struct(kind):
        return any(_is_doubtful(item.type) for item in kind)
    return bool(pt.is_floating(kind) or pt.is_boolean(kind) or pt.is_decimal(kind))


class _Raw:
    """What Polars, and the `write_deltalake` that it calls, use of the inside of a table of `deltalake`."""

    def __init__(self, table: DeltaTable) -> None:
        self._table = table

    def get_add_file_sizes(self) -> dict[str, int]:
        from .log.paths import decode_path

        files = self._table.files(["path", "size"])
        paths, sizes = (files.column(name).to_pylist() for name in ("path", "size"))
        return {decode_path(path): size for path, size in zip(paths, sizes, strict=True)}

    def write(self, *, data: Any, batch_schema: Any, **options: Any) -> None:  # noqa: ARG002  the data has its schema
        from .writer import write_deltalake

        given = {name: value for name, value in options.items() if value is not None}
        write_deltalake(self._table, data, **given)


def _opened(source: Source, version: int | str | datetime | None) -> DeltaTable:
    table = source if isinstance(source, DeltaTable) else DeltaTable(source)
    if version is None or version == table.version():
        return table
    other = object.__new__(type(table))
    other.__dict__.update(table.__dict__)  # the caller's object stays at its version
    other.load_as_version(version)
    return other
