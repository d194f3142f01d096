"""Owns SQL expressions on the rows of a table: read, checked against its columns, and spelled for the query engine.

The SQL is `deltalake`'s (DataFusion's), as far as DuckDB has or can be given the same meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB

from deltalakedb.exceptions import PredicateError
from deltalakedb.log.predicate import resolve_column
from deltalakedb.log.predicate_sql import parse_expression, spell
from deltalakedb.log.types import ArrayType, DataType, DecimalType, MapType, PrimitiveType, StructType
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
# Functions of DataFusion that DuckDB has under another name.
_RENAMED: Final = {
    "MAKE_ARRAY": "LIST_VALUE",
    "BTRIM": "TRIM",
    "OCTET_LENGTH": "STRLEN",
    "FROM_UNIXTIME": "TO_TIMESTAMP",
    "TO_UNIXTIME": "EPOCH",
    "CARDINALITY": "LEN",
    "ARRAY_ELEMENT": "LIST_EXTRACT",
    "ARRAY_REMOVE_ALL": "LIST_REMOVE",
    "DATE_BIN": "TIME_BUCKET",
    "SIGNUM": "SIGN",
    "NOW": "NOW",
}
# What `arrow_cast` calls a type.
_ARROW_NAMES: Final = {
    "Utf8": "VARCHAR",
    "LargeUtf8": "VARCHAR",
    "Utf8View": "VARCHAR",
    "Int8": "TINYINT",
    "Int16": "SMALLINT",
    "Int32": "INTEGER",
    "Int64": "BIGINT",
    "UInt8": "UTINYINT",
    "UInt16": "USMALLINT",
    "UInt32": "UINTEGER",
    "UInt64": "UBIGINT",
    "Float32": "FLOAT",
    "Float64": "DOUBLE",
    "Boolean": "BOOLEAN",
    "Date32": "DATE",
    "Binary": "BLOB",
}
_COMPARISONS: Final = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ)


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression on one row."""

    text: str
    """As it was meant, spelled the same way however it was typed."""
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
    def parse_rule(cls, text: str, schema: StructType) -> Expression:
        """Read what a table demands of its rows: the same SQL, and Spark's functions beside it."""
        root = exp.Paren(this=parse_expression(text, RuleDialect))
        return cls._of(root, text, _Names(schema, {}), {}, is_rule=True)

    @classmethod
    def _of(
        cls, root: Node, text: str, names: _Names, aliases: Mapping[str, StructType], *, is_rule: bool = False
    ) -> Expression:
        wrong = root.find(exp.Query, exp.Subquery, exp.AggFunc, exp.Window)
        if wrong is not None:
            raise PredicateError(f"an expression on rows cannot hold {wrong.sql(dialect=DuckDB)!r}: {text[:200]!r}")
        shown = commit_text(root.this)
        is_stable = not _is_volatile(root)
        if is_rule:
            translate_spark_functions(root)
        _translate(root, names)
        return cls(
            text=shown,
            sql=spell(root),
            columns=frozenset(column for _, column in names.used),
            by_alias={alias: frozenset(c for a, c in names.used if a == alias) for alias in aliases},
            is_stable=is_stable,
        )


def _is_volatile(root: Node) -> bool:
    named = {node.name.upper() for node in root.find_all(exp.Anonymous)}
    return root.find(exp.Rand, exp.Uuid) is not None or bool(named & {"RAND", "GEN_RANDOM_UUID", "UUIDV7", "NEXTVAL"})


class _Names:
    """What the columns of an expression are, and which were used."""

    def __init__(self, schema: StructType | None, aliases: Mapping[str, StructType]) -> None:
        self._schema = schema
        self._aliases = aliases
        self._folded = {alias.casefold(): alias for alias in aliases}
        self.used: set[tuple[str, str]] = set()

    def find(self, path: Sequence[str]) -> tuple[str, list[str], str]:
        """The alias ('' when there are none), the names as the schema spells them, and the type."""
        if not self._aliases:
            assert self._schema is not None
            column = resolve_column(self._schema, path)
            self.used.add(("", column.path[0]))
            return "", list(column.path), column.type_name
        alias = self._folded.get(path[0].casefold()) if len(path) > 1 else None
        if alias is not None:
            column = resolve_column(self._aliases[alias], path[1:])
        else:
            alias, column = self._unqualified(path)
        self.used.add((alias, column.path[0]))
        return alias, list(column.path), column.type_name

    def is_text(self, path: Sequence[str]) -> bool:
        return self.find(path)[2] == "string"

    def _unqualified(self, path: Sequence[str]) -> tuple[str, Any]:
        having = [alias for alias, schema in self._aliases.items() if schema.field(path[0]) is not None]
        if len(having) != 1:
            known = ", ".join(self._aliases)
            what = "is ambiguous" if having else "is no column of any of them"
            raise PredicateError(f"the column {'.'.join(path)!r} {what}; write it with one of the aliases {known}")
        return having[0], resolve_column(self._aliases[having[0]], path)


