"""LazyDataset: a table as a PyArrow dataset that is planned when it is scanned, by what the scan asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

ReadRows: TypeAlias = Callable[[list[str] | None, pc.Expression | None], pa.RecordBatchReader]


class LazyDataset(ds.Dataset):  # type: ignore[misc]  # pyarrow has no types
    """DuckDB, Polars and whoever else scans datasets hand over columns and a filter: both reach the plan.

    No file is listed before a scan. What concerns files one by one is answered by the dataset of all files.
    """

    def __init__(self, schema: pa.Schema, read: ReadRows, files: Callable[[], ds.FileSystemDataset]) -> None:
        # Dataset's own constructor wants a dataset of Arrow's C++; every method that would need it is replaced below.
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
        filter: pc.Expression | None = None,  # noqa: A002  the name that callers use
        **_: Any,
    ) -> ds.Scanner:
        """One scan: the filter chooses files in the log and rows in them; only the columns asked for are read."""
        plain = columns is not None and not isinstance(columns, Mapping) and set(columns) <= set(self._columns.names)
        if columns is None or plain:
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
