"""Patterns, replacements and formats of DataFusion mean the same in DuckDB, or are refused by the function's name."""

import pytest

from deltalakedb.data.engine import Engine
from deltalakedb.data.filtering import engine_sql
from deltalakedb.exceptions import PredicateError
from deltalakedb.log.schema.types import StructType

NO_COLUMNS = StructType(())


def value(expression: str) -> object:
    """What an expression without columns gives."""
    sql, _ = engine_sql(f"({expression}) is null", NO_COLUMNS)
    with Engine() as engine:
        return engine.execute(f"select {sql.removesuffix(' IS NULL')}")[0][0]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("regexp_replace('foobarbaz', 'b(..)', 'X${1}Y', 'g')", "fooXarYXazY"),
        ("regexp_replace('foobarbaz', 'b(..)', 'X$1Y')", "fooXbaz"),
        ("regexp_replace('foobarbaz', 'b(?P<n>..)', '$n-', 'g')", "fooar-az-"),
        ("regexp_replace('foobarbaz', 'b(?<n>..)', '${n}-', 'g')", "fooar-az-"),
        ("regexp_replace('foobarbaz', 'b(..)', '$$1')", "foo$1baz"),
        ("regexp_replace('foobarbaz', 'b(..)', '$0$9')", "foobarbaz"),
        (r"regexp_replace('foobarbaz', 'b(..)', '\1\\')", "fooar\\\\baz"),
        ("regexp_replace('fooBAR', 'b(..)', '<$1>', 'gi')", "foo<AR>"),
        ("regexp_replace('a b', 'a  b # all', 'x', 'x')", "a b"),
        (r"regexp_replace('ünï', '\w', 'x', 'g')", "xxx"),
        (r"regexp_replace('a٣', '\d', '#')", "a#"),
        (r"regexp_like('x', '[\d\w]')", True),
        (r"regexp_like('x', '\u0078')", True),
        (r"regexp_like('a]', '^a[]]$')", True),
        ("regexp_count('aaa', '')", 4),
        ("regexp_match('foobar', 'B(..)', 'i')", ["ar"]),
        ("regexp_match('foobar', '(x|b)(?:y|a)')", ["b"]),
        ("regexp_match('a|b', '[(|](b)')", ["b"]),
    ],
)
def test_patterns_and_replacements_are_those_of_rust(expression: str, expected: object) -> None:
    assert value(expression) == expected


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("regexp_replace('a', 'a', 'b', 'q')", "regexp_replace: the flags 'q' are not known"),
        ("regexp_like('a', '[a&&b]')", "regexp_like: '&&' in the pattern"),
        (r"regexp_like('a', '[\W]')", "regexp_like: "),
        (r"regexp_like('é', '\bé')", "ASCII characters only"),
        ("regexp_match('abc', '(a)(x)?')", "regexp_match: .* may leave out"),
        ("regexp_match('abc', '(a)|(b)')", "regexp_match: .* may leave out"),
        ("regexp_match('abc', '(?:(a))*b')", "regexp_match: .* may leave out"),
        ("regexp_replace('a', '(?-u:a)', 'b')", "regexp_replace: "),
        ("regexp_replace('a', lower('A'), '$n')", "the group 'n'"),
        ("regexp_replace('a', 'a', lower('$1'))", "must be written out"),
        ("to_char(now(), '%e')", "to_char: '%e' in the format"),
        ("sha512('a')", "Invalid function 'sha512'"),
        ("cast(interval '1 day' as varchar)", "text of an interval"),
    ],
)
def test_what_cannot_be_the_same_is_refused(expression: str, message: str) -> None:
    with pytest.raises(PredicateError, match=message):
        value(expression)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("to_char(timestamp '2024-02-29 12:30:15.5', '%d.%m.%y %T%.3f')", "29.02.24 12:30:15.500"),
        ("to_char(timestamp '2024-02-29 12:30:15.5', '%f')", "500000000"),
        ("cast(to_timestamp('2024-01-02 03:04:05.25', '%d/%m/%Y', '%Y-%m-%d %H:%M:%S%.f') as varchar)",
         "2024-01-02T03:04:05.250"),
        ("cast(date '2024-01-31' + interval '1 month' as varchar)", "2024-02-29"),
        ("cast(cast(0 as date) as varchar)", "1970-01-01"),
        ("cast(to_timestamp_seconds('1969-12-31T23:59:59.9') as varchar)", "1970-01-01T00:00:00"),
        ("date_part('hour', timestamptz '2024-01-01 00:00:00+00' at time zone 'Asia/Tokyo')", 9),
        ("upper('straße ŉ')", "STRASSE ʼN"),
        ("lower('ΟΔΟΣ İ')", "οδος i̇"),
        ("initcap('ßa b_c')", "SSa B_C"),
        ("substr('hello', length('') - 1, 3)", "h"),
        ("split_part('abc', '', 1)", "abc"),
        ("ln(0)", float("-inf")),
        ("position('abc', 'b')", 2),
    ],
)  # fmt: skip
def test_functions_mean_what_they_mean_in_datafusion(expression: str, expected: object) -> None:
    assert value(expression) == expected
