"""Maker: makes a table version by version through a catalog, and says which rows it then has; the registry of kinds."""

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from deltalakedb.catalog.catalog import Catalog
from deltalakedb.catalog.entries import require_table
from deltalakedb.log.protocol.actions import Action, AddFile, DeletionVector, Metadata, RemoveFile  # fmt: skip
from deltalakedb.mirror.detach import detach
from deltalakedb.store.names import parse_table_name

Steps = Iterator[pa.Table]
KINDS: dict[str, Callable[["Maker"], Steps]] = {}


def kind(steps: Callable[["Maker"], Steps]) -> Callable[["Maker"], Steps]:
    KINDS[steps.__name__] = steps
    return steps


@dataclass
class Maker:
    """One table of a catalog, and the commits that a kind makes of it."""

    catalog: Catalog
    name: str
    path: Path

    def create(self, schema: str, partition_by: Sequence[str] = (), **properties: str) -> None:
        values = {f"delta.{key.replace('__', '.')}": value for key, value in properties.items()}
        self.catalog.create_table(self.name, schema, partition_by, location=self.path, properties=values)

    def append(self, rows: pa.Table, **options: Any) -> None:
        with self.catalog.begin() as tx:
            tx.write(self.name, rows, mode="append", **options)

    def overwrite(self, rows: pa.Table) -> None:
        with self.catalog.begin() as tx:
            tx.write(self.name, rows, mode="overwrite")

    def actions(self, *actions: Action, operation: str = "WRITE", read: Any = None) -> None:
        with self.catalog.begin() as tx:
            tx.commit_actions(self.name, actions, read=read, operation=operation)

    def set_properties(self, **properties: str) -> None:
        values = {f"delta.{key.replace('__', '.')}": value for key, value in properties.items()}
        self.catalog.set_properties(self.name, values)

    def detach(self) -> None:
        with self.catalog.store.read() as conn:
            row = require_table(conn, parse_table_name(self.name))
        detach(self.catalog.store, row, self.catalog.mirror)

    @property
    def metadata(self) -> Metadata:
        return self.catalog.table(self.name)._snapshot.metadata

    def files(self) -> list[AddFile]:
        """The adds of the live files, oldest first, as the mirror has them."""
        found: dict[str, AddFile] = {}
        for log in sorted((self.path / "_delta_log").glob("*.json")):
            for line in log.read_text().splitlines():
                action = json.loads(line)
                if "add" in action:
                    found[action["add"]["path"]] = _add(action["add"])
                elif "remove" in action and "deletionVector" not in action["remove"]:
                    found.pop(action["remove"]["path"], None)
        return list(found.values())

    def data_file(self, rows: pa.Table, *, data_change: bool = True, folder: str = "") -> AddFile:
        """A Parquet file in the table's folder that no commit names yet."""
        path = f"{folder}{uuid.uuid4()}.parquet"
        (self.path / path).parent.mkdir(exist_ok=True)
        pq.write_table(rows, self.path / path)
        stats = json.dumps({"numRecords": rows.num_rows})
        return AddFile(path, {}, (self.path / path).stat().st_size, 1_700_000_000_000, data_change, stats)


def _add(value: Mapping[str, Any]) -> AddFile:
    vector = value.get("deletionVector")
    return AddFile(
        value["path"], value["partitionValues"], value["size"], value["modificationTime"], value["dataChange"],
        value.get("stats"), deletion_vector=None if vector is None else DeletionVector(
            vector["storageType"], vector["pathOrInlineDv"], vector["sizeInBytes"], vector["cardinality"],
            vector.get("offset"),
        ),
    )  # fmt: skip


def remove(file: AddFile, *, data_change: bool = True) -> RemoveFile:
    return RemoveFile(
        file.path, data_change, 1_700_000_000_000, True, file.partition_values, file.size,
        deletion_vector=file.deletion_vector,
    )  # fmt: skip


def together(*tables: pa.Table) -> pa.Table:
    return pa.concat_tables(tables, promote_options="default")


def numbers(*ids: int) -> pa.Table:
    names = [f"name {number}" for number in ids]
    amounts = [None if number % 3 == 0 else number / 4 for number in ids]
    return pa.table({"id": pa.array(ids, pa.int64()), "name": names, "amount": pa.array(amounts, pa.float64())})


NOTHING = numbers().slice(0, 0).cast(pa.schema({"id": pa.int64(), "name": pa.string(), "amount": pa.float64()}))
