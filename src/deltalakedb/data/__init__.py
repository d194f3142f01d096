"""The data plane: Arrow data in and out, Parquet files, their statistics."""

from deltalakedb.data.arrow_types import arrow_to_schema
from deltalakedb.data.conform import check_schema
from deltalakedb.data.parquet import ParquetOptions
from deltalakedb.data.reader import read_files
from deltalakedb.data.sources import prepare_data
from deltalakedb.data.writer import write_files

__all__ = [
    "ParquetOptions",
    "arrow_to_schema",
    "check_schema",
    "prepare_data",
    "read_files",
    "write_files",
]
