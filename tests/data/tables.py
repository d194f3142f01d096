"""Tables made of our data files and a log written by hand, so that other readers can judge them."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from deltalakedb.data import arrow_to_schema, read_files, write_files
from deltalakedb.log.protocol.actions import Action, AddFile, Format, Metadata, Protocol
from deltalakedb.log.protocol.commit import render_commit
from deltalakedb.log.protocol.rows import adds_to_batch
from deltalakedb.log.schema.types import StructType
from deltalakedb.storage.interface import Storage
from deltalakedb.storage.location import open_storage


@dataclass
class WrittenTable:
    """A table that grows by `append`; its `_delta_log` is there for others, ours are asked with the list of files."""

    path: Path
    schema: StructType
    partition_columns: Sequence[str] = ()
    configuration: Mapping[str, str | None] = field(default_factory=dict)
    adds: list[AddFile] = field(default_factory=list)
    version: int = -1

    def __post_init__(self) -> None:
        (self.path / "_delta_log").mkdir(parents=True)
        self._commit([_protocol(self.schema, self.configuration), self._metadata()])

    @property
    def storage(self) -> Storage:
        return open_storage(str(self.path))

    def append(self, data: Any, **options: Any) -> list[AddFile]:
        adds = write_files(
            data,
            storage=self.storage,
            schema=self.schema,
            partition_columns=self.partition_columns,
            configuration=self.configuration,
            **options,
        )
        self._commit(adds)
        self.adds += adds
        return adds

    def read(self, **options: Any) -> pa.Table:
        reader = read_files(
            adds_to_batch(self.adds),
            storage=self.storage,
            schema=self.schema,
            partition_columns=self.partition_columns,
            configuration=self.configuration,
            **options,
        )
        table = reader.read_all()
        table.validate(full=True)
        return table

    def _commit(self, actions: Sequence[Action]) -> None:
        self.version += 1
        name = f"{self.version:020d}.json"
        (self.path / "_delta_log" / name).write_bytes(render_commit(actions, fenced=False))

    def _metadata(self) -> Metadata:
        schema_string = self.schema.to_json()
        columns = tuple(self.partition_columns)
        return Metadata(str(uuid.uuid4()), Format("parquet", {}), schema_string, columns, self.configuration)


def _protocol(schema: StructType, configuration: Mapping[str, str | None]) -> Protocol:
    if '"timestamp_ntz"' in schema.to_json():  # at any depth
        return Protocol(3, 7, ("timestampNtz",), ("timestampNtz",))
    return Protocol(2, 5) if configuration.get("delta.columnMapping.mode") else Protocol(1, 2)


def new_table(path: Path, data: Any, partition_columns: Sequence[str] = (), **configuration: str) -> WrittenTable:
    """A table with the schema of the data, and the data in it; `delta__x=` sets the property `delta.x`."""
    properties = {name.replace("__", "."): value for name, value in configuration.items()}
    table = WrittenTable(path, arrow_to_schema(data.schema), partition_columns, properties)
    table.append(data)
    return table
