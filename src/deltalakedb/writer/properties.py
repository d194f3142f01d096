"""WriterProperties: how Parquet files are written, with the names of `deltalake`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import InitVar, dataclass
from typing import Final, Literal

from deltalakedb.runtime.arguments import WithoutFields

_LEVELS: Final[Mapping[str, tuple[int, int, int]]] = {"GZIP": (0, 10, 6), "BROTLI": (0, 11, 1), "ZSTD": (1, 22, 1)}
"""Codecs with a level: the lowest, the highest and the default."""
_CODECS: Final = ("UNCOMPRESSED", "SNAPPY", "GZIP", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW")


@dataclass(eq=False, repr=False)
class BloomFilterProperties(WithoutFields):
    """A Bloom filter for a column: whether it has one, its false positive rate, its number of distinct values."""

    set_bloom_filter_enabled: bool | None
    fpp: float | None = None
    ndv: int | None = None

    def __post_init__(self) -> None:
        if self.fpp is not None and (self.fpp <= 0 or self.fpp >= 1):
            raise ValueError(f"fpp must be between 0 and 1 exclusive, not {self.fpp}")

    def __str__(self) -> str:
        return f"set_bloom_filter_enabled: {self.set_bloom_filter_enabled}, fpp: {self.fpp}, ndv: {self.ndv}"


@dataclass(eq=False, repr=False)
class ColumnProperties(WithoutFields):
    """How one column is stored. An encoding applies to columns without a dictionary."""

    dictionary_enabled: bool | None = None
    statistics_enabled: Literal["NONE", "CHUNK", "PAGE"] | None = None
    bloom_filter_properties: BloomFilterProperties | None = None
    encoding: (
        Literal[
            "PLAIN",
            "RLE",
            "DELTA_BINARY_PACKED",
            "DELTA_LENGTH_BYTE_ARRAY",
            "DELTA_BYTE_ARRAY",
            "BYTE_STREAM_SPLIT",
        ]
        | None
    ) = None

    def __post_init__(self) -> None:
        if isinstance(self.encoding, str) and self.dictionary_enabled:
            raise ValueError("Cannot specify dictionary_enabled=True and encoding: give one of the two")

    def __str__(self) -> str:
        return (
            f"dictionary_enabled: {self.dictionary_enabled}, statistics_enabled: {self.statistics_enabled}, "
            f"bloom_filter_properties: {self.bloom_filter_properties}, encoding: {self.encoding}"
        )


@dataclass(eq=False, repr=False)
class WriterProperties(WithoutFields):
    """How the files of a write are stored; without `compression` they are not compressed, as in `deltalake`.

    `max_row_group_size` is a number of rows. `statistics_truncate_length` truncates the bounds of strings in the log,
    in bytes. After initialisation, `compression` includes the level, as in `ZSTD(3)`.
    """

    data_page_size_limit: int | None = None
    dictionary_page_size_limit: int | None = None
    data_page_row_count_limit: int | None = None
    write_batch_size: int | None = None
    max_row_group_size: int | None = None
    compression: str | None = None
    compression_level: InitVar[int | None] = None
    statistics_truncate_length: int | None = None
    default_column_properties: ColumnProperties | None = None
    column_properties: dict[str, ColumnProperties] | None = None

    def __post_init__(self, compression_level: int | None) -> None:
        if self.compression is None and compression_level is not None:
            raise ValueError(
                "Providing a compression level without the compression type is not possible, please provide the "
                "compression as well."
            )
        if not isinstance(self.compression, str):
            self.compression = None
            return
        codec = self.compression.upper()
        if codec not in _CODECS:
            raise ValueError(f"{self.compression} is not a valid Compression. Valid values are: {list(_CODECS)}")
        if codec in _LEVELS:
            lowest, highest, default_level = _LEVELS[codec]
            level = default_level if compression_level is None else compression_level
            if level < lowest or level > highest:
                raise ValueError(f"Compression level for {codec} should fall between {lowest}-{highest}, not {level}")
            codec = f"{codec}({level})"
        self.compression = codec

    def __str__(self) -> str:
        columns = self.column_properties
        column_texts = ", ".join(f"column '{name}': {value}" for name, value in columns.items()) if columns else None
        return (
            f"WriterProperties(data_page_size_limit: {self.data_page_size_limit}, "
            f"dictionary_page_size_limit: {self.dictionary_page_size_limit}, "
            f"data_page_row_count_limit: {self.data_page_row_count_limit}, write_batch_size: {self.write_batch_size}, "
            f"max_row_group_size: {self.max_row_group_size}, compression: {self.compression}, "
            f"statistics_truncate_length: {self.statistics_truncate_length},"
            f"default_column_properties: {self.default_column_properties}, column_properties: {column_texts})"
        )
