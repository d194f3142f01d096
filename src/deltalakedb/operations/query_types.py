"""Owns the types of a query's values: literals, casts and functions are given those that they have in DataFusion."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import pyarrow as pa
from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB

from deltalakedb.data.engine_values import translate_values
from deltalakedb.exceptions import DeltaError
from deltalakedb.operations.query_names import function_name, rust_name

Node: TypeAlias = Any
"""A node of sqlglot's tree."""
KindOf: TypeAlias = Callable[[Node], pa.DataType | None]
"""The type of a column; None where it is not known."""

_NUMBERS_IN: Final = (
    exp.Alias, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg, exp.Paren, exp.If, exp.Case, exp.Abs,
    exp.Coalesce, exp.Greatest, exp.Least, exp.Nullif, exp.Array, exp.Sum, exp.Max, exp.Min, exp.Select, exp.Nvl2,
    exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.BitwiseLeftShift, exp.BitwiseRightShift, exp.Tuple, exp.Struct,
    exp.PropertyEQ,
)  # fmt: skip
"""Where the type of a whole number becomes that of a result."""
_NUMBERS_IN_FUNCTIONS: Final = frozenset(
    (
        "make_array",
        "make_list",
        "named_struct",
        "struct",
        "row",
        "gcd",
        "lcm",
        "factorial",
        "arrow_typeof",
        "array_repeat",
        "array_replace",
        "array_replace_all",
        "array_replace_n",
    )
)
_INT32: Final = frozenset(
    (
        "length",
        "char_length",
        "character_length",
        "octet_length",
        "bit_length",
        "strpos",
        "ascii",
        "grouping",
        "levenshtein",
        "instr",
    )
)
_UINT64: Final = frozenset(
    (
        "row_number",
        "rank",
        "dense_rank",
        "ntile",
        "array_length",
        "approx_distinct",
        "array_position",
        "array_ndims",
        "array_indexof",
        "regr_count",
    )
)
_RENAMED: Final = {
    "octet_length": "strlen",
    "var": "var_samp",
    "approx_distinct": "approx_count_distinct",
    "btrim": "trim",
}
_LISTS: Final = frozenset(
    ("array_append", "array_prepend", "array_remove", "array_reverse", "array_sort", "array_distinct", "array_slice",
     "array_pop_back", "array_pop_front", "array_push_back", "array_push_front", "array_remove_all", "array_remove_n",
     "array_replace", "array_replace_all", "array_replace_n", "array_resize", "array_union", "array_intersect",
     "array_except")
)  # fmt: skip
_TAKE_VALUES: Final = (exp.ArrayAppend, exp.ArrayPrepend, exp.ArrayRemove)
_UNITS: Final = {
    "to_timestamp_seconds": "s", "to_timestamp_millis": "ms", "to_timestamp_nanos": "ns", "from_unixtime": "s",
}  # fmt: skip
_WIDE_PARTS: Final = ("epoch", "nanosecond", "nanoseconds")
_VOLATILE: Final = (exp.Rand, exp.Uuid)
_TIMESTAMPS: Final = (exp.DataType.Type.TIMESTAMP, exp.DataType.Type.TIMESTAMPNTZ)
_COMPARISONS: Final = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.In, exp.Between)
_DELTA_NAMES: Final = {
    "int8": "byte", "int16": "short", "int32": "integer", "int64": "long", "float": "float", "double": "double",
    "string": "string", "large_string": "string", "string_view": "string", "bool": "boolean", "binary": "binary",
    "date32[day]": "date",
}  # fmt: skip


def delta_name(kind: pa.DataType | None) -> str | None:
    """What Delta calls an Arrow type; None for one that is not known or has parts."""
    if kind is None:
        return None
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    return _DELTA_NAMES.get(str(kind))


def is_constant(node: Node) -> bool:
    """Whether a value is computed from literals alone, so DataFusion computes it before it runs the query."""
    if isinstance(node, exp.Literal | exp.Boolean | exp.Null | exp.Interval):
        return False  # known without computing
    inner = (exp.Column, exp.Query, exp.AggFunc, exp.Window, exp.Star, exp.Explode, exp.Unnest, *_VOLATILE)
    return node.find(*inner) is None and not any(one.name.upper() == "UNNEST" for one in node.find_all(exp.Anonymous))


