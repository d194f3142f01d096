"""Owns what DataFusion means by casts, operators and functions, said in DuckDB's SQL.

The expressions of statements, the predicates of reads and the queries of `QueryBuilder` are changed by it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB

from deltalakedb.data.decimal_types import digits_of, keep_digits
from deltalakedb.data.lists import compare_with_list, series_of, sort_list
from deltalakedb.data.literal_types import type_literals
from deltalakedb.data.moments import (
    bin_moment,
    keep_dates,
    parse_moment,
    part_of,
    place_in_zones,
    show_moment,
)
from deltalakedb.data.regular_expressions import translate_regexp, translate_regexp_match
from deltalakedb.data.value_kinds import (
    TEXT_TYPES,
    KindOf,
    Node,
    column_kind,
    is_fractional,
    is_nonzero,
    is_numeric,
    is_text,
    is_whole,
)
from deltalakedb.exceptions import PredicateError

# Functions of DataFusion that DuckDB has under another name.
_RENAMED: Final = {
    "MAKE_ARRAY": "LIST_VALUE",
    "BTRIM": "TRIM",
    "OCTET_LENGTH": "STRLEN",
    "TO_UNIXTIME": "DL_UNIXTIME",
    "APPROX_MEDIAN": "MEDIAN",
    "CARDINALITY": "LEN",
    "ARRAY_ELEMENT": "LIST_EXTRACT",
    "ARRAY_DISTANCE": "DL_ARRAY_DISTANCE",
    "ARRAY_EMPTY": "EMPTY",
    "ARRAY_PUSH_FRONT": "LIST_PREPEND",
    "ARRAYS_OVERLAP": "LIST_HAS_ANY",
    "ELEMENT_AT": "DL_MAP_EXTRACT",
    "LIST_ZIP": "DL_ARRAYS_ZIP",
    "MAP_EXTRACT": "DL_MAP_EXTRACT",
    "MAKE_LIST": "LIST_VALUE",
    "STRING_TO_LIST": "DL_STRING_TO_ARRAY",
    "SUBSTR_INDEX": "DL_SUBSTRING_INDEX",
    "SUBSTRING_INDEX": "DL_SUBSTRING_INDEX",
    "VAR_SAMPLE": "VAR_SAMP",
    "COVAR": "COVAR_SAMP",
    "DATE_BIN": "TIME_BUCKET",
    "SIGNUM": "SIGN",
    "LOG2": "DL_LOG2",
    "LOG10": "DL_LOG10",
    "ARRAY_CONCAT": "DL_ARRAY_CONCAT",
    "NOW": "NOW",
    "ENCODE": "DL_ENCODE",
    "DECODE": "DL_DECODE",
    "DIGEST": "DL_DIGEST",
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
_MOMENT: Final = re.compile(r"""Timestamp\((Second|Millisecond|Microsecond|Nanosecond), (None|Some\("UTC"\))\)""")
_UNITS: Final = {"Second": "_s", "Millisecond": "_ms", "Microsecond": "", "Nanosecond": "_ns"}
_MICROSECONDS_IN: Final = {"_s": 1_000_000, "_ms": 1000}
_DIGITS: Final = re.compile(r"Decimal128\((\d+), (\d+)\)")
_MOMENTS: Final = (exp.DataType.Type.TIMESTAMP, exp.DataType.Type.TIMESTAMPNTZ)


def translate_values(root: Node, kind_of: KindOf, *, is_rule: bool = False) -> None:
    """Change what DuckDB spells or means otherwise, below `root`; inner nodes first, as outer ones may be replaced.

    In a table's rules literals with a point are decimals, as in Spark.
    """
    type_literals(root, kind_of, has_decimals=is_rule)
    if not is_rule:
        place_in_zones(root, kind_of)
    for node in reversed(list(root.walk())):
        if node is root:
            continue
        if isinstance(node, exp.Cast):
            _cast(node, kind_of)
        elif isinstance(node, _COMPARED) and not is_rule:
            _put(node, compare_with_list(node))
        elif isinstance(node, exp.Like | exp.ILike):
            _escape_pattern(node)
        elif isinstance(node, _WITH_PATTERNS):
            _put(node, translate_regexp(node, is_rule=is_rule))
        elif isinstance(node, exp.Concat | exp.ConcatWs):
            node.set("expressions", [_as_text(one, kind_of) for one in node.expressions])
        elif isinstance(node, exp.DPipe) and (is_text(node.this, kind_of) or is_text(node.expression, kind_of)):
            sides = (node.this, node.expression)
            made = exp.DPipe(this=_as_text(sides[0], kind_of), expression=_as_text(sides[1], kind_of))
            node.replace(exp.cast(exp.Null(), "text") if any(isinstance(one, exp.Null) for one in sides) else made)
        elif isinstance(node, exp.Div) and not is_nonzero(node.expression) and _is_float_division(node, kind_of):
            node.replace(_call("DL_DIVIDE", node.this, node.expression))
        elif isinstance(node, exp.Add | exp.Sub | exp.Mul | exp.Div | exp.Mod):
            _refuse_text(node, kind_of)
            if isinstance(node, exp.Div | exp.Mod):
                _refuse_zero(node, kind_of)
            if isinstance(node, exp.Add | exp.Sub):
                _put(node, keep_dates(node, kind_of))
            if not isinstance(node, exp.Mod):
                keep_digits(node, kind_of)
        elif isinstance(node, exp.Ceil | exp.Floor | exp.Trunc):
            _keep_type(node, kind_of)
        elif isinstance(node, exp.Nullif) and not is_rule:
            if is_whole(node.this, kind_of) and _is_double(node.expression, kind_of):
                node.set("this", exp.cast(node.this, "double"))
        elif isinstance(node, exp.BitwiseLeftShift):
            node.replace(_call("DL_SHIFT_LEFT", node.this, node.expression))
        elif type(node) in _OF_TEXTS:
            _refuse_other_types(node, kind_of)
            node.replace(_call(_OF_TEXTS[type(node)], node.this))
        elif type(node) in _CLASSES and not (is_rule and isinstance(node, exp.Split)):
            _put(node, _CLASSES[type(node)](node))
        elif isinstance(node, exp.Struct) and not any(isinstance(one, _NAMED) for one in node.expressions):
            node.set("expressions", [_name_value(f"c{place}", one) for place, one in enumerate(node.expressions)])
        elif isinstance(node, exp.HexString):
            node.replace(_call("FROM_HEX", exp.Literal.string(node.name)))
        elif isinstance(node, exp.ToChar) and node.args.get("format") is not None and not is_rule:
            node.replace(show_moment(node.this, node.args["format"]))
        elif isinstance(node, exp.ToChar):
            node.replace(_call("STRFTIME", node.this, *([node.args["format"]] if node.args.get("format") else [])))
        elif isinstance(node, exp.Extract):
            _put(node, part_of(node))
        elif isinstance(node, exp.Anonymous):
            _put(node, translate_function(node))


def _put(node: Node, made: Node) -> None:
    if made is not node:
        node.replace(made)


def _refuse_text(node: Node, kind_of: KindOf) -> None:
    """A text is no number; DuckDB makes one of it, and rounds it."""
    for one, other in ((node.this, node.expression), (node.expression, node.this)):
        if is_text(one, kind_of) and is_numeric(other, kind_of):
            raise PredicateError(
                f"Error during planning: Cannot coerce arithmetic expression {node.sql(dialect=DuckDB)} to valid "
                f"types: {one.sql(dialect=DuckDB)} is a text; cast it to a number"
            )


def _refuse_other_types(node: Node, kind_of: KindOf) -> None:
    """`upper(5)` is an error, in DataFusion and in DuckDB's own function."""
    if is_numeric(node.this, kind_of) or column_kind(node.this, kind_of) not in ("string", None):
        name = type(node).__name__.lower()
        value = node.this.sql(dialect=DuckDB)
        raise PredicateError(f"Error during planning: Function '{name}' requires a text, and {value} is none")


