"""DeltaTable: `deltalake`'s class of the same name, on a log kept in SQL or in files."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping

from .addresses import locate
from .catalog import Catalog
from .lazy import lazy_names
from .names import parse_table_name
from .registered import require_table
from .store import cuts
from .tables.sql_backing import SqlBacking
from .tables.upkeep import UpkeepOfTable

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


class DeltaTable(UpkeepOfTable):
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
        """Open `deltasql://...?table=ns.name`, or with DL_CATALOG set a table by its name or its location.

        `without_files`, `log_buffer_size` and `skip_stats` are accepted as in `deltalake`, and have no effect.
        """
        ignored = {"without_files": without_files, "log_buffer_size": log_buffer_size, "skip_stats": skip_stats}
        for option, given in ignored.items():
            if given:
                warnings.warn(f"'{option}' is deprecated and ignored", DeprecationWarning, stacklevel=2)
        catalog, name = locate(os.fspath(table_uri))
        try:
            self._backing, self._snapshot = SqlBacking.open(catalog, name, storage_options)
            if version is not None:
                self.load_as_version(version)
        except BaseException:
            catalog.close()
            raise

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
        table._backing = SqlBacking(catalog, row)
        # Nothing that early is kept, or a gap lies there: the reader says what there is.
        known = None if row.mode == "follower" else version
        table._snapshot = table._backing.snapshot(table._backing.version_at(at_ms) if known is None else known)
        return table
