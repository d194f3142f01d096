"""WriterProperties, in both libraries: what is refused, and what the footers of our files say."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.api.both import Both, Library

ROWS = pa.table({"id": list(range(5000)), "name": ["x"] * 5000, "part": [{"a": 1}] * 5000})


def footer(lib: Library) -> pq.FileMetaData:
    (path,) = (path for path in lib.folder.rglob("*.parquet") if "_delta_log" not in path.parts)
    return pq.ParquetFile(path).metadata


def properties(lib: Library, **arguments: Any) -> Any:
    return lib.module.WriterProperties(**arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {"compression": "ZSTD", "compression_level": 3},
        {"compression": "GZIP"},
        {"compression": "UNCOMPRESSED"},
        {"compression": "BROTLI", "compression_level": 2},
        {"compression": "LZ4_RAW"},
        {"max_row_group_size": 1000},
        {"data_page_size_limit": 4096, "dictionary_page_size_limit": 8192, "write_batch_size": 512},
    ],
)
def test_files_are_written_as_the_properties_say(both: Both, arguments: dict[str, Any]) -> None:
    both.same(lambda lib: lib.write(ROWS, writer_properties=properties(lib, **arguments)))
    assert both.same_rows().num_rows == 5000
    theirs, ours = (footer(lib).row_group(0).column(0) for lib in both.libraries)
    assert ours.compression == theirs.compression
    if "max_row_group_size" in arguments:
        assert footer(both.ours).num_row_groups == 5


def test_columns_have_properties_of_their_own(both: Both) -> None:
    def by_column(lib: Library) -> Any:
        column = lib.module.ColumnProperties
        bloom = lib.module.BloomFilterProperties(True, fpp=0.01, ndv=5000)
        chosen = {
            "id": column(dictionary_enabled=False, encoding="DELTA_BINARY_PACKED", bloom_filter_properties=bloom),
            "name": column(statistics_enabled="NONE"),
            "part.a": column(dictionary_enabled=False),
            "nosuch": column(dictionary_enabled=False),
        }
        return properties(lib, default_column_properties=column(dictionary_enabled=True), column_properties=chosen)

    both.write(ROWS.slice(0, 0))
    both.ours.write(ROWS, mode="append", writer_properties=by_column(both.ours))
    assert both.ours.rows().num_rows == 5000
    columns = {column.path_in_schema: column for column in map(footer(both.ours).row_group(0).column, range(3))}
    assert "DELTA_BINARY_PACKED" in columns["id"].encodings
    assert columns["name"].has_dictionary_page or "RLE_DICTIONARY" in columns["name"].encodings
    assert not columns["name"].is_stats_set
    assert "RLE_DICTIONARY" not in columns["part.a"].encodings


@pytest.mark.parametrize(
    "arguments",
    [
        {"compression": "nosuch"},
        {"compression": "ZSTD", "compression_level": 23},
        {"compression": "SNAPPY", "compression_level": 3},
        {"compression_level": 3},
    ],
)
def test_properties_that_cannot_be_are_refused(both: Both, arguments: dict[str, Any]) -> None:
    both.same(lambda lib: properties(lib, **arguments))


def test_filters_and_columns_that_cannot_be_are_refused(both: Both) -> None:
    both.same(lambda lib: lib.module.BloomFilterProperties(True, fpp=1.0))
    both.same(lambda lib: lib.module.ColumnProperties(dictionary_enabled=True, encoding="PLAIN"))
    both.same(lambda lib: str(properties(lib, compression="ZSTD")), exactly=False)
    both.same(lambda lib: properties(lib, compression="zstd").compression, exactly=True)