def _keep_type(node: Node, kind_of: KindOf) -> None:
    """Decimals stay decimals, whole numbers become doubles."""
    kind = kind_of(node.this) or "" if isinstance(node.this, exp.Column) else ""
    if kind.startswith("decimal"):
        node.replace(exp.cast(node.copy(), kind, dialect=DuckDB))
    elif is_whole(node.this, kind_of):
        node.replace(exp.cast(node.copy(), "double"))


def _escape_pattern(node: Node) -> None:
    """A backslash escapes the next character of a pattern; one at the end stands for itself."""
    pattern = node.expression
    if isinstance(node.parent, exp.Escape) or isinstance(pattern, exp.Any | exp.All):
        return
    if isinstance(pattern, exp.Literal) and pattern.is_string:
        if "\\" not in pattern.name:
            return
        text = pattern.name
        if (len(text) - len(text.rstrip("\\"))) % 2:
            node.set("expression", exp.Literal.string(text + "\\"))
    node.replace(exp.Escape(this=node.copy(), expression=exp.Literal.string("\\")))


def _refuse_zero(node: Node, kind_of: KindOf) -> None:
    """Let a division of whole numbers or decimals by zero fail, unless null is divided; DuckDB makes null of both."""
    if not is_nonzero(node.expression) and not _is_double(node, kind_of):
        node.set("expression", _call("DL_NONZERO", node.expression.copy(), node.this.copy()))


