"""The Delta transaction log as `_delta_log` keeps it, on local disk or in an object store."""

from deltalakedb.files.discovery import find_tables
from deltalakedb.files.location import canonical_location
from deltalakedb.files.reader import FileTxnLogReader
from deltalakedb.files.snapshot import FileSnapshot
from deltalakedb.files.storage import Storage, open_storage
from deltalakedb.files.writer import FileTxnLogWriter

__all__ = [
    "FileSnapshot",
    "FileTxnLogReader",
    "FileTxnLogWriter",
    "Storage",
    "canonical_location",
    "find_tables",
    "open_storage",
]
