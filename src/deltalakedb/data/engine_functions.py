"""Owns the functions that the query engine is given beside its own: what DataFusion has and DuckDB has not.

They are macros, so DuckDB still knows the types of their arguments: `typeof` is a constant to it, and of a `case` on it
only the branch that holds is left.
"""

from __future__ import annotations

from typing import Final

# `2024-01-02 03:04:05.5+00` as `2024-01-02T03:04:05.500Z`: a fraction has three digits, or six.
_INSTANT: Final = (
    r"regexp_replace(regexp_replace(regexp_replace(regexp_replace(regexp_replace("
    r"replace(cast(x as varchar), ' ', 'T')"
    r", '(\.\d)(\+00)?$', '\100\2'), '(\.\d\d)(\+00)?$', '\10\2')"
    r", '(\.\d{4}|\.\d{7})(\+00)?$', '\100\2'), '(\.\d{5}|\.\d{8})(\+00)?$', '\10\2'), '\+00$', 'Z')"
)
# `1e+20` as `1e20`, `1e-07` as `1e-7`, `1.5e-05` as `0.000015`; a float has one digit more before it needs an exponent.
_SHORT: Final = (
    r"regexp_replace(regexp_replace(regexp_replace(regexp_replace({}"
    r", '^(-?)(\d)(?:\.(\d+))?e-05$', '\10.0000\2\3'), 'e\+0*', 'e'), 'e-0*', 'e-'), '^-?nan$', 'NaN')"
)
# The fewest digits that are the same float, for floats above 2**24; DuckDB writes all digits of the whole number.
# `x` is a float there, but DuckDB also checks the branch where it is of another type.
_SINGLE: Final = "try_cast(cast(x as varchar) as float)"
_DIGITS: Final = (
    f"case when cast(printf('%.5e', {_SINGLE}) as float) = {_SINGLE} then printf('%.5e', {_SINGLE}) "
    f"when cast(printf('%.6e', {_SINGLE}) as float) = {_SINGLE} then printf('%.6e', {_SINGLE}) "
    f"when cast(printf('%.7e', {_SINGLE}) as float) = {_SINGLE} then printf('%.7e', {_SINGLE}) "
    f"else printf('%.8e', {_SINGLE}) end"
)
_LARGE: Final = (
    f"case when abs({_SINGLE}) < cast(1e13 as float) then cast(cast({_DIGITS} as double) as varchar) else "
    rf"regexp_replace(regexp_replace({_DIGITS}, '\.?0*e', 'e'), 'e\+0*', 'e') end"
)
_IS_LARGE: Final = f"abs({_SINGLE}) > 16777216 and not isinf({_SINGLE}) and not isnan({_SINGLE})"
_DOUBLE: Final = _SHORT.format("cast(x as varchar)")
_FLOAT: Final = _SHORT.format(r"regexp_replace(cast(x as varchar), '^(-?)(\d)(?:\.(\d+))?e-06$', '\10.00000\2\3')")
_BYTES: Final = "from_hex(hex(x))"
_PADDED: Final = "concat(x, repeat('=', (4 - length(x) % 4) % 4))"

# Whether a value of the list `x` is `e`, and whether it is among the first `n` of those.
_SAME: Final = "{} is not distinct from e"
_AMONG_FIRST: Final = "len(list_filter(x[:i], lambda w: w is not distinct from e)) <= n"

_IS_WHOLE: Final = r"regexp_full_match(x, '\s*[+-]?[0-9]+\s*')"
_NOT_WHOLE: Final = "'Cast error: Cannot cast string ' || chr(39) || x || chr(39) || ' to value of Int64 type'"
_NOT_DATE: Final = _NOT_WHOLE.replace("Int64", "Date32")
_DATE: Final = (
    "when regexp_full_match(x, '[0-9]{8}') then concat_ws('-', x[:4], x[5:6], x[7:]) "
    "when regexp_full_match(x, '[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}') then x"
)

