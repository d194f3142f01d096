"""Writing tables, under the names and paths that `deltalake.writer` has."""

from typing import TYPE_CHECKING

from deltalakedb.lazy import lazy_names

if TYPE_CHECKING:
    from deltalakedb.writer.properties import BloomFilterProperties, ColumnProperties, WriterProperties
    from deltalakedb.writer.writer import write_deltalake

__all__ = [
    "BloomFilterProperties",
    "ColumnProperties",
    "WriterProperties",
    "write_deltalake",
]

__getattr__ = lazy_names(
    __name__,
    {
        "BloomFilterProperties": "deltalakedb.writer.properties",
        "ColumnProperties": "deltalakedb.writer.properties",
        "WriterProperties": "deltalakedb.writer.properties",
        "write_deltalake": "deltalakedb.writer.writer",
    },
)
