"""Owns the values that a merge's clauses set: which columns, by which expressions, and what they add to the schema."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

from deltalakedb.definitions.table import refuse_generated, with_schema
from deltalakedb.exceptions import DeltaError
from deltalakedb.log.types import StructField, StructType
from deltalakedb.operations.evolution import Definition
from deltalakedb.operations.expressions import Expression, quoted
from deltalakedb.operations.merge_names import Names
from deltalakedb.operations.merge_request import Clause, MergeRequest
from deltalakedb.operations.target import Target

if TYPE_CHECKING:
    import pyarrow as pa

ClauseValues: TypeAlias = dict[int, dict[str, Expression]]
"""By the clause's number: the columns it sets, and to what."""

logger = logging.getLogger(__name__)


def evolve_for(target: Target, request: MergeRequest, names: Names) -> Definition:
    """The table's definition with the columns of the source that clauses set and it does not have yet."""
    if not request.merge_schema:
        return Definition.of(target)
    from deltalakedb.data import check_schema

    fields: dict[str, pa.Field] = {item.name.casefold(): item for item in target.schema.to_arrow()}
    for clause in request.clauses:
        for item in _set_fields(clause, names, target.name):
            refuse_generated([item], target.name)
            fields[item.name.casefold()] = StructType((item,)).to_arrow().field(0)
    merged = check_schema(_schema(fields), target.schema, schema_mode="merge", table_name=target.name)
    if merged is target.schema:
        return Definition.of(target)
    return Definition.of(
        target, with_schema(target.protocol, target.metadata, merged, table=target.name, history=target.history)
    )


def _schema(fields: dict[str, pa.Field]) -> pa.Schema:
    import pyarrow as pa

    return pa.schema(list(fields.values()))


def _set_fields(clause: Clause, names: Names, table: str) -> Iterator[StructField]:
    """Fields of the source that a clause sets in the target, where the target lacks them or their parts."""
    if clause.values is None:
        yield from (item for item in _source_fields(clause, names) if _adds_to(names, item))
        return
    for text in clause.values:
        name = names.set_column(text)
        known = names.target_schema.field(name)
        item = names.source_schema.field(name)
        if item is None and known is None:
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
    known = names.target_schema.field(item.name)
    return known is None or (known.type != item.type and isinstance(item.type, StructType))


def read_values(target: Target, request: MergeRequest, names: Names, schema: StructType) -> ClauseValues:
    """The expressions of all clauses, by the columns of `schema`, the one that the table has afterwards."""
    found: ClauseValues = {}
    for number, clause in enumerate(request.clauses):
        if clause.predicate is not None:
            names.read(clause.predicate)
        if clause.action != "delete":
            found[number] = _values(target, clause, names, schema)
    return found


def _values(target: Target, clause: Clause, names: Names, schema: StructType) -> dict[str, Expression]:
    values: dict[str, Expression] = {}
    if clause.values is None:
        for item in _source_fields(clause, names):
            known = schema.field(item.name)
            if known is not None:
                values[known.name] = names.read(f"{names.s}.{quoted(item.name)}")
        return values
    for text, expression in clause.values.items():
        name, one = names.set_column(text), names.read(expression)
        known = schema.field(name)
        if known is None:
            # So does `deltalake`, which says nothing.
            logger.warning(
                "merge into %s: it has no column %r; what a clause sets it to is left out", target.name, name
            )
        else:
            values.setdefault(known.name, one)
    return values
