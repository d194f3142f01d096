"""Iceberg clients read Delta tables with random histories as Delta readers do, at every version."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from deltalakedb import DeltaTable, write_deltalake
from deltalakedb.serve.server import Endpoint
from tests.fixtures.sizes import every, sized
from tests.iceberg.delta.reading import Clients
from tests.iceberg.served import address_of

COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "n": (pa.int32(), [-(2**31), 0, 7, None]),
    "x": (pa.float64(), [-1.5, 0.0, 1e300, None]),
    "text": (pa.string(), ["", "ä b", "z" * 50, None]),
    "price": (pa.decimal128(12, 2), [Decimal("-0.01"), Decimal("12345.60"), None]),
    "day": (pa.date32(), [dt.date(1969, 12, 31), dt.date(2024, 2, 29), None]),
    "at": (pa.timestamp("us", "UTC"), [dt.datetime(2024, 1, 1, 0, 0, 0, 123456, dt.UTC), None]),
    "local": (pa.timestamp("us"), [dt.datetime(1900, 1, 1, 0, 0, 0, 1), None]),
    "tags": (pa.list_(pa.string()), [["a", None], [], None]),
    "nest": (pa.struct({"a": pa.int64(), "b": pa.struct({"c": pa.string()})}), [{"a": 1, "b": {"c": "d"}}, None]),
}
KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "p": (pa.string(), ["k 0", "50%", "ü"]),
    "q": (pa.int64(), [-1, 2**40]),
}
"""Columns to partition by. PyIceberg reads no plan with a null as a partition value, so they have none."""


class History:
    """A table that lives at random."""

    def __init__(self, address: str, clients: Clients, seed: int) -> None:
        self.address, self.clients = address, clients
        self.random = random.Random(seed)
        self.last_id = 0
        self.begin()

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(self.address)

    def begin(self) -> None:
        """Other columns and other partitions, with the same names or not."""
        self.columns = self.random.sample(list(COLUMNS), self.random.randint(1, 4))
        self.keys = self.random.sample(list(KEYS), self.random.randint(0, 2))
        properties = {"delta.enableDeletionVectors": "true"} if self.random.random() < 0.5 else {}
        options: dict[str, Any] = {"schema_mode": "overwrite"} if self.last_id else {"configuration": properties}
        write_deltalake(self.address, self.rows(), mode="overwrite", partition_by=self.keys, **options)

    def rows(self) -> pa.Table:
        count = self.random.randint(1, 6)
        ids = pa.array(range(self.last_id + 1, self.last_id + count + 1), pa.int64())
        self.last_id += count
        kinds = {name: (COLUMNS | KEYS)[name] for name in [*self.columns, *self.keys]}
        values = {
            name: pa.array([self.random.choice(choices) for _ in range(count)], kind)
            for name, (kind, choices) in kinds.items()
        }
        return pa.table({"id": ids, **values})

    def append(self) -> None:
        write_deltalake(self.address, self.rows(), mode="append", partition_by=self.keys)

    def append_by_a_client(self) -> None:
        table = self.clients.itself.load_table("shop.t")
        if table.metadata.format_version == 2:  # PyIceberg writes no other
            table.append(self.rows())

    def add_a_column(self) -> None:
        free = [name for name in COLUMNS if name not in self.columns]
        self.columns += self.random.sample(free, min(1, len(free)))
        rows = self.rows()
        write_deltalake(self.address, rows, mode="append", schema_mode="merge", partition_by=self.keys)

    def delete(self) -> None:
        self.table.delete(f"id % {self.random.randint(2, 5)} = 0")

    def update(self) -> None:
        self.table.update({"id": "id + 1000"}, predicate=f"id % {self.random.randint(2, 5)} = 1 and id < 1000")

    def compact(self) -> None:
        self.table.optimize.compact()

    def restore(self) -> None:
        if self.table.version() == 0:
            return
        self.table.restore(self.random.randrange(self.table.version()))
        schema, metadata = self.table.schema().to_arrow(), self.table.metadata()
        self.keys = list(metadata.partition_columns)
        self.columns = [name for name in pa.schema(schema).names if name not in ("id", *self.keys)]

    def live(self, steps: int) -> None:
        actions: list[Callable[[], None]] = [
            self.append, self.append, self.append_by_a_client, self.add_a_column, self.delete, self.delete,
            self.update, self.compact, self.restore, self.begin,
        ]  # fmt: skip
        for _ in range(steps):
            self.random.choice(actions)()


@pytest.mark.parametrize("seed", every(4, range(sized(8, 200))))
@pytest.mark.parametrize("endpoint", ["sqlite"], indirect=True)
def test_clients_read_random_histories(
    seed: int, endpoint: Endpoint, uri: str, duck: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    clients = Clients(uri, duck)
    history = History(address_of(endpoint, "shop.t", tmp_path / "lake"), clients, seed)
    history.live(10)
    found = clients.differences(
        "shop.t", lambda version: DeltaTable(history.address, version=version).to_pyarrow_table()
    )
    assert list(found) == []
