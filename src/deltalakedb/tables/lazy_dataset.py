"""LazyDataset: a table as a PyArrow dataset whose files are planned at scan time, from the scan's filter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

ReadRows: TypeAlias = Callable[[list[str] | None, pc.Expression | None], pa.RecordBatchReader]


class LazyDataset(ds.Dataset):  # type: ignore[misc]  # pyarrow has no types
    """A dataset for DuckDB, Polars and others that scan datasets: their columns and filter reach the plan.

    No file is listed before a scan. Methods that work on single files use the dataset of all files.
    """

    def __init__(self, schema: pa.Schema, read: ReadRows, files: Callable[[], ds.FileSystemDataset]) -> None:
        # Dataset's constructor needs a C++ dataset of Arrow; every method that would use it is overridden below.
        self._columns = schema
        self._read = read
        self._files = files

    def __repr__(self) -> str:
        return f"LazyDataset({', '.join(self._columns.names)})"

    def __reduce__(self) -> Any:
        raise TypeError("a lazy dataset is not pickled; use `to_pyarrow_dataset`")

    @property
    def schema(self) -> pa.Schema:
        return self._columns

    @property
    def partition_expression(self) -> pc.Expression:
        return pc.scalar(True)

    def scanner(
        self,
        columns: Sequence[str] | Mapping[str, pc.Expression] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002  callers use this name
        **_: Any,
    ) -> ds.Scanner:
        """Scan the table: the filter selects files in the log and rows in them; only `columns` are read."""
        are_names = (
            columns is not None and not isinstance(columns, Mapping) and set(columns) <= set(self._columns.names)
        )
        if columns is None or are_names:
            return ds.Scanner.from_batches(self._read(None if columns is None else list(columns), filter))
        return ds.Scanner.from_batches(self._read(None, filter), columns=columns)

    def get_fragments(self, filter: pc.Expression | None = None) -> Iterator[ds.Fragment]:  # noqa: A002
        fragments: Iterator[ds.Fragment] = self._files().get_fragments(filter)
        return fragments

    def replace_schema(self, schema: pa.Schema) -> ds.FileSystemDataset:
        return self._files().replace_schema(schema)

    def filter(self, expression: pc.Expression) -> ds.Dataset:
        return self._files().filter(expression)

    def sort_by(self, sorting: Any, **options: Any) -> ds.InMemoryDataset:
        return self._files().sort_by(sorting, **options)

    def join(self, *arguments: Any, **options: Any) -> ds.InMemoryDataset:
        return self._files().join(*arguments, **options)

    def join_asof(self, *arguments: Any, **options: Any) -> ds.InMemoryDataset:
        return self._files().join_asof(*arguments, **options)
