"""Writes tables; the names and paths are those of `deltalake.writer`."""

from typing import TYPE_CHECKING

from deltalakedb.runtime.lazy import lazy_names

if TYPE_CHECKING:
    from deltalakedb.writer.convert_to import convert_to_deltalake
    from deltalakedb.writer.properties import BloomFilterProperties, ColumnProperties, WriterProperties
    from deltalakedb.writer.writer import write_deltalake

__all__ = [
    "BloomFilterProperties",
    "ColumnProperties",
    "WriterProperties",
    "convert_to_deltalake",
    "write_deltalake",
]

__getattr__ = lazy_names(
    __name__,
    {
        "BloomFilterProperties": "deltalakedb.writer.properties",
        "ColumnProperties": "deltalakedb.writer.properties",
        "WriterProperties": "deltalakedb.writer.properties",
        "convert_to_deltalake": "deltalakedb.writer.convert_to",
        "write_deltalake": "deltalakedb.writer.writer",
    },
)
