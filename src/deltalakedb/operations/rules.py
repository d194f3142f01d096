"""The rules of a table for its rows: constraints, invariants, generated columns and defaults, evaluated by DuckDB."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from deltalakedb.exceptions import AppendOnlyError, DeltaError, PredicateError
from deltalakedb.log.protocol.actions import Metadata, Protocol
from deltalakedb.log.protocol.features import (
    CONSTRAINT_PREFIX,
    GENERATION_EXPRESSION,
    every_field,
    is_enabled,
    writer_features,
)
from deltalakedb.log.schema.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    parse_schema,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from deltalakedb.data.engine import Engine
    from deltalakedb.operations.expressions import Expression

_INVARIANTS: Final = "delta.invariants"
_DEFAULT: Final = "CURRENT_DEFAULT"
_MAPPING_PREFIX: Final = "delta.columnMapping."
_SQL_TYPES: Final = {
    "string": "varchar",
    "long": "bigint",
    "integer": "integer",
    "short": "smallint",
    "byte": "tinyint",
    "float": "real",
    "double": "double",
    "boolean": "boolean",
    "binary": "blob",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
}


@dataclass(frozen=True, slots=True)
class Check:
    """A condition that must be true of every row; false and null are violations."""

    what: str
    """The name of the check in messages."""
    text: str


@dataclass(frozen=True, slots=True)
class Computed:
    """A column whose value is computed from the row if the data does not have it."""

    column: str
    text: str


@dataclass(frozen=True)
class Rules:
    """The rules of one table, except NOT NULL, which the writer of files checks."""

    table: str
    schema: StructType
    checks: tuple[Check, ...] = ()
    generated: tuple[Computed, ...] = ()
    defaults: tuple[Computed, ...] = ()

    @classmethod
    def of(cls, metadata: Metadata, protocol: Protocol, *, table: str = "") -> Rules:
        """Return the rules in a table's metadata that its protocol enables."""
        schema = parse_schema(metadata.schema_string)
        features = writer_features(protocol)
        checks: list[Check] = []
        if "invariants" in features:
            checks += _invariants(metadata.schema_string)
        if "checkConstraints" in features:
            checks += _constraints(metadata.configuration)
        generated = _computed(schema, GENERATION_EXPRESSION) if "generatedColumns" in features else ()
        defaults = _computed(schema, _DEFAULT) if "allowColumnDefaults" in features else ()
        return cls(table or metadata.name or metadata.id, schema, tuple(checks), generated, defaults)

    @property
    def is_empty(self) -> bool:
        """Whether there are no rules to apply."""
        return not (self.checks or self.generated or self.defaults)

    def apply(self, reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
        """Return the rows in the table's columns, with defaults and generated columns; DeltaError if a rule is broken.

        The result is a stream: rules are checked as the rows are read.
        """
        if self.is_empty:
            return reader
        import pyarrow as pa

        from deltalakedb.data.sources import gathered

        judge = _Judge(self, reader.schema)
        if judge.is_idle:
            return reader
        return pa.RecordBatchReader.from_batches(judge.schema, judge.judge(gathered(reader)))


def refuse_changed_rows(metadata: Metadata, table: str, what: str = "overwritten") -> None:
    """Raise AppendOnlyError if the table is append-only."""
    if is_enabled(metadata.configuration, "delta.appendOnly"):
        raise AppendOnlyError(
            "The transaction includes Remove action with data change but Delta table is append-only: the rows of "
            f"{table} cannot be {what} (delta.appendOnly); append, or set that property to false first"
        )


@lru_cache(maxsize=64)
def _invariants(schema_string: str) -> tuple[Check, ...]:
    checks = []
    for path, item in every_field(parse_schema(schema_string)):
        text = item.metadata.get(_INVARIANTS)
        if text is None:
            continue
        try:
            expression = json.loads(text)["expression"]["expression"]
        except (ValueError, KeyError, TypeError) as error:
            raise DeltaError(f"the invariant of column {path} cannot be read: {text!r}") from error
        checks.append(Check(f"the invariant of column {path}", str(expression)))
    return tuple(checks)


def _constraints(configuration: Mapping[str, str | None]) -> Iterator[Check]:
    for key, text in configuration.items():
        if key.startswith(CONSTRAINT_PREFIX) and text:
            yield Check(f"the constraint {key.removeprefix(CONSTRAINT_PREFIX)}", text)


def _computed(schema: StructType, key: str) -> tuple[Computed, ...]:
    return tuple(Computed(item.name, str(item.metadata[key])) for item in schema.fields if item.metadata.get(key))


class _Judge:
    """Converts batches of one Arrow schema to the table's columns, and checks them."""

    def __init__(self, rules: Rules, arrow: pa.Schema) -> None:
        import pyarrow as pa

        from deltalakedb.data.arrow_types import file_type
        from deltalakedb.data.conform import Conformer

        self._rules = rules
        names_in_data = {name.casefold() for name in arrow.names}
        self._filled = [rule for rule in rules.defaults if rule.column.casefold() not in names_in_data]
        default_columns = {rule.column for rule in self._filled}
        self._made = [rule for rule in rules.generated if rule.column.casefold() not in names_in_data]
        provided = [rule for rule in rules.generated if rule not in self._made]
        self._checks = [*rules.checks, *(_is_as_generated(rule) for rule in provided)]
        optional = default_columns | {rule.column for rule in self._made}
        relaxed = StructType(tuple(_plain_field(item, item.name in optional) for item in rules.schema.fields))
        self._conform = Conformer(arrow, relaxed)
        fields = self._conform.fields
        self.schema = pa.schema([pa.field(item.name, file_type(item.type), item.nullable) for item in fields])
        self._sql = self._to_sql(relaxed)
        self._check_sql()

    @property
    def is_idle(self) -> bool:
        """Whether data of this schema needs neither computed columns nor checks."""
        return not (self._filled or self._made or self._checks)

    def _to_sql(self, schema: StructType) -> str:
        """Return one statement in layers: the data's columns, defaults, generated columns, checks."""
        used: set[str] = set()

        def expression(text: str) -> str:
            parsed = _read(text, schema, self._rules.table)
            used.update(parsed.columns)
            return parsed.sql

        _refuse_volatile(self._rules, schema)
        filled = {rule.column: _cast(expression(rule.text), schema, rule.column) for rule in self._filled}
        generated = {rule.column: _cast(expression(rule.text), schema, rule.column) for rule in self._made}
        checks = [f"coalesce(({expression(check.text)})::boolean, false)" for check in self._checks]
        data_columns = [name for name in self.schema.names if name not in filled and name not in generated]
        self._needed = [name for name in data_columns if name in used] or data_columns[:1]
        first = _select([*map(_quote_name, self._needed), *_select_items(filled)], "batch")
        second = _select(["*", *_select_items(generated)], f"({first})")
        results = [*map(_quote_name, [*filled, *generated]), *checks]
        return _select([f"{sql} as c{index}" for index, sql in enumerate(results)], f"({second})")

    def _check_sql(self) -> None:
        """Raise DeltaError for rules that the engine cannot evaluate, before the first rows are read."""
        from deltalakedb.data.engine import Engine

        if not self.is_idle:
            with Engine() as engine:
                engine.register("batch", _nullable(self.schema).empty_table().select(self._needed))
                self._ask(engine)

    def judge(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from deltalakedb.data.engine import Engine

        columns = [rule.column for rule in (*self._filled, *self._made)]
        indexes = {name: index for index, name in enumerate(self.schema.names)}
        with Engine() as engine:
            for batch in batches:
                arrays = self._conform(batch)
                rows = pa.RecordBatch.from_arrays(arrays, schema=_nullable(self.schema))
                engine.register("batch", pa.Table.from_batches([rows.select(self._needed)]))
                results = self._ask(engine).combine_chunks()
                for number, column in enumerate(columns):
                    kind = self.schema.field(indexes[column]).type
                    arrays[indexes[column]] = pa.concat_arrays(results.column(number).cast(kind).chunks)
                for number, check in enumerate(self._checks, len(columns)):
                    self._refuse(check, results.column(number), arrays)
                yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _ask(self, engine: Engine) -> pa.Table:
        try:
            return engine.table(self._sql)
        except DeltaError as error:
            raise DeltaError(
                f"table {self._rules.table}: its rules cannot be judged for this data: {error}; nothing was written"
            ) from error

    def _refuse(self, check: Check, kept: pa.ChunkedArray, arrays: Sequence[pa.Array]) -> None:
        import pyarrow.compute as pc

        from deltalakedb.data.conform import describe_invalid

        if pc.all(kept).as_py() is not False:
            return
        raise DeltaError(
            f"{describe_invalid(self.schema.names, arrays, pc.invert(kept).combine_chunks())}\n"
            f"table {self._rules.table}: these rows break {check.what}, {check.text}; nothing was written"
        )


def _is_as_generated(one: Computed) -> Check:
    column = one.column.replace("`", "``")
    return Check(f"the generation of column {one.column}", f"`{column}` is not distinct from ({one.text})")


def _refuse_volatile(rules: Rules, schema: StructType) -> None:
    """Raise for generated columns whose value would differ each time it is computed."""
    for rule in rules.generated:
        if not _read(rule.text, schema, rules.table).is_stable:
            raise DeltaError(
                f"table {rules.table}: the generated column {rule.column} is {rule.text}, which gives another value "
                "each time; nothing was written"
            )


def _read(text: str, schema: StructType, table: str) -> Expression:
    from deltalakedb.operations.expressions import Expression

    try:
        return Expression.parse_rule(text, schema)
    except PredicateError as error:
        raise PredicateError(f"{error}; this is the rule {text!r} of table {table}") from error


def _cast(sql: str, schema: StructType, column: str) -> str:
    item = schema.field(column)
    assert item is not None
    match item.type:
        case DecimalType():
            return f"({sql})::decimal({item.type.precision},{item.type.scale})"
        case PrimitiveType() if item.type.name in _SQL_TYPES:
            return f"({sql})::{_SQL_TYPES[item.type.name]}"
        case _:
            return sql


def _select(columns: Sequence[str], source: str) -> str:
    return f"select {', '.join(columns)} from {source}"


def _select_items(expressions: Mapping[str, str]) -> list[str]:
    return [f"{sql} as {_quote_name(name)}" for name, sql in expressions.items()]


def _quote_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _plain_field(item: StructField, optional: bool) -> StructField:
    """Return a field with its logical name; a column that is computed later may be missing."""
    metadata = {key: value for key, value in item.metadata.items() if not key.startswith(_MAPPING_PREFIX)}
    return replace(item, type=_plain_type(item.type), nullable=item.nullable or optional, metadata=metadata)


def _plain_type(data_type: DataType) -> DataType:
    match data_type:
        case StructType():
            return StructType(tuple(_plain_field(item, False) for item in data_type.fields))
        case ArrayType():
            return replace(data_type, element_type=_plain_type(data_type.element_type))
        case MapType():
            key, value = _plain_type(data_type.key_type), _plain_type(data_type.value_type)
            return replace(data_type, key_type=key, value_type=value)
        case _:
            return data_type


def _nullable(schema: pa.Schema) -> pa.Schema:
    import pyarrow as pa

    return pa.schema([item.with_nullable(True) for item in schema])
