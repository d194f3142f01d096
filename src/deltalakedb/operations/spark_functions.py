"""Owns Spark's functions in the rules of tables, such as `trunc(day, 'YEAR')`: spelled for the engine, or refused.

A rule is read as `deltalake` reads it. What only Spark has means what it means there: Delta's generated columns and
constraints are Spark's SQL. A function whose meaning is not known here is refused, since its values would be wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import sqlglot
from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.tokenizer_core import TokenType

from deltalakedb.exceptions import PredicateError

Node = Any
"""A node of sqlglot's tree."""

_TEMPLATES: Final[Mapping[str, Mapping[int, str]]] = {
    # dates and moments
    "ADD_MONTHS": {2: "cast(cast(:a as date) + to_months(cast(:b as integer)) as date)"},
    "DATE_ADD": {2: "cast(:a as date) + cast(:b as integer)"},
    "DATE_SUB": {2: "cast(:a as date) - cast(:b as integer)"},
    "DATEDIFF": {2: "date_diff('day', cast(:b as date), cast(:a as date))"},
    "DAYOFMONTH": {1: "day(cast(:a as date))"},
    "DAYOFWEEK": {1: "dayofweek(cast(:a as date)) + 1"},
    "DAYOFYEAR": {1: "dayofyear(cast(:a as date))"},
    "FROM_UNIXTIME": {1: "strftime(to_timestamp(:a), '%Y-%m-%d %H:%M:%S')"},
    "LAST_DAY": {1: "last_day(cast(:a as date))"},
    "TIMESTAMP_SECONDS": {1: "to_timestamp(:a)"},
    "TO_UNIX_TIMESTAMP": {1: "cast(trunc(epoch(cast(:a as timestamptz))) as bigint)"},
    "UNIX_TIMESTAMP": {1: "cast(trunc(epoch(cast(:a as timestamptz))) as bigint)"},
    "WEEKDAY": {1: "isodow(cast(:a as date)) - 1"},
    "WEEKOFYEAR": {1: "weekofyear(cast(:a as date))"},
    # numbers
    "BROUND": {1: "round_even(:a, 0)", 2: "round_even(:a, :b)"},
    "E": {0: "exp(1)"},
    "EXPM1": {1: "exp(:a) - 1"},
    "HYPOT": {2: "sqrt((:a) * (:a) + (:b) * (:b))"},
    "LOG1P": {1: "ln(1 + :a)"},
    "NANVL": {2: "case when isnan(:a) then :b else :a end"},
    "NEGATIVE": {1: "-(:a)"},
    "PMOD": {2: "case when (:a) % (:b) < 0 then ((:a) % (:b) + (:b)) % (:b) else (:a) % (:b) end"},
    "POSITIVE": {1: ":a"},
    "RINT": {1: "round_even(:a, 0)"},
    "SHIFTLEFT": {2: "(:a) * cast(pow(2, :b) as bigint)"},
    "SHIFTRIGHT": {2: "(:a) >> (:b)"},
    # texts
    "ENDSWITH": {2: "ends_with(:a, :b)"},
    "FIND_IN_SET": {2: "case when contains(:a, ',') then 0 else coalesce(list_position(string_split(:b, ','), :a), 0) "
                       "+ cast(case when (:a) is null or (:b) is null then null else 0 end as integer) end"},
    "REGEXP_EXTRACT": {2: "regexp_extract(:a, :b, 1)", 3: "regexp_extract(:a, :b, :c)"},
    "SHA": {1: "sha1(:a)"},
    "SIZE": {1: "len(:a)"},
    "SPACE": {1: "repeat(' ', cast(:a as bigint))"},
    "SPLIT": {2: "string_split_regex(:a, :b)"},
    "SUBSTRING_INDEX": {3: "array_to_string(case when (:c) >= 0 then (string_split(:a, :b))[1:cast(:c as bigint)] "
                           "else (string_split(:a, :b))[cast(:c as bigint):] end, :b)"},
    "UNBASE64": {1: "from_base64(:a)"},
    # conditions
    "ISNOTNULL": {1: "(:a) is not null"},
    "ISNULL": {1: "(:a) is null"},
    "NVL2": {3: "case when (:a) is not null then :b else :c end"},
}  # fmt: skip
"""A function, and by the number of its arguments what it is in the engine's SQL."""

_CASTS: Final = {
    "BIGINT": "bigint",
    "BOOLEAN": "boolean",
    "DATE": "date",
    "DOUBLE": "double",
    "FLOAT": "real",
    "INT": "integer",
    "SMALLINT": "smallint",
    "STRING": "varchar",
    "TIMESTAMP": "timestamptz",
    "TINYINT": "tinyint",
}
"""Names of types that are functions of one argument."""

_UNITS: Final = {"YYYY": "YEAR", "YY": "YEAR", "MM": "MONTH", "MON": "MONTH", "DD": "DAY"}
_DATE_UNITS: Final = ("YEAR", "QUARTER", "MONTH", "WEEK")
_TIME_UNITS: Final = (*_DATE_UNITS, "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND")