_WHOLE: Final = "'TINYINT', 'SMALLINT', 'INTEGER', 'BIGINT', 'HUGEINT', 'UBIGINT'"
# A moment of a text, or of a number of units of so many microseconds each; what is less than a unit is cut off.
_COUNTED: Final = (
    "make_timestamp(case when typeof(x) in ('VARCHAR', 'DATE', 'TIMESTAMP', 'TIMESTAMP WITH TIME ZONE') "
    "then epoch_us(cast(cast(x as varchar) as timestamptz)) // {0} else try_cast(cast(x as varchar) as bigint) end"
    " * {0})"
)

# Letters of which capitals are several letters, in DuckDB one or none.
_WIDE: Final = "".join(chr(code) for code in range(128, 0x10000) if len(chr(code).upper()) > 1)
_CAPITALS: Final = ", ".join(f"'{char.upper()}'" for char in _WIDE)

DIVIDED_BY_ZERO: Final = "Arrow error: Divide by zero error"

MACROS: Final = (
    # The text of a value, as Arrow writes it.
    f"""create macro dl_text(x) as case
        when typeof(x) in ('TIMESTAMP', 'TIMESTAMP WITH TIME ZONE', 'TIMESTAMP_S', 'TIMESTAMP_MS', 'TIMESTAMP_NS',
            'TIME')
            then {_INSTANT}
        when typeof(x) = 'BLOB' then decode(try_cast(x as blob))
        when typeof(x) = 'INTERVAL' then error('the text of an interval is not known here')
        when typeof(x) like '%[][]' then error('the text of a list of lists is not known here')
        when typeof(x) like '%[]' then '[' || array_to_string(
            list_transform(try_cast(x as varchar[]), lambda e: coalesce(e, '')), ', ') || ']'
        when typeof(x) = 'DOUBLE' then {_DOUBLE}
        when typeof(x) = 'FLOAT' then case when {_IS_LARGE} then {_LARGE} else {_FLOAT} end
        else cast(x as varchar) end""",
    # A text that Arrow reads as an integer.
    f"create macro dl_whole(x) as case when {_IS_WHOLE} then x when x is not null then error({_NOT_WHOLE}) end",
    f"create macro dl_try_whole(x) as case when {_IS_WHOLE} then x end",
    # A text that Arrow reads as a date: also without hyphens, and with a time and a zone after it.
    f"create macro dl_date(x) as case {_DATE} when length(x) > 10 "
    f"then cast(cast(cast(x as timestamptz) as date) as varchar) when x is not null then error({_NOT_DATE}) end",
    f"create macro dl_try_date(x) as case {_DATE} when length(x) > 10 "
    "then cast(cast(try_cast(x as timestamptz) as date) as varchar) end",
    f"""create macro dl_encode(x, encoding) as case encoding
        when 'hex' then lower(hex(x))
        when 'base64' then rtrim(base64({_BYTES}), '=')
        when 'base64pad' then base64({_BYTES})
        else error('There is no built-in encoding named ' || encoding || ', use base64 or hex') end""",
    f"""create macro dl_decode(x, encoding) as case encoding
        when 'hex' then from_hex(x)
        when 'base64' then from_base64({_PADDED})
        when 'base64pad' then from_base64(x)
        else error('There is no built-in encoding named ' || encoding || ', use base64 or hex') end""",
    # With whole numbers dividing to whole numbers, DuckDB makes null of every division by zero.
    "create macro dl_divide(x, y) as case when y = 0 then x * 'infinity'::double else x / y end",
    "create macro dl_nonzero(y, x) as case when y = 0 and x is not null and typeof(y) not in ('FLOAT', 'DOUBLE') "
    f"then error('{DIVIDED_BY_ZERO}') else y end",
    # DuckDB shifts no negative number.
    "create macro dl_shift_left(x, n) as case when x >= 0 then x << n else -((-x) << n) end",
    "create macro dl_factorial(x) as cast(factorial(cast(x as integer)) as bigint)",
    # Newton's step makes the root of 27 a whole number.
    "create macro dl_cbrt(x) as case when x = 0 or abs(x) > 1e100 then cbrt(x) "
    "else cbrt(x) - (pow(cbrt(x), 3) - x) / (3 * pow(cbrt(x), 2)) end",
    "create macro dl_array_to_string(x, y) as case when x is null or y is null then null "
    "else coalesce(array_to_string(x, y), '') end, (x, y, n) as case when x is null or y is null then null "
    "else coalesce(array_to_string(list_transform(x, lambda e: coalesce(cast(e as varchar), n)), y), '') end",
    "create macro dl_array_remove(x, e) as case when coalesce(list_position(x, e), 0) = 0 then x "
    "else list_concat(x[:list_position(x, e) - 1], x[list_position(x, e) + 1:]) end",
    "create macro dl_array_distinct(x) as list_filter(x, lambda e, i: list_position(x, e) = i)",
    """create macro dl_unixtime(x) as case
        when typeof(x) in ('VARCHAR', 'DATE', 'TIMESTAMP', 'TIMESTAMP WITH TIME ZONE')
            then cast(trunc(epoch(cast(cast(x as varchar) as timestamptz))) as bigint)
        else cast(try_cast(x as double) as bigint) end""",
    """create macro dl_arrow_typeof(x) as case typeof(x)
        when 'TINYINT' then 'Int8' when 'SMALLINT' then 'Int16' when 'INTEGER' then 'Int32'
        when 'BIGINT' then 'Int64' when 'HUGEINT' then 'Int64' when 'UBIGINT' then 'UInt64'
        when 'FLOAT' then 'Float32' when 'DOUBLE' then 'Float64' when 'BOOLEAN' then 'Boolean'
        when 'VARCHAR' then 'Utf8View' when 'BLOB' then 'BinaryView' when 'DATE' then 'Date32'
        when 'TIMESTAMP' then 'Timestamp(ns)' when 'TIMESTAMP WITH TIME ZONE' then 'Timestamp(ns, "UTC")'
        when 'INTERVAL' then 'Interval(MonthDayNano)' when '"NULL"' then 'Null'
        else regexp_replace(typeof(x), '^DECIMAL\\((\\d+),(\\d+)\\)$', 'Decimal128(\\1, \\2)') end""",
    "create macro dl_digest(x, method) as case method "
    "when 'sha256' then from_hex(sha256(x)) when 'md5' then from_hex(md5(x)) "
    "else error('There is no digest named ' || method) end",
    """create macro dl_moment(x) as case
        when typeof(x) in ('VARCHAR', 'DATE', 'TIMESTAMP', 'TIMESTAMP WITH TIME ZONE')
            then cast(cast(cast(x as varchar) as timestamptz) as timestamp)
        else make_timestamp(cast(try_cast(x as double) * 1000000 as bigint)) end""",
    f"""create macro dl_upper(x) as case when regexp_matches(x, '[{_WIDE}]') then upper(array_to_string(
        list_transform(range(1, length(x) + 1),
            lambda i: coalesce([{_CAPITALS}][strpos('{_WIDE}', substr(x, i, 1))], substr(x, i, 1))), ''))
        else upper(x) end""",
    r"""create macro dl_lower(x) as lower(replace(
        regexp_replace(x, '(\p{L})\x{3A3}(\P{L}|$)', '\1' || chr(962) || '\2', 'g'), chr(304), 'i' || chr(775)))""",
    r"""create macro dl_initcap(x) as case when x = '' then '' else array_to_string(list_transform(
        regexp_extract_all(x, '[\p{L}\p{N}]+|[^\p{L}\p{N}]+'),
        lambda w: dl_upper(left(w, 1)) || lower(substr(w, 2))), '') end""",
    """create macro dl_substr(x, s) as case when s < 1 then x else substr(x, s) end, (x, s, n) as case
        when n < 0 then error('Execution error: negative count not allowed: substr(..., ' || n || ')')
        when s < 1 then left(x, greatest(s + n - 1, 0)) else substr(x, s, n) end""",
    """create macro dl_split_part(x, y, n) as case
        when n = 0 then error('Execution error: field position must not be zero: split_part(..., 0)')
        when y = '' then case when n in (1, -1) then x else '' end else split_part(x, y, n) end""",
    """create macro dl_lpad(x, n, y) as case when y = '' then left(x, greatest(n, 0))
        else lpad(x, cast(n as integer), y) end""",
    """create macro dl_rpad(x, n, y) as case when y = '' then left(x, greatest(n, 0))
        else rpad(x, cast(n as integer), y) end""",
    # Patterns: see regular_expressions.py.
    r"""create macro dl_ascii(x, name) as case when strlen(x) = length(x) or x is null then x else
        error(name || ': `\b` is known here in texts of ASCII characters only') end""",
    r"""create macro dl_matched_by(x, p, name) as case when strlen(x) = length(x) or not contains(p, '\') or x is null
        or p is null then x else error(name || ': a pattern that is not written out, with a backslash, '
        || 'is known here for texts of ASCII characters only') end""",
    r"""create macro dl_replacement(x) as case when contains(x, '$') or contains(x, '\')
        then error('regexp_replace: a replacement with `$` or a backslash must be written out here') else x end""",
    # Where DuckDB fails.
    "create macro dl_ln(x) as case when x = 0 then '-infinity'::double when x < 0 then 'nan'::double else ln(x) end",
    "create macro dl_log(b, x) as case when b = 1 then dl_ln(x) * 'infinity'::double else dl_ln(x) / dl_ln(b) end",
    "create macro dl_log2(x) as case when x <= 0 then dl_ln(x) else log2(x) end",
    "create macro dl_log10(x) as case when x <= 0 then dl_ln(x) else log10(x) end",
    "create macro dl_asin(x) as case when abs(x) > 1 then 'nan'::double else asin(x) end",
    "create macro dl_acos(x) as case when abs(x) > 1 then 'nan'::double else acos(x) end",
    "create macro dl_atanh(x) as case when abs(x) > 1 then 'nan'::double else atanh(x) end",
    "create macro dl_array_concat(x, y) as case when x is null and y is null then null else list_concat(x, y) end, "
    "(x, y, z) as case when x is null and y is null and z is null then null else "
    "list_concat(list_concat(x, y), z) end",
    "create macro iszero(x) as x = 0",
    "create macro nanvl(x, y) as case when isnan(x) then y else x end",
    f"create macro to_date(x) as case when typeof(x) in ({_WHOLE}) then date '1970-01-01' "
    "+ try_cast(cast(x as varchar) as integer) else cast(cast(x as varchar) as date) end",
    "create macro to_time(x) as cast(x as time)",
    "create macro to_timestamp_nanos(x) as make_timestamp_ns(x)",
    f"create macro to_timestamp_seconds(x) as {_COUNTED.format(1_000_000)}",
    "create macro from_unixtime(x) as make_timestamp(cast(x as bigint) * 1000000)",
    f"create macro to_timestamp_millis(x) as {_COUNTED.format(1000)}",
    f"create macro to_timestamp_micros(x) as {_COUNTED.format(1)}",
    "create macro to_local_time(x) as cast(x as timestamp)",
    "create macro get_field(x, name) as struct_extract(x, name)",
    "create macro empty(x) as len(x) = 0",
    "create macro find_in_set(x, y) as cast(case when x is null or y is null then null "
    "else coalesce(list_position(string_split(y, ','), x), 0) end as integer)",
    "create macro dl_substring_index(x, y, n) as case when n = 0 then '' "
    "when n > 0 then array_to_string(string_split(x, y)[:n], y) else array_to_string(string_split(x, y)[n:], y) end",
    "create macro array_any_value(x) as list_filter(x, lambda e: e is not null)[1]",
    "create macro dl_array_distance(x, y) as list_distance(cast(x as double[]), cast(y as double[]))",
    "create macro array_ndims(x) as case when x is not null "
    "then (length(typeof(x)) - length(replace(typeof(x), '[]', ''))) // 2 end",
    "create macro array_dims(x) as case when typeof(x) like '%[][]' "
    "then error('array_dims: the lengths of a list of lists are not known here') "
    "when len(x) > 0 then cast([len(x)] as ubigint[]) end",
    # Lists as vectors.
    *(
        f"create macro {name}(x, y) as case when len(x) <> len(y) then error('Execution error: {name} requires both "
        f"list inputs to have the same length per row, got ' || len(x) || ' and ' || len(y)) when y is not null "
        f"then list_transform(x, lambda e, i: cast(e as double) {sign} cast(y[i] as double)) end"
        for name, sign in (("array_add", "+"), ("array_subtract", "-"))
    ),
    "create macro array_scale(x, y) as case when y is not null "
    "then list_transform(x, lambda e: cast(e as double) * cast(y as double)) end",
    "create macro array_normalize(x) as case when list_sum(list_transform(x, lambda e: cast(e as double) * e)) <> 0 "
    "then list_transform(x, lambda e: e / sqrt(list_sum(list_transform(x, lambda w: cast(w as double) * w)))) end",
    "create macro array_avg(x) as list_avg(cast(x as double[]))",
    "create macro array_product(x) as list_product(cast(x as double[]))",
    "create macro dl_array_sum(x) as list_sum(cast(x as double[]))",
    "create macro inner_product(x, y) as list_inner_product(cast(x as double[]), cast(y as double[]))",
    "create macro dl_arrays_zip(x, y) as list_transform(range(1, greatest(len(x), len(y)) + 1), "
    "lambda i: {'1': x[i], '2': y[i]}), (x, y, z) as list_transform(range(1, greatest(len(x), len(y), len(z)) + 1), "
    "lambda i: {'1': x[i], '2': y[i], '3': z[i]})",
    # Texts as lists.
    "create macro dl_split(x, y) as case when x = '' then cast([] as varchar[]) when y is null "
    "then string_split(x, '') when y = '' and x is not null then [x] else string_split(x, y) end",
    "create macro dl_string_to_array(x, y) as dl_split(x, y), "
    "(x, y, n) as list_transform(dl_split(x, y), lambda e: nullif(e, n))",
    # Maps.
    "create macro dl_map_extract(x, k) as [map_extract_value(x, k)]",
    f"create macro array_positions(x, e) as cast(list_filter(range(1, len(x) + 1), "
    f"lambda i: {_SAME.format('x[i]')}) as ubigint[])",
    f"create macro array_remove_all(x, e) as list_filter(x, lambda v: not ({_SAME.format('v')}))",
    f"create macro array_remove_n(x, e, n) as list_filter(x, lambda v, i: not ({_SAME.format('v')} "
    f"and {_AMONG_FIRST}))",
    f"create macro array_replace_all(x, e, y) as list_transform(x, lambda v: case when {_SAME.format('v')} "
    "then y else v end)",
    f"create macro array_replace_n(x, e, y, n) as list_transform(x, lambda v, i: case when {_SAME.format('v')} "
    f"and {_AMONG_FIRST} then y else v end)",
    "create macro array_replace(x, e, y) as array_replace_n(x, e, y, 1)",
    "create macro array_repeat(e, n) as list_transform(range(n), lambda i: e)",
    "create macro array_union(x, y) as case when x is not null and y is not null "
    "then dl_array_distinct(list_concat(x, y)) end",
    "create macro dl_array_intersect(x, y) as dl_array_distinct(list_filter(x, lambda v: "
    "len(list_filter(y, lambda w: w is not distinct from v)) > 0))",
    "create macro dl_array_except(x, y) as dl_array_distinct(list_filter(x, lambda v: "
    "len(list_filter(y, lambda w: w is not distinct from v)) = 0))",
)