def _unless_decimal(kind_of: KindOf) -> KindOf:
    def kind_unless_decimal(column: Node) -> str | None:
        kind = kind_of(column)
        return None if (kind or "").startswith("decimal") else kind

    return kind_unless_decimal


def _overlay(node: Node) -> Node:
    """`overlay(text placing new from 2 for 4)`: the text with a part of it replaced."""
    start, length = node.args["from_"], node.args.get("for_") or exp.Length(this=node.expression.copy())
    before = exp.Sub(this=start.copy(), expression=exp.Literal.number(1))
    after = exp.Add(this=start.copy(), expression=length.copy())
    head = _call("SUBSTR", node.this.copy(), exp.Literal.number(1), before)
    tail = _call("SUBSTR", node.this.copy(), after)
    return exp.DPipe(this=exp.DPipe(this=head, expression=node.expression.copy()), expression=tail)


_CLASSES: Final[dict[type, Callable[[Node], Node]]] = {
    exp.Overlay: _overlay,
    exp.SubstringIndex: lambda node: _call("DL_SUBSTRING_INDEX", *node.iter_expressions()),
    exp.Uuid: lambda node: exp.cast(node.copy(), "text"),
    exp.Substring: lambda node: _substring(node),
    exp.Cbrt: lambda node: _call("DL_CBRT", exp.cast(node.this, "double")),
    exp.ArrayToString: lambda node: _call("DL_ARRAY_TO_STRING", *node.iter_expressions()),
    exp.ArraysZip: lambda node: _call("DL_ARRAYS_ZIP", *node.expressions),
    exp.DotProduct: lambda node: _call("INNER_PRODUCT", *node.iter_expressions()),
    exp.GenerateSeries: lambda node: series_of(node),
    exp.ArraySum: lambda node: _call("DL_ARRAY_SUM", node.this),
    exp.Split: lambda node: _call("DL_STRING_TO_ARRAY", *node.iter_expressions()),
    exp.ArrayRemove: lambda node: _call("DL_ARRAY_REMOVE", node.this, node.expression),
    exp.ArrayDistinct: lambda node: _call("DL_ARRAY_DISTINCT", node.this),
    exp.ArrayIntersect: lambda node: _call("DL_ARRAY_INTERSECT", *node.expressions),
    exp.ArrayExcept: lambda node: _call("DL_ARRAY_EXCEPT", node.this, node.expression),
    exp.WithinGroup: lambda node: _within_group(node),
    exp.UnixToTime: lambda node: _to_timestamp(node),
    exp.Ln: lambda node: _call("DL_LN", node.this),
    exp.Factorial: lambda node: _call("DL_FACTORIAL", node.this),
    exp.Log: lambda node: _log(node),
    exp.Asin: lambda node: _call("DL_ASIN", node.this),
    exp.Acos: lambda node: _call("DL_ACOS", node.this),
    exp.Atanh: lambda node: _call("DL_ATANH", node.this),
    exp.Sign: lambda node: exp.cast(node.copy(), "double"),
    exp.SplitPart: lambda node: _split_part(node),
    exp.Pad: lambda node: _pad(node),
    exp.DateBin: lambda node: bin_moment(node),
    exp.ArrayConcat: lambda node: _call("DL_ARRAY_CONCAT", node.this, *node.expressions),
}
"""Functions that sqlglot knows, and what DuckDB calls them."""
_OF_TEXTS: Final = {exp.Upper: "DL_UPPER", exp.Lower: "DL_LOWER", exp.Initcap: "DL_INITCAP"}
_COMPARED: Final = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
_NAMED: Final = (exp.PropertyEQ, exp.Alias)
_WITH_PATTERNS: Final = (exp.RegexpReplace, exp.RegexpLike, exp.RegexpILike, exp.RegexpCount, exp.RegexpInstr)


def _to_timestamp(node: Node) -> Node:
    """`to_timestamp` reads a text, and takes a number for seconds."""
    form = node.args.get("scale")
    return _call("DL_MOMENT", node.this) if form is None else parse_moment("to_timestamp", node.this, [form])


