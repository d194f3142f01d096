"""Changes as rows for users of `format("pgcdc")`: typed, for one table, or as JSON, for all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from deltalakedb.cdc.layers import AFTER, BEFORE, COMMITTED_AT, LSN, OP, ORDINAL, UNCHANGED, XID
from deltalakedb.cdc.lsn import format_lsn
from deltalakedb.cdc.source.peek import ChangeRows, RangeRead, RelationChanged, Stopped, read_changes
from deltalakedb.exceptions import CaptureError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from deltalakedb.cdc.tables import CapturedTable

_PLAIN: Final = (OP, LSN, XID, ORDINAL, COMMITTED_AT, UNCHANGED)


def typed_rows(
    dsn: str, slot: str, publication: str, start: int, end: int, table: CapturedTable, schema: StructType
) -> Iterator[pa.RecordBatch]:
    """The changes of one table, in the Arrow types of Spark's schema."""
    from pyspark.sql.pandas.types import to_arrow_schema

    arrow_schema = to_arrow_schema(schema)
    for changes in _changes(dsn, slot, publication, start, end, [table]):
        columns = [changes.rows.column(item.name).cast(item.type) for item in arrow_schema]
        yield pa.RecordBatch.from_arrays(columns, schema=arrow_schema)


def json_rows(
    dsn: str, slot: str, publication: str, start: int, end: int, tables: Sequence[CapturedTable]
) -> Iterator[pa.RecordBatch]:
    """The changes of all tables; rows as JSON, with values as DuckDB prints them."""
    import duckdb

    with duckdb.connect() as engine:
        engine.execute("set timezone = 'UTC'")
        for changes in _changes(dsn, slot, publication, start, end, tables):
            rows = changes.rows
            before, after = (
                _first_column(engine.from_arrow(pa.table({"row": rows.column(name)})).project("to_json(row)::varchar"))
                for name in (BEFORE, AFTER)
            )
            columns = [
                pa.array([changes.source] * rows.num_rows, pa.string()),
                *map(rows.column, _PLAIN),
                before,
                after,
            ]
            yield pa.RecordBatch.from_arrays(columns, names=["table", *_PLAIN, BEFORE, AFTER])


def _first_column(rows: object) -> pa.Array:
    column = rows.to_arrow_table().column(0)  # type: ignore[attr-defined]  # a relation of DuckDB
    return column.combine_chunks().cast(pa.string())


def _changes(
    dsn: str, slot: str, publication: str, start: int, end: int, tables: Sequence[CapturedTable]
) -> Iterator[ChangeRows]:
    for item in read_changes(dsn, slot, publication, start, end, tables):
        match item:
            case ChangeRows():
                yield item
            case RelationChanged(source, _, lsn):
                raise CaptureError(
                    f"the columns of {source} are others in the transaction at {format_lsn(lsn)} than now: read up to "
                    'there with .option("endLsn", ...), or begin after it with .option("startLsn", ...)'
                )
            case Stopped(_, reason, _):
                raise CaptureError(reason)
            case RangeRead():
                return
