"""Unmodified Delta readers, each against PyIceberg's rows of the same table."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa

import deltalakedb
from deltalakedb import Catalog
from deltalakedb.iceberg.describing import load_version
from deltalakedb.iceberg.mirror.mirroring import MirroredTable
from deltalakedb.iceberg.opening import open_loaded
from tests.fixtures.readers import Deltalake, DeltalakePyarrow, DuckDB, Polars, Reading, Refused, asked, sort_rows

PLAIN = ("pyarrow", "polars")
"""Readers that refuse column mapping and type widening, and `pyarrow` deletion vectors too."""

BY_NAME = ("pyarrow", "polars", "scan", "datafusion", "duckdb")
"""Readers that find columns by their names only."""


class DataFusion(Deltalake):
    """The query builder of `deltalake`."""

    def _rows(self, table: deltalake.DeltaTable) -> pa.Table:
        return asked(lambda: self._select(table))

    def _select(self, table: deltalake.DeltaTable) -> pa.Table:
        query = deltalake.QueryBuilder().register("t", table)
        return pa.table(query.execute("select * from t").read_all())


class Ours:
    """The reader of this package, by the path."""

    def latest(self, path: Path) -> Reading:
        table = deltalakedb.DeltaTable(str(path))
        return Reading(table.version(), table.to_pyarrow_table())


READERS: dict[str, Any] = {
    "pyarrow": DeltalakePyarrow(),
    "scan": Deltalake(),
    "datafusion": DataFusion(),
    "polars": Polars(),
    "duckdb": DuckDB(),
    "ours": Ours(),
}


def mirror(catalog: Catalog, name: str = "shop.t") -> tuple[Path, MirroredTable]:
    """Mirrors a table; returns its folder and what was done."""
    mirrored = catalog.mirror_iceberg(name)
    return folder_of(catalog, name), mirrored


def folder_of(catalog: Catalog, name: str = "shop.t") -> Path:
    return Path(catalog.iceberg(name).location().removeprefix("file://"))


def check(catalog: Catalog, name: str = "shop.t", refusing: Iterable[str] = ()) -> None:
    """Mirrors a table and asks every reader for its rows; those in `refusing` read nothing rather than wrong rows."""
    assert _check(catalog, name) == set(refusing)


def _rows(table: pa.Table, schema: pa.Schema) -> tuple[list[str], list[str]]:
    """The columns and rows in one spelling, in which NaN is equal to itself."""
    plain = sort_rows(table, schema)
    return table.column_names, [repr(row) for row in plain.to_pylist()]


def check_lenient(catalog: Catalog, name: str = "shop.t") -> None:
    """As `check`, and any reader but ours may refuse."""
    assert "ours" not in _check(catalog, name)


def _check(catalog: Catalog, name: str) -> set[str]:
    """Compares what the readers read; returns those that refuse."""
    path, _ = mirror(catalog, name)
    expected = catalog.iceberg(name).scan().to_arrow()
    refusing = set()
    for reader, judge in READERS.items():
        try:
            rows = judge.latest(path).rows
        except Refused:
            refusing.add(reader)
        else:
            assert _rows(rows, expected.schema) == _rows(expected, expected.schema), reader
    return refusing


def check_every_commit(catalog: Catalog, name: str = "shop.t") -> None:
    """Each commit of the log has the rows of the version of the Iceberg table that it names."""
    path = folder_of(catalog, name)
    for number in range(len(commits(path))):
        (version,) = (action["txn"]["version"] for action in actions(path, number) if "txn" in action)
        expected = open_loaded(catalog, load_version(catalog, name, version)).scan().to_arrow()
        rows = deltalakedb.DeltaTable(str(path), version=number).to_pyarrow_table()
        assert _rows(rows, expected.schema) == _rows(expected, expected.schema), (number, version)


def actions(path: Path, version: int) -> list[dict[str, Any]]:
    """The actions of a commit."""
    text = (path / "_delta_log" / f"{version:020}.json").read_text()
    return [json.loads(line) for line in text.splitlines()]


def last(path: Path, kind: str) -> dict[str, Any]:
    """The newest action of a kind."""
    commits = sorted((path / "_delta_log").glob("*.json"))
    found = [action[kind] for n in range(len(commits)) for action in actions(path, n) if kind in action]
    value: dict[str, Any] = found[-1]
    return value


def commits(path: Path) -> dict[str, bytes]:
    """The commits of a log with their content."""
    return {file.name: file.read_bytes() for file in sorted((path / "_delta_log").glob("*.json"))}