def is_widened(parts: Sequence[Node], kind_of: KindOf) -> bool:
    """Whether a column of a small whole number meets a literal, to whose type it is cast."""
    has_number = any(_is_whole(one.this if isinstance(one, exp.Neg) else one) for one in parts)
    kinds = [kind_of(one) for one in parts if isinstance(one, exp.Column)]
    return has_number and any(kind is not None and pa.types.is_integer(kind) and kind != pa.int64() for kind in kinds)


def _is_whole(node: Node) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string and node.this.isdigit()


def result_kind(node: Node, kind_of: KindOf) -> pa.DataType | None:
    """The type of a result where DuckDB's is another one: moments that a query makes have nanoseconds."""
    if isinstance(node, exp.Null):
        return pa.null()
    if isinstance(node, exp.Cast) and node.to.this in _TIMESTAMPS:
        return pa.timestamp("ns")
    if isinstance(node, exp.Cast) and node.to.this == exp.DataType.Type.TIME:
        return pa.time64("ns")
    if isinstance(node, exp.UnixToTime):
        return pa.timestamp("ns")
    if isinstance(node, exp.Anonymous) and node.name.lower() == "to_time":
        return pa.time64("ns")
    if isinstance(node, exp.Anonymous) and node.name.lower() in _UNITS:
        return pa.timestamp(_UNITS[node.name.lower()])
    if is_duration(node, kind_of):
        return pa.duration("us")
    if isinstance(node, exp.AtTimeZone) and isinstance(node.args["zone"], exp.Literal):
        return pa.timestamp("ns", node.args["zone"].name)
    if isinstance(node, exp.DateBin):
        kind = kind_of_value(node.expression, kind_of)
        if isinstance(node.expression, exp.Column) and kind == pa.timestamp("us"):
            return kind
        return pa.timestamp("ns", kind.tz if kind is not None and pa.types.is_timestamp(kind) else None)
    if isinstance(node, exp.TimeFromParts):
        return pa.time32("s")
    if isinstance(node, exp.Bracket) and isinstance(node.expressions[0], exp.Slice):
        kind = kind_of(node.this) if isinstance(node.this, exp.Column) else None
        return kind if kind is not None and pa.types.is_list(kind) else None
    if _keeps_list(node):
        return _kind_of_list(node, kind_of)
    if isinstance(node, exp.DateTrunc | exp.TimestampTrunc) and (
        isinstance(node.this, exp.Cast) or kind_of_value(node.this, kind_of) == pa.date32()
    ):
        return pa.timestamp("ns")
    return None


def _keeps_list(node: Node) -> bool:
    """Whether it is a list made of another one, whose elements are called as there."""
    name = node.name.lower() if isinstance(node, exp.Anonymous) else str(node.sql_name()).lower() if isinstance(
        node, exp.Func) else ""  # fmt: skip
    return _array_name(name) in _LISTS


def _array_name(name: str) -> str:
    """The name of a function of lists that begins with `array_`, of which another begins with `list_`."""
    return f"array_{name.removeprefix('list_')}" if name.startswith("list_") else name


def _kind_of_list(node: Node, kind_of: KindOf) -> pa.DataType | None:
    parts = list(node.iter_expressions())
    kind = next((kind_of(one) for one in parts if isinstance(one, exp.Column)), None)
    if kind is None or not pa.types.is_list(kind):
        return None
    if isinstance(node, _TAKE_VALUES) and any(map(_is_whole, parts)) and pa.types.is_integer(kind.value_type):
        return pa.list_(kind.value_field.with_type(pa.int64()))
    return kind


def is_duration(node: Node, kind_of: KindOf) -> bool:
    """Whether it is the time between two moments."""
    kinds = [kind_of_value(one, kind_of) for one in (node.this, node.expression)] if isinstance(node, exp.Sub) else []
    return bool(kinds) and all(kind is not None and pa.types.is_timestamp(kind) for kind in kinds)


def kind_of_value(node: Node, kind_of: KindOf) -> pa.DataType | None:
    """The type of a column, or of a cast to a date or a moment."""
    if isinstance(node, exp.Cast) and node.to.this == exp.DataType.Type.DATE:
        return pa.date32()
    if isinstance(node, exp.Cast) and node.to.this in _TIMESTAMPS:
        return pa.timestamp("us")
    return kind_of(node) if isinstance(node, exp.Column) else None


