"""Owns SQL expressions on the rows of a table: read, checked against its columns, and spelled for the query engine.

The SQL is `deltalake`'s (DataFusion's), as far as DuckDB has or can be given the same meaning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB

from deltalakedb.data.engine_values import translate_values
from deltalakedb.data.literal_types import COMPARISONS
from deltalakedb.exceptions import PredicateError
from deltalakedb.log.predicates.atoms import Column
from deltalakedb.log.predicates.predicate import no_such_column, resolve_column
from deltalakedb.log.predicates.predicate_sql import parse_expression, spell
from deltalakedb.log.schema.types import ArrayType, DataType, DecimalType, MapType, PrimitiveType, StructType
from deltalakedb.operations.expression_text import commit_text
from deltalakedb.operations.spark_functions import RuleDialect, translate_spark_functions

Node = Any
"""A node of sqlglot's tree."""

_SQL_TYPES: Final = {
    "string": "VARCHAR",
    "long": "BIGINT",
    "integer": "INTEGER",
    "short": "SMALLINT",
    "byte": "TINYINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
    "binary": "BLOB",
    "date": "DATE",
    "timestamp": "TIMESTAMPTZ",
    "timestamp_ntz": "TIMESTAMP",
}
_INTEGERS: Final = frozenset({"long", "integer", "short", "byte"})
_INTEGER_TYPES: Final = ("BIGINT", "INTEGER", "SMALLINT", "TINYINT")
_MOMENTS: Final = ("TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMP WITH TIME ZONE")


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression on one row."""

    text: str
    """As commits record it, spelled as `deltalake` does however it was typed."""
    source: str
    """As it was typed."""
    sql: str
    """For the engine; columns are quoted, and spelled as the schema does."""
    columns: frozenset[str]
    """The table's columns it looks at; with aliases, those of all of them."""
    by_alias: Mapping[str, frozenset[str]] = field(default_factory=dict)
    is_stable: bool = True
    """Whether the same row always gives the same value."""

    @classmethod
    def parse(
        cls, text: str, schema: StructType | None = None, *, aliases: Mapping[str, StructType] | None = None
    ) -> Expression:
        """Read SQL over the columns of `schema`, or over those of several relations by their aliases.

        PredicateError for what cannot be read, for a column that is not there, and for what is not about one row: a
        query, an aggregate, a window.
        """
        return cls._of(exp.Paren(this=parse_expression(text)), text, _Names(schema, aliases or {}), aliases or {})

    @classmethod
    def parse_rule(cls, text: str, schema: StructType, *, any_case: bool = True) -> Expression:
        """Read what a table demands of its rows: the same SQL, and Spark's functions beside it.

        Spark, which wrote most rules, finds columns in any case; a new rule names them as they are.
        """
        root = exp.Paren(this=parse_expression(text, RuleDialect))
        _texts_in_double_quotes(root, text, schema)
        return cls._of(root, text, _Names(schema, {}, any_case=any_case), {}, is_rule=True)

    @classmethod
    def _of(
        cls, root: Node, text: str, names: _Names, aliases: Mapping[str, StructType], *, is_rule: bool = False
    ) -> Expression:
        wrong = root.find(exp.Query, exp.Subquery, exp.AggFunc, exp.Window)
        if wrong is not None:
            raise PredicateError(f"an expression on rows cannot hold {wrong.sql(dialect=DuckDB)!r}: {text[:200]!r}")
        for node in root.find_all(exp.Column):
            names.find([part.name for part in node.parts])
        shown = commit_text(root.this, names.find)
        is_stable = not _is_volatile(root)
        if is_rule:
            translate_spark_functions(root)
        _translate(root, names, is_rule=is_rule)
        return cls(
            text=shown,
            source=text,
            sql=spell(root),
            columns=frozenset(column for _, column in names.used),
            by_alias={alias: frozenset(c for a, c in names.used if a == alias) for alias in aliases},
            is_stable=is_stable,
        )


def _texts_in_double_quotes(root: Node, text: str, schema: StructType) -> None:
    """What stands in double quotes is a text for Spark, which wrote most rules; for `deltalake` it is a column."""
    for node in list(root.find_all(exp.Column)):
        name = node.name
        quoted = '"' + name.replace('"', '""') + '"'
        if len(node.parts) == 1 and node.this.args.get("quoted") and quoted in text and schema.field(name) is None:
            node.replace(exp.Literal.string(name))


