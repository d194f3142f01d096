"""A table's metadata while the updates of one request are applied to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from deltalakedb.iceberg.metadata.schemas import Schema, parse_schema
from deltalakedb.iceberg.metadata.shapes import refuse

LAST_ADDED = -1
"""In place of an id: the schema, spec, sort order or view version that this request added last."""
NO_SNAPSHOT = -1
MAIN = "main"


class TableDraft:
    """The fields of the metadata, and what the updates so far have done to them.

    Nothing in the base is changed: lists and objects are replaced, never edited.
    """

    def __init__(self, fields: Mapping[str, Any], now_ms: int) -> None:
        self.fields = dict(fields)
        self.now_ms = now_ms
        self.changed = False
        self.last_added: dict[str, int] = {}
        """By list (`schemas`, `partition-specs`, `sort-orders`): the id that was added, or found, last."""
        self.snapshots: dict[int, Mapping[str, Any]] = {item["snapshot-id"]: item for item in fields["snapshots"]}
        self.refs: dict[str, Mapping[str, Any]] = dict(fields["refs"])
        self.snapshot_log: list[Mapping[str, Any]] = list(fields["snapshot-log"])
        self.added_snapshots: set[int] = set()
        self.replaced_on_main: set[int] = set()
        """Added snapshots that were the current one at some time during this request."""
        self.removed_snapshots = False
        self._schema: Schema | None = None

    @property
    def format_version(self) -> int:
        return int(self.fields["format-version"])

    @property
    def current_snapshot_id(self) -> int:
        """The id, or NO_SNAPSHOT."""
        snapshot_id = self.fields["current-snapshot-id"]
        return NO_SNAPSHOT if snapshot_id is None else int(snapshot_id)

    @property
    def current_schema(self) -> Schema:
        """The current schema; a request that needs one before it adds one is refused."""
        schema_id = self.fields["current-schema-id"]
        if self._schema is None or self._schema.schema_id != schema_id:
            json = self.find("schemas", "schema-id", schema_id)
            if json is None:
                refuse("Invalid table metadata: there is no current schema")
            self._schema = parse_schema(json, f"schema {schema_id}")
        return self._schema

    def find(self, name: str, id_name: str, item_id: int) -> Mapping[str, Any] | None:
        """The item with an id in one of the metadata's lists."""
        return next((item for item in self.fields[name] if item[id_name] == item_id), None)

    def set(self, name: str, value: object) -> None:
        """Set a field, and record that something has changed."""
        self.fields[name] = value
        self.changed = True

    def append(self, name: str, item: Mapping[str, Any]) -> None:
        """Add an item to one of the metadata's lists."""
        self.set(name, [*self.fields[name], item])

    def resolve(self, item_id: int, name: str, noun: str) -> int:
        """The id itself, or for LAST_ADDED the one that was added last."""
        if item_id != LAST_ADDED:
            return item_id
        if name not in self.last_added:
            refuse(f"Cannot set last added {noun}: no {noun} has been added")
        return self.last_added[name]


Update = Callable[[TableDraft, Mapping[str, Any]], None]
"""Applies one update of a request to the draft."""
