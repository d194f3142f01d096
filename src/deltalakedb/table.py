"""DeltaTable: `deltalake`'s class of the same name, on a log kept in SQL or in files."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping

from .addresses import PathAddress, resolve
from .arguments import check_settings
from .catalog import Catalog
from .exceptions import FilesPurgedError, TableNotFoundError, UnknownLocationError
from .instants import to_iso
from .lazy import lazy_names
from .names import parse_table_name
from .registered import require_table
from .store import cuts, registry
from .store.connection import LIVE
from .tables.creation import CreationOfTable
from .tables.file_backing import FileBacking
from .tables.sql_backing import SqlBacking

__getattr__ = lazy_names(
    __name__,
    {
        "DeltaTableConfig": "deltalakedb.answers",
        "Metadata": "deltalakedb.answers",
        "ProtocolVersions": "deltalakedb.answers",
        "TableAlterer": "deltalakedb.alter",
        "TableMerger": "deltalakedb.merge",
        "TableOptimizer": "deltalakedb.optimize",
    },
)


def _to_text(table_uri: object) -> str | os.PathLike[str]:
    """An address as it is; what is none is a path as `deltalake` reads it, and nothing will be there."""
    return table_uri if isinstance(table_uri, str | os.PathLike) else str(table_uri)


class DeltaTable(CreationOfTable):
    """A table at one version; `update_incremental` moves it to the newest, `load_as_version` to any other."""

    def __init__(
        self,
        table_uri: str | os.PathLike[str],
        version: int | None = None,
        storage_options: Mapping[str, str] | None = None,
        without_files: bool = False,
        log_buffer_size: int | None = None,
        skip_stats: bool = False,
    ) -> None:
        """Open a path or URL, `deltasql://...?table=ns.name`, or with DL_CATALOG set a name.

        `without_files`, `log_buffer_size` and `skip_stats` are accepted as in `deltalake`, and have no effect.
        """
        ignored = {"without_files": without_files, "log_buffer_size": log_buffer_size, "skip_stats": skip_stats}
        check_settings(storage_options)
        if isinstance(version, str):
            raise TypeError("'str' object cannot be interpreted as an integer; `load_as_version` takes times")
        for option, given in ignored.items():
            if given:
                warnings.warn(f"'{option}' is deprecated and ignored", DeprecationWarning, stacklevel=2)
        address = resolve(_to_text(table_uri), storage_options)
        if isinstance(address, PathAddress):
            self._open_files(address, version, storage_options)
            return
        try:
            self._backing, self._snapshot = SqlBacking.open(address.catalog, address.name, storage_options)
            if version is not None:
                self.load_as_version(version)
        except BaseException:
            address.catalog.close()
            raise

    def _open_files(self, address: PathAddress, version: int | None, storage_options: Mapping[str, str] | None) -> None:
        self._backing = FileBacking(address.location, storage_options)
        try:
            if version is None:
                self._snapshot = self._backing.newest()
            else:
                self.load_as_version(version)
        except TableNotFoundError:
            raise address.not_found() from None

    @staticmethod
    def is_deltatable(table_uri: str, storage_options: Mapping[str, str] | None = None) -> bool:
        """Whether there is a table at an address that `DeltaTable` takes. Nothing is registered."""
        try:
            address = resolve(_to_text(table_uri), storage_options, registers=False)
        except UnknownLocationError:
            return False
        if isinstance(address, PathAddress):
            return FileBacking(address.location, storage_options).exists()
        with address.catalog as catalog, catalog.store.read(single=True) as conn:
            return registry.resolve_table(conn, address.name.namespace, address.name.name) is not None

    @classmethod
    def from_catalog(
        cls,
        catalog: Catalog,
        name: str,
        *,
        version: int | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> DeltaTable:
        """Open a table of a catalog that is open already."""
        table = cls.__new__(cls)
        table._backing, table._snapshot = SqlBacking.open(catalog, parse_table_name(name), storage_options)
        if version is not None:
            table.load_as_version(version)
        return table

    @classmethod
    def from_view(cls, catalog: Catalog, name: str, at_ms: int) -> DeltaTable:
        """Open the table that had this name at an instant, at the version it had then."""
        table = cls.__new__(cls)
        with catalog.store.read() as conn:
            row = require_table(conn, parse_table_name(name), at_ms=at_ms)
            version = cuts.version_at(conn, row.table_id, at_ms)
            head = registry.read_head(conn, row.table_id)
        if head is not None and head.vacuumed_version == LIVE:
            raise FilesPurgedError(
                f"there was a table {row.full_name} at {to_iso(at_ms)}, and it was dropped since: its files are "
                "deleted. Its history can still be read with `dl sql`"
            )
        table._backing = SqlBacking(catalog, row)
        # Nothing that early is kept, or a gap lies there: the reader says what there is.
        known = None if row.mode == "follower" else version
        table._snapshot = table._backing.snapshot(table._backing.reader.version_at(at_ms) if known is None else known)
        return table