def _is_volatile(root: Node) -> bool:
    named = {node.name.upper() for node in root.find_all(exp.Anonymous)}
    return root.find(exp.Rand, exp.Uuid) is not None or bool(named & {"RAND", "GEN_RANDOM_UUID", "UUIDV7", "NEXTVAL"})


class _Names:
    """What the columns of an expression are, and which were used."""

    def __init__(self, schema: StructType | None, aliases: Mapping[str, StructType], *, any_case: bool = False) -> None:
        self._schema = schema
        self._any_case = any_case
        self._aliases = aliases
        self.used: set[tuple[str, str]] = set()

    def find(self, path: Sequence[str]) -> tuple[str, list[str], str]:
        """The alias ('' when there are none), the names as the schema spells them, and the type."""
        if not self._aliases:
            assert self._schema is not None
            column = self._resolve(self._schema, path)
            self.used.add(("", column.path[0]))
            return "", list(column.path), column.type_name
        alias = path[0] if len(path) > 1 and path[0] in self._aliases else None
        if alias is not None:
            column = self._resolve(self._aliases[alias], path[1:], alias)
        else:
            alias, column = self._unqualified(path)
        self.used.add((alias, column.path[0]))
        return alias, list(column.path), column.type_name

    def kind_of(self, node: Node) -> str:
        return self.find([part.name for part in node.parts])[2]

    def _unqualified(self, path: Sequence[str]) -> tuple[str, Column]:
        having = [alias for alias, schema in self._aliases.items() if path[0] in schema.names]
        if len(having) != 1:
            if having:
                raise PredicateError(f"Schema error: Ambiguous reference to unqualified field {'.'.join(path)}")
            raise no_such_column(".".join(path), self._qualified_names())
        return having[0], self._resolve(self._aliases[having[0]], path, having[0])

    def _resolve(self, schema: StructType, path: Sequence[str], alias: str = "") -> Column:
        """A column by its exact name, as `deltalake` finds it; a table's rules are read as Spark reads them."""
        column = resolve_column(schema, path) if schema.field(path[0]) is not None else None
        if column is None or (column.path != tuple(path) and not self._any_case):
            raise no_such_column(".".join([alias, *path] if alias else path), self._qualified_names())
        return column

    def _qualified_names(self) -> list[str]:
        if not self._aliases:
            assert self._schema is not None
            return list(self._schema.names)
        return [f"{alias}.{name}" for alias in reversed(list(self._aliases)) for name in self._aliases[alias].names]


def _translate(root: Node, names: _Names, *, is_rule: bool) -> None:
    """What DuckDB spells or means otherwise; inner nodes first, as an outer one may be replaced with what is in it."""
    for node in list(root.find_all(*COMPARISONS)):
        if isinstance(node, exp.In | exp.Between):
            _compare_many_as_text(node, names)
        else:
            _compare_as_text(node, names)
        _compare_as_floats(node, names)
    translate_values(root, names.kind_of, is_rule=is_rule)
    for node in list(root.find_all(exp.Column)):
        alias, path, _ = names.find([part.name for part in node.parts])
        node.replace(_reference(alias, path))


def _reference(alias: str, path: Sequence[str]) -> Node:
    parts = [exp.to_identifier(part, quoted=True) for part in ([alias] if alias else []) + list(path)]
    return exp.Dot.build([exp.column(parts[0]), *parts[1:]]) if len(parts) > 1 else exp.column(parts[0])


def _compare_as_text(node: Node, names: _Names) -> None:
    """A text column and a number are compared as texts; DuckDB would make numbers of all texts, or fail."""
    for mine, other in (("this", "expression"), ("expression", "this")):
        is_text = _is_text(node.args[mine], names) or _is_written_text(node.args[mine])
        if is_text and _is_number(node.args[other]):
            node.set(other, exp.Literal.string(node.args[other].name))


def _compare_many_as_text(node: Node, names: _Names) -> None:
    if not _is_text(node.this, names):
        return
    others = node.expressions if isinstance(node, exp.In) else [node.args["low"], node.args["high"]]
    for other in others:
        if _is_number(other):
            other.replace(exp.Literal.string(other.name))