def _log(node: Node) -> Node:
    """`log(8)` and `log(2, 8)`."""
    if node.expression is None:
        return _call("DL_LOG", exp.Literal.number(10), node.this)
    return _call("DL_LOG", node.this, node.expression)


def _split_part(node: Node) -> Node:
    return _call("DL_SPLIT_PART", node.this, node.args["delimiter"], node.args["part_index"])


def _pad(node: Node) -> Node:
    fill = node.args.get("fill_pattern") or exp.Literal.string(" ")
    return _call("DL_LPAD" if node.args.get("is_left") else "DL_RPAD", node.this, node.expression, fill)


def _substring(node: Node) -> Node:
    """`substr('abc', -1, 3)`: places before the text count, and have no characters; DuckDB counts from the end."""
    start, length = node.args.get("start"), node.args.get("length")
    value = start.this if isinstance(start, exp.Neg) else None
    value = value.this if isinstance(value, exp.Cast) else value
    negative = length.this if isinstance(length, exp.Neg) else None
    negative = negative.this if isinstance(negative, exp.Cast) else negative
    if isinstance(negative, exp.Literal) and negative.this != "0":
        raise PredicateError(f"Execution error: negative count not allowed: substr(..., -{negative.this})")
    if isinstance(start, exp.Literal) and start.is_int and int(start.this) > 0:
        return node
    if not isinstance(value, exp.Literal) or not value.is_int:
        return _call("DL_SUBSTR", node.this, start, *([] if length is None else [length]))
    if length is None:
        return node.this
    left = exp.Sub(this=exp.Paren(this=length.copy()), expression=exp.Literal.number(int(value.this) + 1))
    return exp.Left(this=node.this, expression=exp.Greatest(this=left, expressions=[exp.Literal.number(0)]))


def _within_group(node: Node) -> Node:
    """`approx_percentile_cont(0.5) within group (order by x)` as the function of a value and a share."""
    if isinstance(node.this, exp.Anonymous) and node.this.name.upper() == "APPROX_PERCENTILE_CONT":
        first = node.expression.expressions[0]
        share = node.this.expressions[0]
        if first.args.get("desc"):
            share = exp.Sub(this=exp.Literal.number(1), expression=share)
        return _call("QUANTILE_CONT", exp.cast(first.this, "double"), share)
    return node


def _name_value(name: str, value: Node) -> Node:
    return exp.PropertyEQ(this=exp.to_identifier(name, quoted=True), expression=value.copy())


def _call(name: str, *arguments: Node) -> Node:
    return exp.Anonymous(this=name, expressions=list(arguments))


def _cast(node: Node, kind_of: KindOf) -> None:
    if node.to.this in TEXT_TYPES:
        if not is_text(node.this, kind_of):
            node.replace(_call("DL_TEXT", node.this))
    elif node.to.this == exp.DataType.Type.DATE and is_whole(node.this, kind_of):
        node.replace(_call("TO_DATE", node.this))
    elif node.to.this == exp.DataType.Type.TIME:
        node.set(
            "this", exp.cast(node.this, "timestamp") if column_kind(node.this, kind_of) == "timestamp" else node.this
        )
    elif node.to.this in _MOMENTS and is_whole(node.this, kind_of):
        seconds = exp.Mul(this=exp.cast(node.this.copy(), "bigint"), expression=exp.Literal.number(1000000))
        nanoseconds = _call("MAKE_TIMESTAMP_NS", exp.cast(node.this.copy(), "bigint"))
        if not isinstance(node.this, exp.Column) or kind_of(node.this) == "long":
            node.replace(_call("MAKE_TIMESTAMP", seconds))
        else:
            node.replace(nanoseconds)
    elif node.to.this in _MOMENTS:
        # a text with an offset is the moment in UTC; the engine would drop the offset
        zoned = exp.TryCast if isinstance(node, exp.TryCast) else exp.Cast
        node.set("this", zoned(this=node.this.copy(), to=exp.DataType.build("timestamptz", dialect=DuckDB)))
    elif node.to.this in exp.DataType.INTEGER_TYPES and is_fractional(node.this, kind_of):
        node.set("this", _call("TRUNC", node.this))  # the engine would round
    elif node.to.this in exp.DataType.INTEGER_TYPES and is_text(node.this, kind_of):
        name = "DL_TRY_WHOLE" if isinstance(node, exp.TryCast) else "DL_WHOLE"
        node.set("this", _call(name, node.this))  # the engine would round `7.6`
    elif node.to.this in exp.DataType.INTEGER_TYPES and isinstance(node.this, exp.Column):
        kind = kind_of(node.this)
        if kind in ("timestamp", "timestamp_ntz"):
            node.set("this", _call("EPOCH_US", node.this))
        elif kind == "date":
            node.set("this", exp.Sub(this=node.this, expression=exp.cast(exp.Literal.string("1970-01-01"), "date")))


