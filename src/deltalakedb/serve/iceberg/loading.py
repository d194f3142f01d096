"""What a client gets of a table or view: its metadata, an ETag, and the settings of its storage."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from deltalakedb.iceberg.catalog import LoadedTable
from deltalakedb.iceberg.metadata.normal_form import wire_form
from deltalakedb.serve.iceberg.call import Call, JsonObject, Reply
from deltalakedb.serve.iceberg.errors import Refusal, bad_request
from deltalakedb.serve.iceberg.storage_settings import StorageSettings
from deltalakedb.storage.location import parse_location

SnapshotMode = Literal["all", "refs"]


class TableReplies:
    """Makes replies of loaded tables."""

    def __init__(self, settings: StorageSettings) -> None:
        self._settings = settings

    def loaded(self, call: Call, table: LoadedTable, mode: SnapshotMode = "all") -> Reply:
        """The table's state with its ETag; 304 without a body if that is the state which the client has."""
        config = self._settings.of(call, table.metadata)
        tag = _tag(table, mode, config)
        if tag in _known_tags(call):
            return Reply(304, headers={"ETag": tag})
        body: dict[str, object] = {"metadata": wire_form(table.metadata), "config": dict(config)}
        if table.metadata_location:
            body["metadata-location"] = table.metadata_location
        return Reply(200, body, {"ETag": tag}, loads=table.name)

    def committed(self, call: Call, table: LoadedTable) -> Reply:
        """The table's state after a change."""
        config = self._settings.of(call, table.metadata)
        body = {"metadata-location": table.metadata_location, "metadata": wire_form(table.metadata)}
        return Reply(200, body, {"ETag": _tag(table, "all", config)}, loads=table.name)

    def staged(self, call: Call, table: LoadedTable) -> Reply:
        """A table that exists once the client commits it: it has no metadata file and no ETag."""
        return Reply(
            200, {"metadata": wire_form(table.metadata), "config": dict(self._settings.of(call, table.metadata))}
        )

    def unregistered(self, table: LoadedTable) -> Reply:
        """The last state of a table that the catalog has given up."""
        return Reply(200, {"metadata-location": table.metadata_location, "metadata": wire_form(table.metadata)})


def snapshot_mode(call: Call) -> SnapshotMode:
    """Return which snapshots the client wants: all, or those that branches and tags name."""
    match call.query.get("snapshots", "all").lower():
        case "all":
            return "all"
        case "refs":
            return "refs"
        case _:
            raise bad_request("the parameter snapshots must be all or refs")


def require_metadata_file(table: LoadedTable) -> None:
    """Refuse a table whose metadata file is gone from the local disk: some clients open it.

    The catalog itself does not need the file; looking for one in an object store would cost a request for each load.
    """
    location = parse_location(table.metadata_location)
    if location.scheme == "file" and not Path(location.path).exists():
        raise Refusal(404, "NotFoundException", f"Failed to open input stream for file: {table.metadata_location}")


def _tag(table: LoadedTable, mode: SnapshotMode, config: Mapping[str, str]) -> str:
    state = (table.table_uuid, table.version, table.metadata_location, mode, sorted(config.items()))
    return f'"{hashlib.sha256(repr(state).encode()).hexdigest()[:32]}"'


def _known_tags(call: Call) -> set[str]:
    return {tag.strip().removeprefix("W/") for tag in call.headers.get("if-none-match", "").split(",")}


def view_reply(view: LoadedTable) -> Reply:
    """The view's state."""
    body: JsonObject = {"metadata-location": view.metadata_location, "metadata": view.metadata, "config": {}}
    return Reply(200, body, loads=view.name)
