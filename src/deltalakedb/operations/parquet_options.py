"""Translates WriterProperties to options of pyarrow's Parquet writer."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from typing import Protocol as Interface

from deltalakedb.exceptions import ConfigError, DeltaError
from deltalakedb.log.schema.types import DataType, StructType

if TYPE_CHECKING:
    import pyarrow as pa

    from deltalakedb.data import ParquetOptions

_GZIP_LEVELS: Final = (1, 9)
_SIZES: Final = (
    "data_page_size_limit",
    "dictionary_page_size_limit",
    "data_page_row_count_limit",
    "write_batch_size",
    "max_row_group_size",
    "statistics_truncate_length",
)
_STATISTICS: Final = ("NONE", "CHUNK", "PAGE")
_ENCODINGS: Final = (
    "PLAIN",
    "RLE",
    "DELTA_BINARY_PACKED",
    "DELTA_LENGTH_BYTE_ARRAY",
    "DELTA_BYTE_ARRAY",
    "BYTE_STREAM_SPLIT",
)
_WHOLE_TEXT: Final = 2**31
_SILENT: Final = "columns without statistics"
"""The key under which these columns are passed on; pyarrow has no such argument."""


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
    """WriterProperties, ours or `deltalake`'s, which have the same fields."""

    data_page_size_limit: int | None
    dictionary_page_size_limit: int | None
    data_page_row_count_limit: int | None
    write_batch_size: int | None
    max_row_group_size: int | None
    compression: str | None
    statistics_truncate_length: int | None
    default_column_properties: Any
    column_properties: Any


def to_parquet_options(
    properties: Properties | None, schema: StructType, partition_columns: Iterable[str] = ()
) -> ParquetOptions:
    """Return how files of a table with this schema are written.

    As in `deltalake`, properties without a compression leave files uncompressed, and a column without statistics in
    the footers has none in the log either. `statistics_truncate_length` has no counterpart in pyarrow: it only applies
    to the log.
    """
    from deltalakedb.data import ParquetOptions

    if properties is None:
        return ParquetOptions()
    _check(properties)
    codec, level = _codec(properties.compression)
    extra: dict[str, Any] = {
        "data_page_size": properties.data_page_size_limit,
        "dictionary_pagesize_limit": properties.dictionary_page_size_limit,
        "max_rows_per_page": properties.data_page_row_count_limit,
        "write_batch_size": properties.write_batch_size,
    }
    extra = {key: value for key, value in extra.items() if value is not None}
    extra |= _column_options(properties, schema, partition_columns)
    _refuse_unknown(extra)
    length = properties.statistics_truncate_length
    options = ParquetOptions(
        compression=codec,
        compression_level=level,
        extra=extra,
        silent=frozenset(extra.pop(_SILENT, ())),
        text_bytes=_WHOLE_TEXT if length is None else max(length, 1),
    )
    if properties.max_row_group_size is not None:
        options = replace(options, row_group_rows=properties.max_row_group_size)
    return options


def _check(properties: Properties) -> None:
    """Raise TypeError or DeltaError, with `deltalake`'s messages, for values that no file can be written with."""
    for name in _SIZES:
        value = getattr(properties, name, None)
        if value is not None and (not isinstance(value, int) or value < 0):
            raise TypeError(f"failed to extract field PyWriterProperties.{name}: {value!r} is no size")
    columns, default = properties.column_properties, properties.default_column_properties
    if columns is not None and not (isinstance(columns, Mapping) and all(map(_is_column, columns.values()))):
        raise TypeError(f"failed to extract field PyWriterProperties.column_properties: {columns!r}")
    if default is not None and not _is_column(default):
        raise TypeError(f"failed to extract field PyWriterProperties.default_column_properties: {default!r}")
    for column in (default, *(columns or {}).values()):
        statistics, encoding = getattr(column, "statistics_enabled", None), getattr(column, "encoding", None)
        if statistics is not None and str(statistics).upper() not in _STATISTICS:
            raise DeltaError(f"Invalid statistics arg: {statistics}; it is one of {', '.join(_STATISTICS)}")
        if encoding is not None and str(encoding).upper() not in _ENCODINGS:
            raise DeltaError(f"unknown encoding: {encoding}; it is one of {', '.join(_ENCODINGS)}")