def _as_text(node: Node, kind_of: KindOf) -> Node:
    return node if is_text(node, kind_of) or isinstance(node, exp.Null) else _call("DL_TEXT", node)


def _is_double(node: Node, kind_of: KindOf) -> bool:
    return is_fractional(node, _unless_decimal(kind_of))


def _is_float_division(node: Node, kind_of: KindOf) -> bool:
    """Whether it is not a division of whole numbers or decimals."""
    return _is_double(node, kind_of) and digits_of(node, kind_of) is None


def translate_function(node: Node) -> Node:
    """A function that sqlglot does not know, as DuckDB has it."""
    name, arguments = node.name.upper(), node.expressions
    if name in _RENAMED:
        return _call(_RENAMED[name], *arguments)
    if name == "NAMED_STRUCT":
        if len(arguments) % 2 or not all(isinstance(one, exp.Literal) for one in arguments[::2]):
            raise PredicateError("named_struct takes names, as texts, and values in turn")
        pairs = zip(arguments[::2], arguments[1::2], strict=True)
        made = [exp.PropertyEQ(this=exp.to_identifier(key.name, quoted=True), expression=value) for key, value in pairs]
        return exp.Struct(expressions=made)
    if name == "ROW":
        return exp.Struct(expressions=[_name_value(f"c{place}", one) for place, one in enumerate(arguments)])
    if name == "REGEXP_MATCH":
        return translate_regexp_match(arguments)
    if name in ("DATE_PART", "DATEPART"):
        return part_of(node)
    if name == "DATE_FORMAT":
        return show_moment(*arguments) if len(arguments) == 2 else node
    if name == "TO_DATE" and len(arguments) > 1:
        return exp.cast(parse_moment("to_date", arguments[0], arguments[1:]), "date")
    if name == "TO_TIMESTAMP":
        return parse_moment("to_timestamp", arguments[0], arguments[1:])
    if name == "APPROX_PERCENTILE_CONT" and len(arguments) > 1:
        return _call("QUANTILE_CONT", exp.cast(arguments[0], "double"), arguments[1])
    if name == "ARRAY_SORT" and arguments:
        return sort_list(arguments)
    if name == "TO_HEX":
        return exp.Lower(this=_call("HEX", *arguments))
    if name == "SHA256":
        return _call("DL_DIGEST", *arguments, exp.Literal.string("sha256"))
    if name in ("ARROW_CAST", "ARROW_TRY_CAST"):
        return _arrow_cast(name, arguments)
    return node


def _arrow_cast(name: str, arguments: list[Node]) -> Node:
    wanted = arguments[1].name if len(arguments) == 2 else ""
    moment, digits = _MOMENT.fullmatch(wanted), _DIGITS.fullmatch(wanted)
    if moment is not None and name == "ARROW_CAST":
        zoned = exp.cast(arguments[0], "timestamptz", dialect=DuckDB)
        if moment[2] != "None":
            return zoned
        unit = _UNITS[moment[1]]
        if unit in _MICROSECONDS_IN:  # the engine would round
            size = exp.Literal.number(_MICROSECONDS_IN[unit])
            whole = exp.Mul(this=exp.IntDiv(this=_call("EPOCH_US", zoned), expression=size), expression=size.copy())
            zoned = _call("MAKE_TIMESTAMP", whole)
        return exp.cast(zoned, f"timestamp{unit}", dialect=DuckDB)
    if digits is not None and name == "ARROW_CAST":
        return exp.cast(arguments[0], f"decimal({digits[1]}, {digits[2]})", dialect=DuckDB)
    if wanted not in _ARROW_NAMES:
        raise PredicateError(f"arrow_cast to {wanted!r} is not known here; use cast(... as ...)")
    kind = _ARROW_NAMES[wanted]
    if kind == "VARCHAR":
        return _call("DL_TEXT", arguments[0])
    if name == "ARROW_CAST":
        return exp.cast(arguments[0], kind, dialect=DuckDB)
    return exp.TryCast(this=arguments[0], to=exp.DataType.build(kind, dialect=DuckDB))