def compare_alike(node: Node, kind_of: KindOf) -> bool:
    """Give the two sides of comparisons the types they have in DataFusion; whether texts are cast to numbers.

    A float meets a number with a point as a double (no float is 0.1), a text meets a number as a number, and what is
    true or false can be compared with neither.
    """
    casts = False
    for one in [part for part in own_parts(node) if isinstance(part, _COMPARISONS)]:
        parts = list(one.iter_expressions())
        numbers = [part for part in parts if isinstance(part, exp.Literal) and not part.is_string]
        for column in [part for part in parts if isinstance(part, exp.Column)]:
            kind = kind_of(column)
            if kind == pa.float32():
                for number in numbers:
                    if not number.is_int:
                        number.replace(exp.cast(number.copy(), "double"))
            elif delta_name(kind) == "string" and numbers:
                whole = all(number.is_int for number in numbers)
                column.replace(exp.cast(column.copy(), "bigint" if whole else "double"))
                casts = True
            elif kind == pa.bool_() and isinstance(one, exp.Binary) and any(isinstance(p, exp.Literal) for p in parts):
                names = " and ".join("Boolean" if p is column else "Int64" if numbers else "Utf8" for p in parts)
                raise DeltaError(
                    f"Error during planning: Cannot infer common argument type for comparison of {names}: "
                    f"{one.sql(dialect=DuckDB)}"
                )
    return casts


