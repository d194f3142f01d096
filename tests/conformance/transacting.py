"""What the tests of transactions share: a catalog with a warehouse, small data, and what lies on the disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

import deltalakedb
from deltalakedb import Catalog, DeltaTable
from deltalakedb.log.protocol.actions import AddFile, RemoveFile
from deltalakedb.runtime import steps

_TABLES = (
    "dl_tables",
    "dl_table_heads",
    "dl_transactions",
    "dl_table_versions",
    "dl_add_files",
    "dl_remove_files",
    "dl_metadata_updates",
    "dl_protocol_updates",
    "dl_txn_actions",
    "dl_file_bounds",
    "dl_audit",
    "dl_namespaces",
)


class StopAt:
    """Raises an error at a step, once, while it is armed; steps keep their observers for the life of the process."""

    def __init__(self, step: str, error: BaseException) -> None:
        self._step, self._error, self._armed = step, error, True
        steps.observe(self._reached)

    def __enter__(self) -> StopAt:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._armed = False

    def _reached(self, step: str) -> None:
        if self._armed and step == self._step:
            self._armed = False
            raise self._error


def open_catalog(target: str, folder: Path, **config: Any) -> Catalog:
    return deltalakedb.connect(target, warehouse=str(folder / "lake"), actor="ann", **config)


def numbers(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def days(*rows: tuple[int, str]) -> pa.Table:
    return pa.table({"id": pa.array([r[0] for r in rows], pa.int64()), "day": pa.array([r[1] for r in rows])})


def ids_of(table: DeltaTable) -> list[int]:
    return sorted(table.to_pyarrow_table(columns=["id"]).column("id").to_pylist())


def ids_in(catalog: Catalog, name: str) -> list[int]:
    return ids_of(catalog.table(name))


def add(path: str, low: int = 0, high: int = 9, *, day: str | None = None, data_change: bool = True) -> AddFile:
    """An add action of a file that nobody reads."""
    stats = {"numRecords": 1, "minValues": {"id": low}, "maxValues": {"id": high}, "nullCount": {"id": 0}}
    values = {} if day is None else {"day": day}
    return AddFile(path, values, 100, 1_700_000_000_000, data_change, json.dumps(stats))


def remove(path: str, *, day: str | None = None, data_change: bool = True) -> RemoveFile:
    values = {} if day is None else {"day": day}
    return RemoveFile(path, data_change, 1_700_000_000_000, True, values, 100)


def data_files(folder: Path) -> list[str]:
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*.parquet"))


def log_files(folder: Path) -> list[str]:
    return sorted(file.name for file in (folder / "_delta_log").glob("*.json"))


def operations(catalog: Catalog, name: str) -> list[str]:
    """Oldest first."""
    return [entry["operation"] for entry in reversed(catalog.history(name))]


def row_counts(catalog: Catalog) -> dict[str, int]:
    """How many rows every table of the log has: to see that nothing at all was written."""
    return {name: catalog.sql(f"select count(*) as n from {name}").column("n")[0].as_py() for name in _TABLES}