def _is_column(value: Any) -> bool:
    """Return whether it has the fields of ColumnProperties, and a valid Bloom filter."""
    if not hasattr(value, "dictionary_enabled"):
        return False
    bloom = value.bloom_filter_properties
    return bloom is None or bloom.ndv is None or bloom.ndv >= 0


def _codec(text: str | None) -> tuple[str, int | None]:
    """Split `ZSTD(3)` into the codec and its level."""
    name, _, rest = (text or "UNCOMPRESSED").partition("(")
    level = int(rest.rstrip(")")) if rest else None
    codec = {"UNCOMPRESSED": "none", "LZ4_RAW": "lz4"}.get(name.upper(), name.lower())
    if codec == "gzip" and level is not None:
        level = min(max(level, _GZIP_LEVELS[0]), _GZIP_LEVELS[1])
    return codec, level


def _column_options(properties: Properties, schema: StructType, partition_columns: Iterable[str]) -> dict[str, Any]:
    default: Column | None = properties.default_column_properties
    own_properties: Mapping[str, Column] = properties.column_properties or {}
    if default is None and not own_properties:
        return {}
    from deltalakedb.data.arrow_types import file_schema

    leaves = list(_leaves(file_schema(schema, partition_columns)))
    properties_by_leaf: dict[str, list[Column]] = {path: [default] if default is not None else [] for path in leaves}
    for name, column in own_properties.items():
        for path in _leaves_of(name, schema, leaves):
            properties_by_leaf[path].insert(0, column)
    return _merged({path: columns for path, columns in properties_by_leaf.items() if columns}, leaves)


def _merged(wanted: Mapping[str, list[Column]], leaves: list[str]) -> dict[str, Any]:
    """Return the arguments of ParquetWriter that name columns; a column's own properties override the default."""
    no_dictionary, silent = set(), set()
    encodings: dict[str, str] = {}
    blooms: dict[str, dict[str, Any]] = {}
    pages = False
    for path, columns in wanted.items():
        dictionary = _first(columns, "dictionary_enabled")
        encoding = _first(columns, "encoding")
        statistics = _first(columns, "statistics_enabled")
        if dictionary is False or (encoding is not None and not dictionary):
            no_dictionary.add(path)
        if encoding is not None and path in no_dictionary:
            encodings[path] = str(encoding).upper()
        if statistics is not None and str(statistics).upper() == "NONE":
            silent.add(path)
        pages = pages or (statistics is not None and str(statistics).upper() == "PAGE")
        bloom: BloomFilter | None = _first(columns, "bloom_filter_properties")
        if bloom is not None and bloom.set_bloom_filter_enabled:
            blooms[path] = {key: getattr(bloom, key) for key in ("fpp", "ndv") if getattr(bloom, key) is not None}
    arguments: dict[str, Any] = {}
    if no_dictionary:
        arguments["use_dictionary"] = [path for path in leaves if path not in no_dictionary]
    if encodings:
        arguments["column_encoding"] = encodings
    if silent:
        arguments["write_statistics"] = [path for path in leaves if path not in silent]
        arguments[_SILENT] = silent
    if pages:
        arguments["write_page_index"] = True
    if blooms:
        arguments["bloom_filter_options"] = blooms
    return arguments


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
    """Return the leaves of a column, which may be given as `struct.field`; columns not in the files are ignored."""
    parts = [name] if schema.field(name) is not None else name.split(".")
    physical_path: list[str] = []
    parent: DataType = schema
    for part in parts:
        item = parent.field(part) if isinstance(parent, StructType) else None
        if item is None:
            return []
        physical_path.append(item.physical_name)
        parent = item.type
    prefix = ".".join(physical_path)
    return [path for path in leaves if path == prefix or path.startswith(f"{prefix}.")]


def _refuse_unknown(extra: Mapping[str, Any]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    newer = {"max_rows_per_page", "bloom_filter_options"} & extra.keys()
    parameters = inspect.signature(pq.ParquetWriter.__init__).parameters
    missing = sorted(name for name in newer if name not in parameters)
    if missing:
        raise ConfigError(
            f"the writer properties need {', '.join(missing)} of pyarrow's ParquetWriter, which pyarrow "
            f"{pa.__version__} does not have: install a newer pyarrow"
        )
