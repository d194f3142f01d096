"""What a table's log must say, worked out by other means: replay of every commit in plain Python, and `deltalake`."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from deltalakedb.files import FileSnapshot
from deltalakedb.log.protocol.codec import from_sql_text

Key = tuple[str, str]


def replayed(path: Path, version: int) -> dict[Key, dict[str, Any]]:
    """The live adds at a version, from the JSON commits alone; nothing of the package under test is used."""
    live: dict[Key, dict[str, Any]] = {}
    for number in range(version + 1):
        for line in (path / "_delta_log" / f"{number:020d}.json").read_text("utf-8").splitlines():
            for kind, action in json.loads(line).items():
                if kind == "add":
                    live[_key(action)] = action
                elif kind == "remove":
                    live.pop(_key(action), None)
    return live


def _key(action: dict[str, Any]) -> Key:
    vector = action.get("deletionVector")
    if not vector:
        return action["path"], ""
    offset = "" if vector.get("offset") is None else f"@{vector['offset']}"
    return action["path"], f"{vector['storageType']}{vector['pathOrInlineDv']}{offset}"


def files_of(snapshot: FileSnapshot) -> dict[Key, dict[str, Any]]:
    """The snapshot's files as the JSON values of their adds, null fields left out."""
    found: dict[Key, dict[str, Any]] = {}
    rows = snapshot.files().read_all().to_pylist()
    for row in rows:
        action = {
            "path": from_sql_text(row["path"]),
            "partitionValues": json.loads(row["partition_values"]),
            "size": row["size"],
            "modificationTime": row["modification_time"],
            "stats": row["stats"] and from_sql_text(row["stats"]),
            "tags": row["tags"] and json.loads(row["tags"]),
            "deletionVector": row["deletion_vector"] and json.loads(row["deletion_vector"]),
            "baseRowId": row["base_row_id"],
            "defaultRowCommitVersion": row["default_row_commit_version"],
            "clusteringProvider": row["clustering_provider"],
        }
        found[_key(action)] = {name: value for name, value in action.items() if value is not None}
    assert len(found) == len(rows), "a file key is listed twice"
    return found


def without_data_change(adds: dict[Key, dict[str, Any]]) -> dict[Key, dict[str, Any]]:
    """Adds as `files_of` shows them: a checkpoint may change dataChange, and cannot tell null from absent."""
    return {
        key: {name: value for name, value in add.items() if name != "dataChange" and value is not None}
        for key, add in adds.items()
    }


def deltalake_paths(path: Path, version: int) -> list[str]:
    actions = pa.table(DeltaTable(path, version=version).get_add_actions(flatten=True))
    paths: list[str] = actions["path"].to_pylist()
    return sorted(paths)
