"""The Delta transaction log in `_delta_log`, on local disk or in an object store."""

from deltalakedb.files.discovery import find_tables
from deltalakedb.files.reader import FileTxnLogReader
from deltalakedb.files.snapshot import FileSnapshot
from deltalakedb.files.writer import FileTxnLogWriter
from deltalakedb.storage.interface import Storage
from deltalakedb.storage.location import canonical_location, open_storage

__all__ = [
    "FileSnapshot",
    "FileTxnLogReader",
    "FileTxnLogWriter",
    "Storage",
    "canonical_location",
    "find_tables",
    "open_storage",
]
