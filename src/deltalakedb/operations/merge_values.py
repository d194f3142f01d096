"""The values that a merge's clauses set: the columns, their expressions, and new columns in the schema."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

from deltalakedb.exceptions import DeltaError, SchemaMismatchError
from deltalakedb.log.protocol.feature_use import GENERATION_EXPRESSION, every_field
from deltalakedb.log.schema.types import StructField, StructType
from deltalakedb.operations.definition import with_schema
from deltalakedb.operations.evolution import Definition, partitions_last
from deltalakedb.operations.expressions import Expression, quoted
from deltalakedb.operations.merge_names import Names
from deltalakedb.operations.merge_request import Clause, MergeRequest
from deltalakedb.operations.target import Target

if TYPE_CHECKING:
    import pyarrow as pa

ClauseValues: TypeAlias = dict[int, dict[str, Expression]]
"""By clause number: the columns that the clause sets, and their expressions."""

logger = logging.getLogger(__name__)


def _refuse_generated(item: StructField, table: str) -> None:
    """Raise if a merge would add a generated column: existing rows would not have its values."""
    if any(GENERATION_EXPRESSION in field.metadata for _, field in every_field(StructType((item,)))):
        raise SchemaMismatchError(
            "Schema evolved fields cannot have generated expressions. Recreate the table to achieve this: the rows of "
            f"{table} have no value of the new column {item.name!r}"
        )


def evolve_for(target: Target, request: MergeRequest, names: Names) -> Definition:
    """Return the table's definition, with new columns of the source that clauses set."""
    if not request.merge_schema:
        return Definition.of(target)
    from deltalakedb.data import check_schema

    fields: dict[str, pa.Field] = {item.name.casefold(): item for item in target.schema.to_arrow()}
    for clause in request.clauses:
        for item in _set_fields(clause, names, target.name):
            _refuse_generated(item, target.name)
            fields[item.name.casefold()] = StructType((item,)).to_arrow().field(0)
    merged = check_schema(_schema(fields), target.schema, schema_mode="merge", table_name=target.name)
    if merged is target.schema:
        return Definition.of(target)
    merged = partitions_last(merged, target)
    return Definition.of(
        target, with_schema(target.protocol, target.metadata, merged, table=target.name, history=target.history)
    )


def _schema(fields: dict[str, pa.Field]) -> pa.Schema:
    import pyarrow as pa

    return pa.schema(list(fields.values()))


def _set_fields(clause: Clause, names: Names, table: str) -> Iterator[StructField]:
    """Yield the source fields that a clause sets, if the target lacks them or nested fields of them."""
    if clause.values is None:
        yield from (item for item in _source_fields(clause, names) if _adds_to(names, item))
        return
    for text in clause.values:
        name = names.set_column(text)
        target_field = names.target_schema.field(name)
        item = names.source_schema.field(name)
        if item is None and target_field is None:
            raise DeltaError(
                f"merge into {table}: a clause sets {name!r}, which is a column neither of the target nor of the source"
            )
        if item is not None and _adds_to(names, item):
            yield item


def _source_fields(clause: Clause, names: Names) -> Iterator[StructField]:
    if clause.action == "delete":
        return
    yield from (item for item in names.source_schema.fields if item.name not in clause.except_columns)


def _adds_to(names: Names, item: StructField) -> bool:
    target_field = names.target_schema.field(item.name)
    return target_field is None or (target_field.type != item.type and isinstance(item.type, StructType))


def read_values(target: Target, request: MergeRequest, names: Names, schema: StructType) -> ClauseValues:
    """Parse the expressions of all clauses, for the columns of `schema`, the table's schema after the merge."""
    values: ClauseValues = {}
    for number, clause in enumerate(request.clauses):
        if clause.predicate is not None:
            names.read(clause.predicate)
        if clause.action != "delete":
            values[number] = _values(target, clause, names, schema)
    return values


def _values(target: Target, clause: Clause, names: Names, schema: StructType) -> dict[str, Expression]:
    values: dict[str, Expression] = {}
    if clause.values is None:
        for item in _source_fields(clause, names):
            column = schema.field(item.name)
            if column is not None:
                values[column.name] = names.read(f"{names.s}.{quoted(item.name)}")
        return values
    for text, expression in clause.values.items():
        name, parsed = names.set_column(text), names.read(expression)
        column = schema.field(name)
        if column is None:
            # `deltalake` ignores it too, without a warning.
            logger.warning(
                "merge into %s: it has no column %r; what a clause sets it to is left out", target.name, name
            )
        else:
            values.setdefault(column.name, parsed)
    return values
