"""Owns what a caller's WriterProperties mean for the Parquet files that pyarrow writes."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from typing import Protocol as Interface

from deltalakedb.exceptions import ConfigError
from deltalakedb.log.types import DataType, StructType

if TYPE_CHECKING:
    import pyarrow as pa

    from deltalakedb.data import ParquetOptions

_GZIP_LEVELS: Final = (1, 9)


class BloomFilter(Interface):
    set_bloom_filter_enabled: bool | None
    fpp: float | None
    ndv: int | None


class Column(Interface):
    """ColumnProperties."""

    dictionary_enabled: bool | None
    statistics_enabled: Any
    bloom_filter_properties: Any
    encoding: Any


class Properties(Interface):
    """WriterProperties: ours, or `deltalake`'s, which look the same."""

    data_page_size_limit: int | None
    dictionary_page_size_limit: int | None
    data_page_row_count_limit: int | None
    write_batch_size: int | None
    max_row_group_size: int | None
    compression: str | None
    default_column_properties: Any
    column_properties: Any


def to_parquet_options(
    properties: Properties | None, schema: StructType, partition_columns: Iterable[str] = ()
) -> ParquetOptions:
    """How files of a table with this schema are written; statistics in the log do not depend on it.

    `statistics_truncate_length` has no counterpart in pyarrow, and bounds in the log are cut by our own rules.
    """
    from deltalakedb.data import ParquetOptions

    if properties is None:
        return ParquetOptions()
    codec, level = _codec(properties.compression)
    extra = {
        "data_page_size": properties.data_page_size_limit,
        "dictionary_pagesize_limit": properties.dictionary_page_size_limit,
        "max_rows_per_page": properties.data_page_row_count_limit,
        "write_batch_size": properties.write_batch_size,
    }
    extra = {key: value for key, value in extra.items() if value is not None}
    extra |= _column_options(properties, schema, partition_columns)
    _refuse_unknown(extra)
    options = ParquetOptions(compression=codec, compression_level=level, extra=extra)
    if properties.max_row_group_size is not None:
        options = replace(options, row_group_rows=properties.max_row_group_size)
    return options


def _codec(text: str | None) -> tuple[str, int | None]:
    """`ZSTD(3)` as the codec and its level."""
    name, _, rest = (text or "SNAPPY").partition("(")
    level = int(rest.rstrip(")")) if rest else None
    codec = {"UNCOMPRESSED": "none", "LZ4_RAW": "lz4"}.get(name.upper(), name.lower())
    if codec == "gzip" and level is not None:
        level = min(max(level, _GZIP_LEVELS[0]), _GZIP_LEVELS[1])
    return codec, level


def _column_options(properties: Properties, schema: StructType, partition_columns: Iterable[str]) -> dict[str, Any]:
    default: Column | None = properties.default_column_properties
    chosen: Mapping[str, Column] = properties.column_properties or {}
    if default is None and not chosen:
        return {}
    from deltalakedb.data.arrow_types import file_schema

    leaves = list(_leaves(file_schema(schema, partition_columns)))
    wanted: dict[str, list[Column]] = {path: [default] if default is not None else [] for path in leaves}
    for name, column in chosen.items():
        for path in _leaves_of(name, schema, leaves):
            wanted[path].insert(0, column)
    return _merged({path: columns for path, columns in wanted.items() if columns}, leaves)


def _merged(wanted: Mapping[str, list[Column]], leaves: list[str]) -> dict[str, Any]:
    """The arguments of ParquetWriter that name columns; what a column's own properties leave open, the default says."""
    plain, silent = set(), set()
    encodings: dict[str, str] = {}
    blooms: dict[str, dict[str, Any]] = {}
    pages = False
    for path, columns in wanted.items():
        dictionary = _first(columns, "dictionary_enabled")
        encoding = _first(columns, "encoding")
        statistics = _first(columns, "statistics_enabled")
        if dictionary is False or (encoding is not None and not dictionary):
            plain.add(path)
        if encoding is not None and path in plain:
            encodings[path] = str(encoding).upper()
        if statistics is not None and str(statistics).upper() == "NONE":
            silent.add(path)
        pages = pages or (statistics is not None and str(statistics).upper() == "PAGE")
        bloom: BloomFilter | None = _first(columns, "bloom_filter_properties")
        if bloom is not None and bloom.set_bloom_filter_enabled:
            blooms[path] = {key: getattr(bloom, key) for key in ("fpp", "ndv") if getattr(bloom, key) is not None}
    found: dict[str, Any] = {}
    if plain:
        found["use_dictionary"] = [path for path in leaves if path not in plain]
    if encodings:
        found["column_encoding"] = encodings
    if silent:
        found["write_statistics"] = [path for path in leaves if path not in silent]
    if pages:
        found["write_page_index"] = True
    if blooms:
        found["bloom_filter_options"] = blooms
    return found


def _first(columns: list[Column], name: str) -> Any:
    return next((value for column in columns if (value := getattr(column, name)) is not None), None)


def _leaves(schema: pa.Schema) -> Iterator[str]:
    for item in schema:
        yield from _leaves_below(item.type, item.name)


def _leaves_below(kind: pa.DataType, path: str) -> Iterator[str]:
    import pyarrow.types as pt

    if pt.is_struct(kind):
        for item in kind:
            yield from _leaves_below(item.type, f"{path}.{item.name}")
    elif pt.is_list(kind):
        yield from _leaves_below(kind.value_type, f"{path}.list.element")
    elif pt.is_map(kind):
        yield from _leaves_below(kind.key_type, f"{path}.key_value.key")
        yield from _leaves_below(kind.item_type, f"{path}.key_value.value")
    else:
        yield path


def _leaves_of(name: str, schema: StructType, leaves: list[str]) -> list[str]:
    """The leaves of a column, which may be given as `struct.field`; what files do not have is no error."""
    parts = [name] if schema.field(name) is not None else name.split(".")
    found: list[str] = []
    inside: DataType = schema
    for part in parts:
        item = inside.field(part) if isinstance(inside, StructType) else None
        if item is None:
            return []
        found.append(item.physical_name)
        inside = item.type
    prefix = ".".join(found)
    return [path for path in leaves if path == prefix or path.startswith(f"{prefix}.")]


def _refuse_unknown(extra: Mapping[str, Any]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    newer = {"max_rows_per_page", "bloom_filter_options"} & extra.keys()
    known = inspect.signature(pq.ParquetWriter.__init__).parameters
    missing = sorted(name for name in newer if name not in known)
    if missing:
        raise ConfigError(
            f"the writer properties need {', '.join(missing)} of pyarrow's ParquetWriter, which pyarrow "
            f"{pa.__version__} does not have: install a newer pyarrow"
        )