_PATTERN: Final = re.compile(r"'(?:[^']|'')*'|([A-Za-z])\1*|[^A-Za-z']")
_LETTERS: Final = {
    "yyyy": "%Y",
    "yy": "%y",
    "MM": "%m",
    "M": "%-m",
    "MMM": "%b",
    "MMMM": "%B",
    "dd": "%d",
    "d": "%-d",
    "DDD": "%j",
    "HH": "%H",
    "H": "%-H",
    "hh": "%I",
    "h": "%-I",
    "mm": "%M",
    "m": "%-M",
    "ss": "%S",
    "s": "%-S",
    "SSS": "%g",
    "SSSSSS": "%f",
    "a": "%p",
    "E": "%a",
    "EEE": "%a",
    "EEEE": "%A",
}
"""Letters of Spark's patterns for dates, and what `strftime` calls them."""

_UNKNOWN: Final = frozenset(
    {
        "ARRAY_SORT", "ASSERT_TRUE", "BASE64", "CONV", "CRC32", "ELT", "FORMAT_NUMBER", "FORMAT_STRING", "FROM_CSV",
        "FROM_JSON", "FROM_UTC_TIMESTAMP", "GET_JSON_OBJECT", "HASH", "JSON_TUPLE", "MAKE_INTERVAL", "MONTHS_BETWEEN",
        "NEXT_DAY", "OVERLAY", "PARSE_URL", "PRINTF", "SCHEMA_OF_CSV", "SCHEMA_OF_JSON", "SENTENCES",
        "SHIFTRIGHTUNSIGNED", "SORT_ARRAY", "SOUNDEX", "STR_TO_MAP", "TIMESTAMPADD", "TIMESTAMPDIFF", "TO_CSV",
        "TO_JSON", "TO_UTC_TIMESTAMP", "TYPEOF", "WINDOW", "XXHASH64",
    }
)  # fmt: skip
"""Functions of Spark that the engine does not have, or has with another meaning under the same name."""


def _cut(name: str, arguments: Sequence[Node]) -> Node:
    """`trunc(day, 'YEAR')` is a date; `trunc(number)` and `trunc(number, digits)` are the engine's own."""
    if len(arguments) != 2 or not _is_text(arguments[1]):
        return exp.Anonymous(this=name, expressions=list(arguments))
    unit = _unit(name, arguments[1], _DATE_UNITS)
    return _fill(f"cast(date_trunc('{unit}', cast(:a as date)) as date)", arguments)


def _date_trunc(name: str, arguments: Sequence[Node]) -> Node:
    if len(arguments) != 2 or not _is_text(arguments[0]):
        raise PredicateError("date_trunc takes the name of a unit, as text, and a moment")
    return _fill(f"date_trunc('{_unit(name, arguments[0], _TIME_UNITS)}', :b)", arguments)


def _unit(name: str, node: Node, known: Sequence[str]) -> str:
    given = str(node.name).upper()
    unit = _UNITS.get(given, given)
    if unit not in known:
        raise PredicateError(f"{name.lower()} to {node.name!r} is not known; the units are {', '.join(known)}")
    return unit


def _date_format(name: str, arguments: Sequence[Node]) -> Node:
    pattern = _pattern(name, arguments)
    return _fill("strftime(cast(:a as timestamp), :b)", [arguments[0], exp.Literal.string(pattern)])


def _to_date(name: str, arguments: Sequence[Node]) -> Node:
    if len(arguments) == 1:
        return _fill("cast(:a as date)", arguments)
    pattern = exp.Literal.string(_pattern(name, arguments))
    return _fill("cast(strptime(:a, :b) as date)", [arguments[0], pattern])


def _to_timestamp(name: str, arguments: Sequence[Node]) -> Node:
    if len(arguments) == 1:
        return exp.UnixToTime(this=arguments[0])  # as `deltalake` has it: see expressions.py
    pattern = exp.Literal.string(_pattern(name, arguments))
    return _fill("cast(strptime(:a, :b) as timestamptz)", [arguments[0], pattern])


def _pattern(name: str, arguments: Sequence[Node]) -> str:
    """A pattern of Spark's as one of `strftime`; one with a percent sign is that already, as in `deltalake`.

    Spark's texts may stand in double quotes, where a pattern with texts in it nearly always does.
    """
    if len(arguments) != 2 or not (_is_text(arguments[1]) or isinstance(arguments[1], exp.Column)):
        raise PredicateError(f"{name.lower()} takes a value and a pattern, as text")
    text = arguments[1].name
    if "%" in text:
        return str(text)
    parts = []
    for match in _PATTERN.finditer(text):
        part = match[0]
        if part.startswith("'"):
            parts.append(part[1:-1].replace("''", "'") or "'")
        elif match[1] is None:
            parts.append(part)
        elif part in _LETTERS:
            parts.append(_LETTERS[part])
        else:
            raise PredicateError(f"{name.lower()}: the pattern {text!r} holds {part!r}, which is not known here")
    return "".join(parts)


