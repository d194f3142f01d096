"""Random conditions on the columns of the random tables, as a user writes them in Spark's SQL."""

from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

from hypothesis import strategies as st

from tests.spark.planning.recipes import GENERATED, TYPES, VALUES

_NUMBERS: Final = ("i8", "i16", "i32", "f32", "f64", "n5", "n20", "n38")
_COMPARED: Final = (*_NUMBERS, "b", "s", "c", "vc", "d", "ts", "tn", "bin")
_OPERATORS: Final = ("=", "=", "<", "<=", ">", ">=", "<>", "<=>")
_NEAR: Final[dict[str, list[str]]] = {
    **{name: ["0", "1", "0.1", "0.5", "-0.0", "1e0", "1000000", "'1'", "null", "1.5BD", "0.1D"] for name in _NUMBERS},
    "f32": ["0.1", "0.1D", "float('0.1')", "16777217", "double('NaN')", "float('infinity')", "0"],
    "f64": ["0.1", "0.1BD", "double('NaN')", "double('-infinity')", "9007199254740993", "float('0.1')"],
    "s": ["'aa'", "'a' || 'b'", "date'2026-01-01'", "9", "'\u00ff'", "null"],
    "c": ["'a   '", "'a'", "'abcde'"],
    "vc": ["'a '", "'abc'"],
    "d": ["'2026-01-01'", "timestamp'2026-01-01 00:00:00'", "'2026'", "current_date()", "date'2026-01-01' + 1"],
    "ts": ["'2026-01-01'", "date'2026-01-01'", "timestamp'2026-01-01 10:00:00.123'", "timestamp_ntz'2026-01-01'"],
    "tn": ["'2026-01-01'", "date'2026-01-01'", "timestamp'2026-01-01 00:00:00'"],
    "g": ["date'2026-01-01'", "'2025-12-31'"],
    "m": ["'2026-01'", "'1969-12'"],
}
"""Values that are in no file, of other types, or next to those that are."""
_WHOLE: Final = (
    "id % 3 = 0", "id < 1004", "id between 5 and 9", "id in (1, 1002, null)", "id = 2.5", "id >= '1000'", "true",
    "false", "null", "i32 = i16", "n5 < f64", "d = tn", "cast(d as string) = '2026-01-01'",
    "cast(ts as date) = '2026-01-01'", "to_date(ts) >= date'2026-01-01'", "year(d) = 2026",
    "date_trunc('hour', ts) = timestamp'2026-01-01 10:00:00'", "cast(i32 as string) = '1'", "cast(s as int) = 10",
    "cast(f32 as int) = 0", "cast(n5 as int) = 1", "i32 + 1 = 2", "abs(i32) = 7", "s like 'a%'", "s like '%a'",
    "s like 'a_'", "not s like 'a%'", "startswith(s, 'ab')", "s rlike '^a'", "lower(s) = 'a'", "length(s) > 3",
    "trim(s) = ''", "substring(s, 1, 1) = 'a'", "coalesce(s, 'z') = 'z'", "coalesce(i32, 0) = 0", "isnan(f64)",
    "not isnan(f32)", "nanvl(f64, 0) = 0", "f64 = f64", "st.a = 1", "st.a is null", "st.d >= '2026-01-02'",
    "st.s in ('a', 'b')", "st is null", "st = named_struct('a', 1, 's', 'a', 'd', date'2026-01-01')", "size(l) = 1",
    "array_contains(l, 2)", "l is null", "b", "not b", "b is not true", "case when b then i32 = 1 else false end",
    "if(i32 = 1, true, false)", "s collate utf8_lcase = 'A'", "s collate utf8_lcase in ('AB', 'É')",
    "s collate unicode_ci > 'a'", "startswith(s collate utf8_lcase, 'A')", "s = 'A' collate utf8_lcase",
    "vc collate utf8_lcase_rtrim = 'A '", "c = vc", "c like 'a%'", "length(c) = 4",
    "i32 in (select max(i32) from {t})", "exists (select 1 from {t} u where u.id = i32)",
    "id > (select avg(id) from {t})", "d > (select min(d) from {t})", "_metadata.file_name is not null and i32 > 0",
    "(i32, s) in ((1, 'a'), (2, 'b'))", "i32 in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)",
)  # fmt: skip


def literal(column: str, value: Any) -> str:
    """The value as Spark's SQL spells it, of the column's type where it has a spelling."""
    match value:
        case None:
            return "null"
        case bool() | int():
            return str(value).lower()
        case float():
            return f"{TYPES[column]}('{value!r}')"
        case Decimal():
            return f"{value}BD"
        case datetime():
            return f"{'timestamp_ntz' if column == 'tn' else 'timestamp'}'{value}'"
        case date():
            return f"date'{value}'"
        case bytes():
            return f"x'{value.hex()}'"
        case _:
            return "'" + str(value).replace("'", "\\'") + "'"


def _literals(column: str) -> st.SearchStrategy[str]:
    usual = [literal(column, value) for value in VALUES.get(column, [])]
    near = _NEAR.get(column, [])
    return st.sampled_from([*usual, *usual, *near] or ["null"])


def _of(column: str) -> st.SearchStrategy[str]:
    one = _literals(column)
    return st.one_of(
        st.builds(f"{column} {{}} {{}}".format, st.sampled_from(_OPERATORS), one),
        st.builds(f"{column} {{}} {{}}".format, st.sampled_from(_OPERATORS), one),
        st.builds(f"{{}} {{}} {column}".format, one, st.sampled_from(_OPERATORS)),
        st.builds(f"{column} between {{}} and {{}}".format, one, one),
        st.builds(lambda values: f"{column} in ({', '.join(values)})", st.lists(one, min_size=1, max_size=4)),
        st.builds(lambda values: f"{column} not in ({', '.join(values)})", st.lists(one, min_size=1, max_size=2)),
        st.sampled_from([f"{column} is null", f"{column} is not null"]),
    )


_atoms = st.one_of(st.sampled_from((*_COMPARED, *GENERATED)).flatmap(_of), st.sampled_from(_WHOLE))
conditions = st.recursive(
    _atoms,
    lambda inner: st.one_of(
        st.builds("({} and {})".format, inner, inner),
        st.builds("({} or {})".format, inner, inner),
        st.builds("not ({})".format, inner),
    ),
    max_leaves=4,
)