def _translate(root: Node, names: _Names) -> None:
    """What DuckDB spells or means otherwise; inner nodes first, as an outer one may be replaced with what is in it."""
    for node in list(root.find_all(*_COMPARISONS)):
        _compare_as_text(node, names)
    for node in list(root.find_all(exp.In, exp.Between)):
        _compare_many_as_text(node, names)
    for node in list(root.find_all(exp.Cast)):
        if node.to.this in exp.DataType.INTEGER_TYPES and _is_fractional(node.this, names):
            node.set("this", exp.Anonymous(this="TRUNC", expressions=[node.this]))  # the engine would round
    for node in reversed(list(root.find_all(exp.Anonymous, exp.UnixToTime, exp.ToChar))):
        made = _function(node) if isinstance(node, exp.Anonymous) else _moment(node)
        if made is not node:
            node.replace(made)
    for node in list(root.find_all(exp.Column)):
        alias, path, _ = names.find([part.name for part in node.parts])
        node.replace(_reference(alias, path))


def _moment(node: Node) -> Node:
    """`to_timestamp` of a text reads it, of a number both mean seconds; `to_char` writes a moment by a format."""
    if isinstance(node, exp.ToChar):
        arguments = [node.this, *([node.args["format"]] if node.args.get("format") else [])]
        return exp.Anonymous(this="STRFTIME", expressions=arguments)
    literal = node.this
    is_text = isinstance(literal, exp.Literal) and literal.is_string
    return exp.cast(literal, "TIMESTAMP", dialect=DuckDB) if is_text else node


def _reference(alias: str, path: Sequence[str]) -> Node:
    parts = [exp.to_identifier(part, quoted=True) for part in ([alias] if alias else []) + list(path)]
    return exp.Dot.build([exp.column(parts[0]), *parts[1:]]) if len(parts) > 1 else exp.column(parts[0])


def _compare_as_text(node: Node, names: _Names) -> None:
    """A text column and a number are compared as texts; DuckDB would make numbers of all texts, or fail."""
    for mine, other in (("this", "expression"), ("expression", "this")):
        if _is_text(node.args[mine], names) and _is_number(node.args[other]):
            node.set(other, exp.Literal.string(node.args[other].name))


def _compare_many_as_text(node: Node, names: _Names) -> None:
    if not _is_text(node.this, names):
        return
    others = node.expressions if isinstance(node, exp.In) else [node.args["low"], node.args["high"]]
    for other in others:
        if _is_number(other):
            other.replace(exp.Literal.string(other.name))


def _is_text(node: Node, names: _Names) -> bool:
    return isinstance(node, exp.Column) and names.is_text([part.name for part in node.parts])


def _is_fractional(node: Node, names: _Names) -> bool:
    """Whether a value may have digits after the point, as far as columns, literals and arithmetic tell."""
    if isinstance(node, exp.Column):
        return names.find([part.name for part in node.parts])[2].startswith(("float", "double", "decimal"))
    if isinstance(node, exp.Literal):
        return _is_number(node) and not node.is_int
    if isinstance(node, exp.Paren | exp.Neg | exp.Add | exp.Sub | exp.Mul | exp.Div | exp.Mod):
        return any(_is_fractional(part, names) for part in node.iter_expressions())
    return False


def _is_number(node: Node) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string


def _function(node: Node) -> Node:
    name, arguments = node.name.upper(), node.expressions
    if name in _RENAMED:
        return exp.Anonymous(this=_RENAMED[name], expressions=arguments)
    if name == "NAMED_STRUCT":
        if len(arguments) % 2 or not all(isinstance(one, exp.Literal) for one in arguments[::2]):
            raise PredicateError("named_struct takes names, as texts, and values in turn")
        pairs = zip(arguments[::2], arguments[1::2], strict=True)
        made = [exp.PropertyEQ(this=exp.to_identifier(key.name, quoted=True), expression=value) for key, value in pairs]
        return exp.Struct(expressions=made)
    if name in ("ARROW_CAST", "ARROW_TRY_CAST"):
        wanted = arguments[1].name if len(arguments) == 2 else ""
        if wanted not in _ARROW_NAMES:
            raise PredicateError(f"arrow_cast to {wanted!r} is not known here; use cast(... as ...)")
        make: Callable[..., Node] = exp.cast if name == "ARROW_CAST" else _try_cast
        return make(arguments[0], _ARROW_NAMES[wanted], dialect=DuckDB)
    if name == "TO_DATE" and len(arguments) == 1:
        return exp.cast(arguments[0], "DATE")
    return node


def _try_cast(this: Node, to: str, **options: Any) -> Node:
    return exp.TryCast(this=this, to=exp.DataType.build(to, **options))


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


def cast_sql(sql: str, found: str, wanted: DataType, *, strict: bool = True) -> str:
    """An expression of the engine's type `found` as a column's type; without `strict` what does not fit is null."""
    cast = "CAST" if strict else "TRY_CAST"
    name = str(wanted)
    if name in _INTEGERS and (found.startswith("DECIMAL") or found in ("DOUBLE", "FLOAT")):
        sql = f"trunc({sql})"  # the engine would round
    elif name == "binary" and found == "VARCHAR":
        return f"encode({sql})"  # and read escapes
    elif name in ("timestamp", "timestamp_ntz") and found in ("BIGINT", "INTEGER", "SMALLINT", "TINYINT"):
        sql = f"make_timestamp({sql})"  # microseconds, as Arrow counts
    return f"{cast}({sql} AS {sql_type(wanted)})"
