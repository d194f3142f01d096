"""Tables whose rows DuckDB inserted and deleted through the REST catalog: its position deletes and its vectors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from deltalakedb.serve.server import Endpoint
from tests.iceberg.mirror.judging import check, check_every_commit, folder_of, last
from tests.iceberg.served import duck, pyiceberg, uri  # noqa: F401  (fixtures)


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[Endpoint]:
    """A served catalog; it needs no token."""
    with Endpoint(
        str(tmp_path / "catalog.db"), token=None, bridge=False, iceberg=True, warehouse=str(tmp_path / "lake")
    ) as served:
        yield served


@pytest.mark.parametrize("version", [2, 3])
def test_deletes_of_duckdb(duck: duckdb.DuckDBPyConnection, endpoint: Endpoint, version: int) -> None:  # noqa: F811
    duck.execute("create schema lake.shop")
    duck.execute(f"create table lake.shop.t (id bigint, s varchar) with ('format-version' = {version})")
    duck.execute("insert into lake.shop.t select range, 'x' || range from range(100)")
    check(endpoint.catalog)
    duck.execute("delete from lake.shop.t where id % 7 = 0")
    check(endpoint.catalog, refusing=("pyarrow",))
    duck.execute("delete from lake.shop.t where id % 5 = 0")
    duck.execute("update lake.shop.t set s = 'new' where id = 1")
    check(endpoint.catalog, refusing=("pyarrow",))
    check_every_commit(endpoint.catalog)
    assert last(folder_of(endpoint.catalog), "protocol")["readerFeatures"] == ["deletionVectors"]
