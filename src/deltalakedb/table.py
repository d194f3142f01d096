"""DeltaTable: `deltalake`'s class of the same name, on a log kept in SQL or in files."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from types import FunctionType

from deltalakedb.catalog.addresses import PathAddress, resolve
from deltalakedb.catalog.catalog import Catalog
from deltalakedb.catalog.entries import require_table
from deltalakedb.catalog.instants import to_iso
from deltalakedb.exceptions import FilesPurgedError, TableNotFoundError, UnknownLocationError
from deltalakedb.runtime.arguments import check_settings, describe_kind
from deltalakedb.runtime.lazy import lazy_names
from deltalakedb.store import cuts, registry
from deltalakedb.store.connection import LIVE
from deltalakedb.store.names import parse_table_name
from deltalakedb.tables.creation import CreationOfTable
from deltalakedb.tables.file_backing import FileBacking
from deltalakedb.tables.sql_backing import SqlBacking

__getattr__ = lazy_names(
    __name__,
    {
        "DeltaTableConfig": "deltalakedb.tables.answers",
        "Metadata": "deltalakedb.tables.answers",
        "ProtocolVersions": "deltalakedb.tables.answers",
        "TableAlterer": "deltalakedb.alter",
        "TableMerger": "deltalakedb.merge",
        "TableOptimizer": "deltalakedb.optimize",
    },
)


def _own_members(table: type[DeltaTable]) -> type[DeltaTable]:
    """Set the `__qualname__` of every method to `DeltaTable.<name>`, so that argument errors show that class."""
    for part in table.__mro__:
        for name, member in vars(part).items() if part is not object else ():
            if isinstance(member, FunctionType):
                member.__qualname__ = f"{table.__name__}.{name}"
    return table


def _to_text(table_uri: object) -> str | os.PathLike[str]:
    """Return a str or path unchanged and anything else as text, as `deltalake` does; no table will be found there."""
    return table_uri if isinstance(table_uri, str | os.PathLike) else str(table_uri)


@_own_members
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
        """Open a table: a path or URL, `deltasql://...?table=ns.name`, or a name if `DL_CATALOG` is set.

        `without_files`, `log_buffer_size` and `skip_stats` are accepted as in `deltalake`, but have no effect.
        """
        ignored = {"without_files": without_files, "log_buffer_size": log_buffer_size, "skip_stats": skip_stats}
        check_settings(storage_options)
        if version is not None and not isinstance(version, int):
            raise TypeError(
                f"{describe_kind(version)} cannot be interpreted as an integer; `load_as_version` takes times"
            )
        for option, value in ignored.items():
            if value is not None and value is not False:
                warnings.warn(f"The '{option}' parameter is deprecated and ignored.", DeprecationWarning, stacklevel=2)
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
        """Return whether a table exists at an address that `DeltaTable` accepts. Nothing is registered."""
        check_settings(storage_options)
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
        """Open a table of an open catalog."""
        table = cls.__new__(cls)
        table._backing, table._snapshot = SqlBacking.open(catalog, parse_table_name(name), storage_options)
        if version is not None:
            table.load_as_version(version)
        return table

    @classmethod
    def from_view(cls, catalog: Catalog, name: str, at_ms: int) -> DeltaTable:
        """Open the table that had this name at an instant, at its version of that instant."""
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
        # None: nothing that old is kept, or the log has a gap there; the reader then raises the error that explains it.
        pinned_version = None if row.mode == "follower" else version
        table._snapshot = table._backing.snapshot(
            table._backing.reader.version_at(at_ms) if pinned_version is None else pinned_version
        )
        return table


def _name_methods() -> None:
    """Set the `__qualname__` of inherited methods, so that argument errors name DeltaTable."""
    for owner in DeltaTable.__mro__[1:-1]:
        for name, member in vars(owner).items():
            function = getattr(member, "__func__", member)
            if isinstance(function, FunctionType):
                function.__qualname__ = f"{DeltaTable.__qualname__}.{name}"


_name_methods()