def _compare_as_floats(node: Node, names: _Names) -> None:
    """A float column and a number are compared as floats, so that a row is found by the number that was written."""
    parts = list(node.iter_expressions())
    if any(isinstance(part, exp.Column) and names.kind_of(part) == "float" for part in parts):
        for part in parts:
            number = part.this if isinstance(part, exp.Neg) else part
            if _is_number(number) and not number.is_int:
                part.replace(exp.cast(part.copy(), "float"))


def _is_text(node: Node, names: _Names) -> bool:
    return isinstance(node, exp.Column) and names.kind_of(node) == "string"


def _is_written_text(node: Node) -> bool:
    return isinstance(node, exp.Literal) and bool(node.is_string)


def _is_number(node: Node) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string


def quoted(name: str) -> str:
    """A name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def sql_type(data_type: DataType) -> str:
    """A type of Delta as the engine spells it."""
    match data_type:
        case DecimalType():
            return f"DECIMAL({data_type.precision},{data_type.scale})"
        case ArrayType():
            return f"{sql_type(data_type.element_type)}[]"
        case MapType():
            return f"MAP({sql_type(data_type.key_type)}, {sql_type(data_type.value_type)})"
        case StructType():
            return f"STRUCT({', '.join(f'{quoted(item.name)} {sql_type(item.type)}' for item in data_type.fields)})"
        case PrimitiveType() if data_type.name in _SQL_TYPES:
            return _SQL_TYPES[data_type.name]
    raise PredicateError(f"values of type {data_type} cannot be computed")


def cast_sql(sql: str, engine_type: str, wanted: DataType, *, strict: bool = True) -> str:
    """An expression of a type of the engine as a column's type; without `strict` what does not fit is null."""
    cast = "CAST" if strict else "TRY_CAST"
    name = str(wanted)
    if isinstance(wanted, ArrayType) and engine_type.endswith("[]"):
        element = cast_sql("dl_e", engine_type[:-2], wanted.element_type, strict=strict)
        if element != f"{cast}(dl_e AS {sql_type(wanted.element_type)})":
            return f"list_transform({sql}, lambda dl_e: {element})"
    if name in _INTEGERS:
        sql = _as_integer(sql, engine_type, strict=strict)
    elif name == "binary" and engine_type == "VARCHAR":
        return f"encode({sql})"  # and read escapes
    elif name == "string" and engine_type.endswith("[]"):
        texts = f"list_transform({sql}, lambda dl_e: coalesce({cast_sql('dl_e', engine_type[:-2], wanted)}, ''))"
        return f"'[' || array_to_string({texts}, ', ') || ']'"
    elif name == "string" and engine_type.startswith(("STRUCT(", "MAP(")):
        raise PredicateError(f"Unsupported CAST from {engine_type} to Utf8: give the text of one of its fields")
    elif name == "string" and engine_type == "BLOB":
        return f"decode({sql})" if strict else f"TRY(decode({sql}))"  # and write escapes
    elif name == "string" and strict and engine_type in ("DOUBLE", "FLOAT", *_MOMENTS):
        return f"dl_text({sql})"
    elif name in ("timestamp", "timestamp_ntz") and engine_type in _INTEGER_TYPES:
        sql = f"make_timestamp({sql})"  # microseconds, as Arrow counts
    elif name == "timestamp_ntz" and engine_type == "VARCHAR":
        sql = f"{cast}({sql} AS TIMESTAMPTZ)"  # the engine would pass over a zone
    elif name == "date" and engine_type == "VARCHAR":
        sql = f"dl_date({sql})" if strict else f"dl_try_date({sql})"
    elif name == "date" and engine_type in ("BIGINT", "INTEGER"):
        return f"DATE '1970-01-01' + {cast}({sql} AS INTEGER)"
    return f"{cast}({sql} AS {sql_type(wanted)})"


def _as_integer(sql: str, engine_type: str, *, strict: bool) -> str:
    """What the engine casts to an integer as Arrow does: it would round, and read `1.5`, `1e3` and `0x1F`."""
    if engine_type.startswith("DECIMAL") or engine_type in ("DOUBLE", "FLOAT"):
        return f"trunc({sql})"
    if engine_type in _MOMENTS:
        return f"epoch_us({sql})"
    if engine_type == "DATE":
        return f"({sql} - DATE '1970-01-01')"
    if engine_type == "VARCHAR":
        return f"dl_whole({sql})" if strict else f"dl_try_whole({sql})"
    return sql