class TypeChanges:
    """Changes parts of one query's text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def change(self, node: Node, kind_of: KindOf) -> None:
        """Give literals, casts and functions the types they have in DataFusion."""
        if node is None:
            return
        for one in list(own_parts(node)):
            if isinstance(one, exp.Literal) and not one.is_string:
                if not _is_moved_date(one.parent, kind_of):
                    self._widen(one)
            elif isinstance(one, exp.Window):
                digits = _digits_of_total(one.this, kind_of)
                if function_name(one.this, self._text) in _UINT64:
                    _cast(one, "ubigint")
                elif digits is not None:
                    _cast(one, digits)
            elif isinstance(one, exp.Extract):
                self._change_part(one, one.name)
            elif isinstance(one, exp.Ceil | exp.Floor) and isinstance(one.this, exp.Column):
                kind = kind_of(one.this)
                if kind is not None and not pa.types.is_floating(kind):
                    _cast(one, delta_name(kind) or "double" if pa.types.is_decimal(kind) else "double")
            elif isinstance(one, exp.Add | exp.Sub):
                _keep_date(one, kind_of)
                if isinstance(one.parent, exp.Alias) and is_duration(one, kind_of):
                    one.set("this", exp.Anonymous(this="EPOCH_US", expressions=[one.this]))
                    one.set("expression", exp.Anonymous(this="EPOCH_US", expressions=[one.expression]))
            elif isinstance(one, exp.Mod) and (digits := _digits_of_rest(one, kind_of)) is not None:
                _cast(one, digits)
            elif isinstance(one, exp.FirstValue | exp.LastValue) and not isinstance(one.parent, exp.Window):
                name = "FIRST" if isinstance(one, exp.FirstValue) else "LAST"
                one.replace(exp.Anonymous(this=name, expressions=[one.this]))
            elif isinstance(one, exp.Nullif) and is_widened((one.this, one.expression), kind_of):
                one.set("this", exp.cast(one.this, "bigint"))
            elif isinstance(one, exp.Func) and not isinstance(one.parent, exp.Window):
                self._change_function(one, kind_of)
        translate_values(node, lambda column: delta_name(kind_of(column)))

    def _change_function(self, node: Node, kind_of: KindOf) -> None:
        name = _array_name(function_name(node, self._text))
        if isinstance(node, exp.Anonymous) and name in _RENAMED:
            node.set("this", _RENAMED[name])
        if name == "signum":
            _cast(node, "double")
        elif name in ("date_part", "datepart"):
            self._change_part(node, node.expressions[0].name)
        elif name == "arrow_typeof" and len(node.expressions) == 1:
            _name_type(node, node.expressions[0], kind_of)
        elif name in ("length", "char_length", "character_length") and isinstance(node.this, exp.Column):
            kind = kind_of(node.this)
            if kind is not None and delta_name(kind) not in ("string", "binary", None):
                node.set("this", exp.Anonymous(this="DL_TEXT", expressions=[node.this]))
            _cast(node, "int")
        elif name in _INT32 or name in _UINT64:
            _cast(node, "int" if name in _INT32 else "ubigint")
        elif name == "cardinality" and isinstance(node.expressions[0], exp.Column):
            kind = kind_of(node.expressions[0])
            if kind is not None and pa.types.is_map(kind):
                node.set("expressions", [exp.Anonymous(this="MAP_KEYS", expressions=node.expressions)])
            _cast(node, "ubigint")
        elif (digits := _digits_of_total(node, kind_of)) is not None:
            _cast(node, digits)

    def _change_part(self, node: Node, part: str) -> None:
        """A part of a moment is a whole number of 32 bits."""
        if part.lower() not in _WIDE_PARTS:
            _cast(node, "int")

    def _widen(self, literal: Node) -> None:
        """Whole numbers are of 64 bits."""
        whole, parent = literal.this.isdigit(), literal.parent
        if whole and int(literal.this) >= 2**63:
            literal.replace(
                exp.cast(literal.copy(), "ubigint" if int(literal.this) < 2**64 else "double", dialect=DuckDB)
            )
            return
        rounded = isinstance(parent, exp.Round) and literal.arg_key == "this"
        if whole and (rounded or (self._decides_type(parent) and literal.arg_key not in ("group", "order"))):
            literal.replace(exp.cast(literal.copy(), "bigint"))

    def _decides_type(self, parent: Node) -> bool:
        if isinstance(parent, exp.Anonymous):
            return _array_name(function_name(parent, self._text)) in _NUMBERS_IN_FUNCTIONS
        digits = isinstance(parent, exp.Neg) and isinstance(parent.parent, exp.Round)
        return isinstance(parent, _NUMBERS_IN) and not digits


def _is_moved_date(node: Node, kind_of: KindOf) -> bool:
    """Whether it is a date and a number of days."""
    sides = (node.this, node.expression) if isinstance(node, exp.Add | exp.Sub) else ()
    return any(kind_of_value(one, kind_of) == pa.date32() for one in sides)


def _name_type(node: Node, value: Node, kind_of: KindOf) -> None:
    """What `arrow_typeof` says of a value."""
    kind = kind_of(value) if isinstance(value, exp.Column) else None
    if kind is not None:
        node.replace(exp.Literal.string(rust_name(kind)))
    elif isinstance(value, exp.TimestampTrunc | exp.DateTrunc) and _is_moment(value.this, kind_of):
        node.replace(exp.Literal.string(rust_name(kind_of(value.this))))
    elif isinstance(value, exp.CurrentTimestamp) or (isinstance(value, exp.Anonymous) and value.name.upper() == "NOW"):
        node.replace(exp.Literal.string("Timestamp(ns)"))
    elif isinstance(value, exp.Literal) and value.is_string:
        node.replace(exp.Literal.string("Utf8"))
    else:
        node.set("this", "DL_ARROW_TYPEOF")


def _is_moment(node: Node, kind_of: KindOf) -> bool:
    kind = kind_of(node) if isinstance(node, exp.Column) else None
    return kind is not None and bool(pa.types.is_timestamp(kind))


def _keep_date(node: Node, kind_of: KindOf) -> None:
    """A date and an interval make a date; DuckDB makes a moment of them."""
    sides = (node.this, node.expression)
    if any(isinstance(one, exp.Interval) for one in sides) and any(
        kind_of_value(one, kind_of) == pa.date32() for one in sides
    ):
        _cast(node, "date")


def _cast(node: Node, kind: str) -> None:
    node.replace(exp.cast(node.copy(), kind, dialect=DuckDB))


def _digits_of_total(node: Node, kind_of: KindOf) -> str | None:
    """The type of a sum or an average of a decimal column; None for anything else."""
    kind = kind_of(node.this) if isinstance(node, exp.Sum | exp.Avg) and isinstance(node.this, exp.Column) else None
    if kind is None or not pa.types.is_decimal(kind):
        return None
    more, scale = (10, 0) if isinstance(node, exp.Sum) else (4, 4)
    return f"decimal({min(kind.precision + more, 38)}, {kind.scale + scale})"


def _digits_of_rest(node: Node, kind_of: KindOf) -> str | None:
    """The type of what is left of a division of a decimal column and a whole number; None for anything else."""
    kinds = [kind_of(one) if isinstance(one, exp.Column) else None for one in (node.this, node.expression)]
    decimal = next((kind for kind in kinds if kind is not None and pa.types.is_decimal(kind)), None)
    other = any(kind is not None and pa.types.is_integer(kind) for kind in kinds) or _is_whole(node.expression)
    if decimal is None or not other:
        return None
    return f"decimal({min(decimal.precision - decimal.scale, 20) + decimal.scale}, {decimal.scale})"


def own_parts(node: Node) -> list[Node]:
    """The parts of an expression, without queries in it and the bounds of windows."""
    apart = (exp.Query, exp.WindowSpec, exp.DataType)
    return [one for one in node.walk(prune=lambda one: isinstance(one, apart)) if not isinstance(one, apart)]