def _sha2(_: str, arguments: Sequence[Node]) -> Node:
    if len(arguments) != 2 or arguments[1].name not in ("0", "256"):
        raise PredicateError("sha2 is known here with 256 bits: sha2(value, 256)")
    return _fill("sha256(:a)", arguments)


def _encode(name: str, arguments: Sequence[Node]) -> Node:
    """With a character set it is Spark's, with base64 or hex that of `deltalake`."""
    if len(arguments) == 2 and arguments[1].name.upper() in ("UTF-8", "UTF8"):
        return _fill(f"{name.lower()}(:a)", arguments)
    return exp.Anonymous(this=name, expressions=list(arguments))


def _element_at(name: str, arguments: Sequence[Node]) -> Node:
    """Of an array that is made here; of a map it is the engine's own."""
    if len(arguments) == 2 and isinstance(arguments[0], exp.Array | exp.RegexpSplit):
        return _fill("list_extract(:a, :b)", arguments)
    return exp.Anonymous(this=name, expressions=list(arguments))


_SPECIAL: Final[Mapping[str, Callable[[str, Sequence[Node]], Node]]] = {
    "DATE_FORMAT": _date_format,
    "DATE_TRUNC": _date_trunc,
    "DECODE": _encode,
    "ELEMENT_AT": _element_at,
    "ENCODE": _encode,
    "SHA2": _sha2,
    "TO_DATE": _to_date,
    "TO_TIMESTAMP": _to_timestamp,
    "TRUNC": _cut,
}
_NAMES: Final = frozenset(_TEMPLATES) | frozenset(_SPECIAL) | frozenset(_CASTS) | _UNKNOWN


class RuleDialect(DuckDB):
    """DuckDB's SQL, with Spark's backquoted names, and with Spark's functions left as they are written."""

    class Tokenizer(DuckDB.Tokenizer):
        IDENTIFIERS = ['"', "`"]  # noqa: RUF012  (sqlglot's way to configure a tokenizer)

    class Parser(DuckDB.Parser):  # type: ignore[misc, valid-type]  # a class that sqlglot makes
        BITWISE = sqlglot.Parser.BITWISE
        EXPONENT = {TokenType.DSTAR: exp.Pow}  # noqa: RUF012
        FUNCTIONS = {name: make for name, make in DuckDB.Parser.FUNCTIONS.items() if name not in _NAMES}  # noqa: RUF012
        FUNCTION_PARSERS = {  # noqa: RUF012
            name: make for name, make in DuckDB.Parser.FUNCTION_PARSERS.items() if name not in _NAMES
        }


def translate_spark_functions(root: Node) -> None:
    """Spell Spark's functions for the engine; PredicateError for one that is not known here."""
    for node in reversed(list(root.find_all(exp.Anonymous))):
        name = node.name.upper()
        if name not in _NAMES:
            continue
        made = _call(name, node.expressions)
        above = node.parent
        if isinstance(above, exp.Bracket) and name == "SPLIT":
            _count_from_one(above)
        node.replace(exp.Paren(this=made) if isinstance(made, exp.Binary | exp.Unary | exp.Is) else made)


def _call(name: str, arguments: Sequence[Node]) -> Node:
    if name in _UNKNOWN:
        raise PredicateError(f"the function {name.lower()} cannot be evaluated here; write the rows with Spark")
    if name in _CASTS:
        if len(arguments) != 1:
            raise PredicateError(f"{name.lower()} as a function takes one value")
        return exp.cast(arguments[0], _CASTS[name], dialect=DuckDB)
    if name in _SPECIAL:
        return _SPECIAL[name](name, arguments)
    template = _TEMPLATES[name].get(len(arguments))
    if template is None:
        counts = " or ".join(map(str, _TEMPLATES[name]))
        raise PredicateError(f"the function {name.lower()} is known here with {counts} arguments")
    return _fill(template, arguments)


def _fill(template: str, arguments: Sequence[Node]) -> Node:
    made = sqlglot.parse_one(template, dialect=DuckDB)
    for hole in list(made.find_all(exp.Placeholder)):
        argument = arguments["abc".index(hole.name)].copy()
        if hole is made:
            return argument
        hole.replace(exp.Paren(this=argument) if isinstance(argument, exp.Binary) else argument)
    return made


def _count_from_one(bracket: Node) -> None:
    """Spark counts the parts of a text from 0, the engine from 1."""
    (place,) = bracket.expressions
    bracket.set("expressions", [exp.Add(this=exp.Paren(this=place), expression=exp.Literal.number(1))])


def _is_text(node: Node) -> bool:
    return isinstance(node, exp.Literal) and bool(node.is_string)
