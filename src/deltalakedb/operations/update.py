"""UPDATE: rows for which a predicate is true get new values in some columns."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltalakedb.exceptions import PredicateError
from deltalakedb.log.actions import Action
from deltalakedb.log.proposal import ProposedCommit
from deltalakedb.log.types import StructField, to_arrow_type
from deltalakedb.operations.change_data import ChangeWriter, feeds_changes
from deltalakedb.operations.engines import open_engine
from deltalakedb.operations.expressions import Expression, cast_sql, quoted
from deltalakedb.operations.find import NO_COLUMN, find_rows
from deltalakedb.operations.rewriting import replace_rows
from deltalakedb.operations.rules import Rules, refuse_changed_rows
from deltalakedb.operations.target import Done, Target

if TYPE_CHECKING:
    from deltalakedb.operations.parquet_options import Properties

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EVERY_ROW = "true"


def update(
    target: Target,
    updates: Mapping[str, str],
    predicate: str | None = None,
    writer_properties: Properties | None = None,
    *,
    error_on_type_mismatch: bool = True,
) -> Done:
    """Set columns to SQL expressions of the row, where `predicate` is true; without one, in all rows.

    A value that does not fit its column is an error, or null when `error_on_type_mismatch` is off.
    """
    started = time.perf_counter()
    refuse_changed_rows(target.metadata, target.name, "updated")
    condition = None if predicate is None else Expression.parse(predicate, target.schema)
    values = NewValues.bind(target, updates, strict=error_on_type_mismatch)
    metrics: dict[str, Any] = {
        "num_added_files": 0, "num_removed_files": 0, "num_updated_rows": 0, "num_copied_rows": 0,
        "execution_time_ms": 0, "scan_time_ms": 0,
    }  # fmt: skip
    if not updates:
        return Done(None, metrics)
    found = find_rows(target, condition)
    metrics["scan_time_ms"] = int((time.perf_counter() - started) * 1000)
    if not found.files:
        return Done(None, metrics, found.read)
    with ChangeWriter(target) if feeds_changes(target) else nullcontext() as changes:
        made = replace_rows(
            target, found.files, values, values.columns, changes=changes, writer_properties=writer_properties
        )
        told = () if changes is None else changes.finish()
    actions: tuple[Action, ...] = (*made.actions, *told)
    metrics |= {
        "num_added_files": made.new_files,
        "num_removed_files": made.gone_files,
        "num_updated_rows": values.rows,
        "num_copied_rows": made.copied_rows or 0,
        "execution_time_ms": int((time.perf_counter() - started) * 1000),
    }
    parameters = {"predicate": _EVERY_ROW if condition is None else condition.text}
    commit = ProposedCommit(actions, "UPDATE", parameters, operation_metrics=metrics, read=found.read)
    return Done(commit, metrics)


@dataclass(frozen=True)
class _NewValue:
    field: StructField
    sql: str
    columns: frozenset[str]


class NewValues:
    """The new values of rows; called by several threads."""

    def __init__(self, target: Target, values: tuple[_NewValue, ...]) -> None:
        self._target = target
        self._values = values
        self._rules = Rules.of(target.metadata, target.protocol, table=target.name)
        set_ones = {value.field.name for value in values}
        self._generated = {one.column for one in self._rules.generated} - set_ones
        self.columns = frozenset(set_ones | self._generated)
        self._counts: list[int] = []

    @classmethod
    def bind(cls, target: Target, updates: Mapping[str, str], *, strict: bool) -> NewValues:
        """Read the expressions, and have the engine say what types they have; nothing is read."""
        if not updates:
            return cls(target, ())
        fields = [_field(target, name) for name in updates]
        read = [Expression.parse(text, target.schema) for text in updates.values()]
        with open_engine(target) as engine:
            rows = pa.schema([*target.schema.to_arrow(), pa.field(NO_COLUMN, pa.bool_())])
            engine.register("rows", rows.empty_table())
            # beside a bare column the engine refuses what is computed over many rows
            kinds = engine.types(f"select {', '.join(one.sql for one in read)}, {quoted(NO_COLUMN)} from rows")
        values = (
            _NewValue(item, cast_sql(one.sql, kind, item.type, strict=strict), one.columns)
            for item, one, kind in zip(fields, read, kinds, strict=False)
        )
        return cls(target, tuple(values))

    @property
    def rows(self) -> int:
        """How many rows got new values so far."""
        return sum(self._counts)

    @cached_property
    def _needed(self) -> list[str]:
        used = {name for value in self._values for name in value.columns}
        return [name for name in self._target.schema.names if name in used]

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows as they become; columns that the table does not have stay as they are."""
        self._counts.append(rows.num_rows)
        selected = ", ".join(f"{value.sql} as c{place}" for place, value in enumerate(self._values))
        with open_engine(self._target) as engine:
            engine.register("rows", rows.select(self._needed or rows.schema.names[:1]))
            found = engine.table(f"select {selected} from rows")
        arrays = dict(zip(rows.schema.names, rows.columns, strict=True))
        for value, column in zip(self._values, found.columns, strict=True):
            arrays[value.field.name] = _as_column(column, value.field)
        after = pa.RecordBatch.from_arrays(list(arrays.values()), schema=rows.schema)
        return after if self._rules.is_empty else self._ruled(after)

    def _ruled(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows that keep the table's rules; what is generated follows what was set."""
        own = [name for name in self._target.schema.names if name not in self._generated]
        given = rows.select(own)
        (kept,) = self._rules.apply(pa.RecordBatchReader.from_batches(given.schema, [given]))
        arrays = dict(zip(rows.schema.names, rows.columns, strict=True))
        for name in self._generated:
            arrays[name] = kept.column(name)
        return pa.RecordBatch.from_arrays(list(arrays.values()), schema=rows.schema)


def _field(target: Target, name: str) -> StructField:
    item = target.schema.field(name)
    if item is None:
        raise PredicateError(
            f"table {target.name} has no column {name!r} that could be set; it has {', '.join(target.schema.names)}"
        )
    return item


def _as_column(values: pa.ChunkedArray, item: StructField) -> pa.Array:
    try:
        return pa.concat_arrays(values.cast(to_arrow_type(item.type)).chunks)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise PredicateError(f"the new value of {item.name!r} is no {item.type}: {error}") from error


def literal_sql(value: Any) -> str:
    """A Python value as SQL; TypeError for those that `deltalake` does not take either."""
    if isinstance(value, bool | int | float):
        return _number(value)
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, datetime):
        # an instant in microseconds; without a zone it is the local one
        return str((value.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1))
    if isinstance(value, list):
        return f"[{', '.join('null' if one is None else literal_sql(one) for one in value)}]"
    raise TypeError(
        f"new_values takes int, float, bool, list, str and datetime, not {type(value).__name__}; "
        "use `updates` with an SQL expression"
    )


def _number(value: bool | float) -> str:
    text = str(value)
    return f"'{text}'::double" if text in ("nan", "inf", "-inf") else text


def to_updates(updates: Mapping[str, str] | None, new_values: Mapping[str, Any] | None) -> dict[str, str]:
    """One of the two ways to say what is set, as SQL expressions."""
    if updates is not None and new_values is not None:
        raise ValueError("give `updates` (SQL) or `new_values` (Python values), not both")
    if new_values is not None:
        return {column: literal_sql(value) for column, value in new_values.items()}
    if updates is None:
        raise ValueError("nothing says what to set: give `updates` (SQL) or `new_values` (Python values)")
    for column, text in updates.items():
        if not isinstance(text, str) or not isinstance(column, str):
            raise TypeError(f"`updates` maps columns to SQL texts; {column!r} is {text!r}: `new_values` takes values")
    return {_unquoted(column): text for column, text in updates.items()}


def _unquoted(column: str) -> str:
    """A column may be given as SQL quotes it."""
    is_quoted = len(column) > 2 and column[0] == column[-1] and column[0] in '`"'
    return column[1:-1] if is_quoted else column
