"""Arrow tables of every type that Delta has, with the values that are easy to get wrong."""

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from deltalakedb.log.schema.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    to_arrow_type,
)

_BITS = {"byte": 7, "short": 15, "integer": 31, "long": 63}
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | st.sampled_from(
    ["", "a" * 32, "a" * 33, "z" * 31 + "\U0010ffff" + "z", "\U0010ffff" * 40, "é" * 33, "\x7f" * 33, "\ud7ff" * 33]
)
_SPECIAL_FLOATS = st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 0.1, 5e-324, 1.5])
_EPOCH = datetime(1970, 1, 1)


def _moments(zone: Any) -> st.SearchStrategy[datetime]:
    # Readers differ on what lies beyond these years; inside of them they must not.
    near = st.integers(-2_000_000, 2_000_000).map(lambda us: (_EPOCH + timedelta(microseconds=us)).replace(tzinfo=zone))
    far = st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1)).map(lambda moment: moment.replace(tzinfo=zone))
    return near | far


def _decimals(kind: DecimalType) -> st.SearchStrategy[Decimal]:
    most = 10**kind.precision - 1
    return st.integers(-most, most).map(lambda number: Decimal(f"{number}e-{kind.scale}"))


def values_of(kind: DataType) -> st.SearchStrategy[Any]:
    """Values of a type, null left out."""
    match kind:
        case DecimalType():
            return _decimals(kind)
        case ArrayType():
            return st.lists(_maybe(values_of(kind.element_type), kind.contains_null), max_size=3)
        case MapType():
            values = _maybe(values_of(kind.value_type), kind.value_contains_null)
            return st.dictionaries(values_of(kind.key_type), values, max_size=2).map(lambda found: list(found.items()))
        case StructType():
            return st.fixed_dictionaries(
                {item.name: _maybe(values_of(item.type), item.nullable) for item in kind.fields}
            )
        case PrimitiveType(name) if name in _BITS:
            return st.integers(-(2 ** _BITS[name]), 2 ** _BITS[name] - 1) | st.integers(-3, 3)
        case PrimitiveType("float"):
            return st.floats(width=32) | _SPECIAL_FLOATS.filter(
                lambda x: math.isnan(x) or x in (0, 1.5) or math.isinf(x)
            )
        case PrimitiveType("double"):
            return st.floats() | _SPECIAL_FLOATS
        case PrimitiveType("boolean"):
            return st.booleans()
        case PrimitiveType("string"):
            return _TEXTS
        case PrimitiveType("binary"):
            return st.binary(max_size=6)
        case PrimitiveType("date"):
            return st.dates(date(1, 1, 1), date(9999, 12, 31))
        case PrimitiveType("timestamp"):
            return _moments(UTC)
        case PrimitiveType("timestamp_ntz"):
            return _moments(None)
    raise AssertionError(kind)


def _maybe(values: st.SearchStrategy[Any], nullable: bool) -> st.SearchStrategy[Any]:
    return st.none() | values if nullable else values


PRIMITIVES = [*_BITS, "float", "double", "boolean", "string", "binary", "date", "timestamp", "timestamp_ntz"]
leaf_types: st.SearchStrategy[DataType] = st.sampled_from(
    [*map(PrimitiveType, PRIMITIVES), DecimalType(5, 2), DecimalType(18, 0), DecimalType(38, 10)]
)
_keys = st.sampled_from([PrimitiveType("string"), PrimitiveType("integer")])


def _nest(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
    fields = st.builds(StructField, st.sampled_from("xyz"), inner, st.booleans())
    structs = st.lists(fields, min_size=1, max_size=3, unique_by=lambda item: item.name).map(
        lambda found: StructType(tuple(found))
    )
    return st.builds(ArrayType, inner, st.booleans()) | st.builds(MapType, _keys, inner, st.booleans()) | structs


any_types = st.recursive(leaf_types, _nest, max_leaves=4)


@st.composite
def tables(
    draw: st.DrawFn, kinds: st.SearchStrategy[DataType] = any_types, max_columns: int = 4, max_rows: int = 12
) -> tuple[StructType, pa.Table]:
    """A schema, and rows that keep it."""
    types = draw(st.lists(kinds, min_size=1, max_size=max_columns))
    fields = [StructField(f"c{place}", kind, draw(st.booleans())) for place, kind in enumerate(types)]
    rows = draw(st.integers(1, max_rows))
    columns = [
        draw(st.lists(_maybe(values_of(item.type), item.nullable), min_size=rows, max_size=rows)) for item in fields
    ]
    schema = StructType(tuple(fields))
    arrays = [pa.array(values, to_arrow_type(item.type)) for item, values in zip(fields, columns, strict=True)]
    return schema, pa.Table.from_arrays(arrays, schema=schema.to_arrow())
