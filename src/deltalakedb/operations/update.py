"""UPDATE: sets columns in the rows for which a predicate is true."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltalakedb.exceptions import PredicateError
from deltalakedb.log.protocol.actions import Action
from deltalakedb.log.protocol.proposal import ProposedCommit
from deltalakedb.log.schema.types import StructField, to_arrow_type
from deltalakedb.operations.change_data import ChangeWriter, feeds_changes
from deltalakedb.operations.expressions import Expression, cast_sql, quoted
from deltalakedb.operations.find import NO_COLUMN, find_rows
from deltalakedb.operations.rewriting import replace_rows
from deltalakedb.operations.rules import Rules, refuse_changed_rows
from deltalakedb.operations.target import Done, Target, open_engine
from deltalakedb.runtime.lazy import cached_property

if TYPE_CHECKING:
    from deltalakedb.operations.parquet_options import Properties

logger = logging.getLogger(__name__)
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

    A value that does not fit its column is an error, or null if `error_on_type_mismatch` is False.
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
    matches = find_rows(target, condition)
    metrics["scan_time_ms"] = int((time.perf_counter() - started) * 1000)
    if not matches.files:
        return Done(None, metrics, matches.read)
    with ChangeWriter(target) if feeds_changes(target) else nullcontext() as changes:
        replaced = replace_rows(
            target, matches.files, values, values.columns, changes=changes, writer_properties=writer_properties
        )
        cdc_actions = () if changes is None else changes.finish()
    actions: tuple[Action, ...] = (*replaced.actions, *cdc_actions)
    metrics |= {
        "num_added_files": replaced.new_files,
        "num_removed_files": replaced.gone_files,
        "num_updated_rows": values.rows,
        "num_copied_rows": replaced.copied_rows or 0,
        "execution_time_ms": int((time.perf_counter() - started) * 1000),
    }
    parameters = {"predicate": _EVERY_ROW if condition is None else condition.text}
    commit = ProposedCommit(actions, "UPDATE", parameters, operation_metrics=metrics, read=matches.read)
    return Done(commit, metrics)


@dataclass(frozen=True)
class _NewValue:
    field: StructField
    sql: str
    columns: frozenset[str]


class NewValues:
    """Computes the new values of rows; called by several threads."""

    def __init__(self, target: Target, values: tuple[_NewValue, ...]) -> None:
        self._target = target
        self._values = values
        self._rules = Rules.of(target.metadata, target.protocol, table=target.name)
        set_columns = {value.field.name for value in values}
        self._generated = {rule.column for rule in self._rules.generated} - set_columns
        self.columns = frozenset(set_columns | self._generated)
        self._counts: list[int] = []

    @classmethod
    def bind(cls, target: Target, updates: Mapping[str, str], *, strict: bool) -> NewValues:
        """Parse the expressions and determine their types; no file is read."""
        if not updates:
            return cls(target, ())
        expressions = {name: Expression.parse(text, target.schema) for name, text in updates.items()}
        fields = [item for name in expressions if (item := _field(target, name)) is not None]
        if not fields:
            return cls(target, ())
        used_expressions = [expressions[item.name] for item in fields]
        with open_engine(target) as engine:
            rows = pa.schema([*target.schema.to_arrow(), pa.field(NO_COLUMN, pa.bool_())])
            engine.register("rows", rows.empty_table())
            # Next to a plain column, the engine rejects aggregates.
            kinds = engine.types(
                f"select {', '.join(expression.sql for expression in used_expressions)}, {quoted(NO_COLUMN)} from rows"
            )
        values = (
            _NewValue(item, cast_sql(expression.sql, kind, item.type, strict=strict), expression.columns)
            for item, expression, kind in zip(fields, used_expressions, kinds, strict=False)
        )
        return cls(target, tuple(values))

    @property
    def rows(self) -> int:
        """How many rows have been updated so far."""
        return sum(self._counts)

    @cached_property
    def _needed(self) -> list[str]:
        used = {name for value in self._values for name in value.columns}
        return [name for name in self._target.schema.names if name in used]

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows with their new values; columns that the table does not have stay unchanged."""
        self._counts.append(rows.num_rows)
        if not self._values:
            return rows
        selected = ", ".join(f"{value.sql} as c{index}" for index, value in enumerate(self._values))
        with open_engine(self._target) as engine:
            engine.register("rows", rows.select(self._needed or rows.schema.names[:1]))
            result = engine.table(f"select {selected} from rows")
        arrays = dict(zip(rows.schema.names, rows.columns, strict=True))
        for value, column in zip(self._values, result.columns, strict=True):
            arrays[value.field.name] = _as_column(column, value.field)
        new_rows = pa.RecordBatch.from_arrays(list(arrays.values()), schema=rows.schema)
        return new_rows if self._rules.is_empty else self._ruled(new_rows)

    def _ruled(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows after applying the table's rules; generated columns are recomputed from the new values."""
        own_columns = [name for name in self._target.schema.names if name not in self._generated]
        own_rows = rows.select(own_columns)
        (checked,) = self._rules.apply(pa.RecordBatchReader.from_batches(own_rows.schema, [own_rows]))
        arrays = dict(zip(rows.schema.names, rows.columns, strict=True))
        for name in self._generated:
            arrays[name] = checked.column(name)
        return pa.RecordBatch.from_arrays(list(arrays.values()), schema=rows.schema)


def _field(target: Target, name: str) -> StructField | None:
    """Return the column of exactly this name; an update of an unknown column is ignored, as in `deltalake`."""
    item = target.schema.field(name)
    if item is None or item.name != name:
        logger.warning("update of %s: it has no column %r; what it is set to is left out", target.name, name)
        return None
    return item


def _as_column(values: pa.ChunkedArray, item: StructField) -> pa.Array:
    try:
        return pa.concat_arrays(values.cast(to_arrow_type(item.type)).chunks)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise PredicateError(f"the new value of {item.name!r} is no {item.type}: {error}") from error


def literal_sql(value: Any) -> str:
    """Return a Python value as SQL; TypeError for the types that `deltalake` rejects."""
    if isinstance(value, bool | int | float):
        return _number(value)
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, datetime):
        # Microseconds since the epoch; a datetime without a zone is local time.
        return str((value.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1))
    if isinstance(value, list):
        return f"[{', '.join('null' if item is None else literal_sql(item) for item in value)}]"
    raise TypeError(
        "Invalid datatype provided in new_values, only int, float, bool, list, str or datetime or accepted: not "
        f"{type(value).__name__}; use `updates` with an SQL expression"
    )


def _number(value: bool | float) -> str:
    text = str(value)
    return f"'{text}'::double" if text in ("nan", "inf", "-inf") else text


def to_updates(updates: Mapping[str, str] | None, new_values: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the updates as SQL expressions, from either of the two arguments."""
    if updates is not None and new_values is not None:
        raise ValueError("Passing updates and new_values at same time is not allowed, pick one.")
    if new_values is not None:
        return {column: literal_sql(value) for column, value in new_values.items()}
    if updates is None:
        raise ValueError("Either updates or new_values need to be passed to update the table.")
    for column, text in updates.items():
        if not isinstance(text, str) or not isinstance(column, str):
            raise TypeError(
                f"The values of the updates parameter must all be SQL strings. Got {updates}. Did you mean to use the "
                "new_values parameter?"
            )
    return {_unquoted(column): text for column, text in updates.items()}


def _unquoted(column: str) -> str:
    """Return a column's name without SQL quotes."""
    is_quoted = len(column) > 2 and column[0] == column[-1] and column[0] in '`"'
    return column[1:-1] if is_quoted else column
