"""Iceberg clients read the same rows as Delta clients of every kind of Delta table, at every version."""

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from deltalakedb.serve.server import Endpoint
from tests.iceberg.delta.reading import Clients, rows_of
from tests.interop.kinds import KINDS
from tests.interop.maker import Maker


@pytest.mark.parametrize("name", KINDS)
def test_clients_read_every_version(
    name: str, endpoint: Endpoint, uri: str, duck: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    catalog = endpoint.catalog
    catalog.create_namespace("shop")
    clients = Clients(uri, duck)
    table = Maker(catalog, "shop.it", tmp_path / "lake" / "it")
    versions: dict[int, list[str]] = {}
    wrong: list[str] = []

    if name == "partitioned":  # PyIceberg cannot read a plan with a partition that is null
        del clients.reads["PyIceberg, planned by the catalog"]

    def compare(client: str, version: int, snapshot: int | None) -> None:
        when = "then" if snapshot is None else "later"
        try:
            rows = clients.reads[client](table.name, snapshot)
        except Exception as error:  # each client has its own; all are reported together
            wrong.append(f"{client} of version {version}, {when}: {type(error).__name__}: {str(error)[:300]}")
        else:
            if rows != versions[version]:
                wrong.append(f"{client} of version {version}, {when}: {rows[:3]}, not {versions[version][:3]}")

    for rows in KINDS[name](table):
        version = len(versions)
        versions[version] = rows_of(rows if isinstance(rows, pa.Table) else pa.table(rows))
        for client in clients.reads:
            compare(client, version, None)
    snapshots = clients.snapshots(table.name)
    assert list(snapshots) == list(versions)
    for version, snapshot in snapshots.items():
        for client in clients.reads:
            compare(client, version, snapshot)
    assert wrong == []
