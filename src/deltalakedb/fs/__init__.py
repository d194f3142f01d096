"""A table's folder as a PyArrow file system, under the names of `deltalake.fs`."""

from deltalakedb.fs.fs_handler import DeltaStorageHandler

__all__ = ["DeltaStorageHandler"]
