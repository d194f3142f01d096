"""Reads Delta tables as Iceberg clients do, each in its own way, and brings rows into one form."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import duckdb
import polars as pl
import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog

from deltalakedb.exceptions import MissingFileError

Rows: TypeAlias = list[str]
Read: TypeAlias = Callable[[str, int | None], Rows]
"""Reads a table by its name, at a snapshot or the newest one."""


def rows_of(table: pa.Table) -> Rows:
    """Rows in an order of their own, columns by name."""
    return sorted(repr(_plain(row)) for row in table.to_pylist())


def _plain(value: Any) -> Any:
    """A value as all clients return it."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in sorted(value.items())}
    if isinstance(value, list):
        # Maps come as pairs, in tuples or in mappings.
        pairs = [
            tuple(item.values()) if isinstance(item, dict) and set(item) == {"key", "value"} else item for item in value
        ]
        return [_plain(list(item) if isinstance(item, tuple) else item) for item in pairs]
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.UTC).isoformat()
    return value


class Clients:
    """The clients that plan by themselves, and PyIceberg with plans of the catalog."""

    def __init__(self, uri: str, duck: duckdb.DuckDBPyConnection) -> None:
        self.itself = RestCatalog("lake", uri=uri, **{"scan-planning-mode": "client"})
        self.served = RestCatalog("lake", uri=uri, **{"scan-planning-mode": "server"})
        self.duck = duck
        self.reads: dict[str, Read] = {
            "PyIceberg": lambda name, snapshot: self._pyiceberg(self.itself, name, snapshot),
            "PyIceberg, planned by the catalog": lambda name, snapshot: self._pyiceberg(self.served, name, snapshot),
            "DuckDB": self._duckdb,
            "Polars": self._polars,
        }

    def _pyiceberg(self, catalog: RestCatalog, name: str, snapshot: int | None) -> Rows:
        return rows_of(catalog.load_table(name).scan(snapshot_id=snapshot).to_arrow())

    def _duckdb(self, name: str, snapshot: int | None) -> Rows:
        namespace, _, table = name.partition(".")
        at = "" if snapshot is None else f" at (version => {snapshot})"
        return rows_of(self.duck.sql(f'select * from lake."{namespace}"."{table}"{at}').to_arrow_table())

    def _polars(self, name: str, snapshot: int | None) -> Rows:
        table = self.itself.load_table(name)
        return rows_of(pl.scan_iceberg(table, snapshot_id=snapshot).collect().to_arrow())

    def snapshots(self, name: str) -> dict[int, int]:
        """The snapshots of a table by version."""
        metadata = self.itself.load_table(name).metadata
        found = {}
        for item in metadata.snapshots:
            assert item.summary is not None
            found[int(item.summary.additional_properties["delta.version"])] = item.snapshot_id
        return found

    def differences(self, name: str, rows_at: Callable[[int], pa.Table]) -> Iterator[tuple[str, str]]:
        """What each client reads otherwise than Delta readers, at each version and at the newest: the client, and what.

        Where a version has lost files, so that Delta readers fail, clients have to fail, too.
        """
        snapshots = self.snapshots(name)
        for version, snapshot in [*snapshots.items(), (max(snapshots), None)]:
            try:
                expected = rows_of(rows_at(version))
            except MissingFileError:
                expected = None
            for client, read in self.reads.items():
                try:
                    found = read(name, snapshot)
                except Exception as error:  # each client has its own; all are reported together
                    if expected is not None:
                        yield client, f"version {version}: {type(error).__name__}: {str(error)[:200]}"
                else:
                    if found != expected:
                        yield client, f"version {version}: {found[:3]}, not {expected and expected[:3]}"
