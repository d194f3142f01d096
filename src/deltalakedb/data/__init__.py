"""The data plane: Arrow in and out, Parquet files, their statistics."""

from deltalakedb.data.arrow_types import arrow_to_schema
from deltalakedb.data.conform import check_schema
from deltalakedb.data.sources import prepare_data
from deltalakedb.data.storage import DataStorage, LocalDataStorage, ObjectDataStorage
from deltalakedb.data.writer import write_files

__all__ = [
    "DataStorage",
    "LocalDataStorage",
    "ObjectDataStorage",
    "arrow_to_schema",
    "check_schema",
    "prepare_data",
    "write_files",
]
