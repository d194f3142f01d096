"""Writes checkpoints of every kind by hand, from actions given as JSON values."""

import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Action = dict[str, Any]

TEXT_MAP = pa.map_(pa.string(), pa.string())
VECTOR = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)
ADD = {
    "path": pa.string(),
    "partitionValues": TEXT_MAP,
    "size": pa.int64(),
    "modificationTime": pa.int64(),
    "dataChange": pa.bool_(),
    "tags": TEXT_MAP,
    "deletionVector": VECTOR,
    "baseRowId": pa.int64(),
    "defaultRowCommitVersion": pa.int64(),
    "clusteringProvider": pa.string(),
    "stats": pa.string(),
}
REMOVE = {
    "path": pa.string(),
    "deletionTimestamp": pa.int64(),
    "dataChange": pa.bool_(),
    "extendedFileMetadata": pa.bool_(),
    "partitionValues": TEXT_MAP,
    "size": pa.int64(),
    "deletionVector": VECTOR,
}
TABLE_ACTIONS = {
    "metaData": pa.struct(
        [
            ("id", pa.string()),
            ("name", pa.string()),
            ("description", pa.string()),
            ("format", pa.struct([("provider", pa.string()), ("options", TEXT_MAP)])),
            ("schemaString", pa.string()),
            ("partitionColumns", pa.list_(pa.string())),
            ("configuration", TEXT_MAP),
            ("createdTime", pa.int64()),
        ]
    ),
    "protocol": pa.struct(
        [
            ("minReaderVersion", pa.int32()),
            ("minWriterVersion", pa.int32()),
            ("readerFeatures", pa.list_(pa.string())),
            ("writerFeatures", pa.list_(pa.string())),
        ]
    ),
    "txn": pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())]),
    "domainMetadata": pa.struct([("domain", pa.string()), ("configuration", pa.string()), ("removed", pa.bool_())]),
    "checkpointMetadata": pa.struct([("version", pa.int64()), ("tags", TEXT_MAP)]),
    "sidecar": pa.struct(
        [("path", pa.string()), ("sizeInBytes", pa.int64()), ("modificationTime", pa.int64()), ("tags", TEXT_MAP)]
    ),
}

PROTOCOL: Action = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
V2_PROTOCOL: Action = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["v2Checkpoint"],
        "writerFeatures": ["v2Checkpoint"],
    }
}
METADATA: Action = {
    "metaData": {
        "id": "11111111-2222-3333-4444-555555555555",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": '{"type":"struct","fields":[]}',
        "partitionColumns": [],
        "configuration": {},
        "createdTime": 1,
    }
}


def checkpoint_schema(add: dict[str, pa.DataType] | None = None) -> pa.Schema:
    files = {"add": pa.struct(list((add or ADD).items())), "remove": pa.struct(list(REMOVE.items()))}
    return pa.schema(list((TABLE_ACTIONS | files).items()))


def write_parquet(path: Path, actions: Sequence[Action], *, schema: pa.Schema | None = None, **options: Any) -> None:
    schema = schema or checkpoint_schema()
    rows = [{kind: _for_arrow(value) for kind, value in action.items()} for action in actions]
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema), path, **options)


def _for_arrow(value: Any) -> Any:
    """Objects that are maps in the checkpoint's schema as lists of pairs."""
    if not isinstance(value, dict):
        return value
    maps = ("partitionValues", "tags", "configuration", "options")
    return {
        name: list(member.items()) if name in maps and isinstance(member, dict) else _for_arrow(member)
        for name, member in value.items()
    }


def classic(log: Path, version: int, actions: Sequence[Action], **options: Any) -> Path:
    path = log / f"{version:020d}.checkpoint.parquet"
    write_parquet(path, actions, **options)
    return path


def multipart(log: Path, version: int, actions: Sequence[Action], parts: int) -> list[Path]:
    paths = [log / f"{version:020d}.checkpoint.{part:010d}.{parts:010d}.parquet" for part in range(1, parts + 1)]
    for number, path in enumerate(paths):
        write_parquet(path, actions[number::parts])
    return paths


def v2(
    log: Path,
    version: int,
    actions: Sequence[Action],
    *,
    form: str = "parquet",
    sidecars: int = 0,
    classic_name: bool = False,
) -> Path:
    """A V2 checkpoint; with sidecars, all file actions lie in them."""
    top: list[Action] = [{"checkpointMetadata": {"version": version}}]
    files = [action for action in actions if action.keys() & {"add", "remove"}]
    top += [action for action in actions if not action.keys() & {"add", "remove"}]
    if not sidecars:
        top += files
    for number in range(sidecars):
        sidecar = log / "_sidecars" / f"{uuid.uuid4()}.parquet"
        schema = pa.schema([field for field in checkpoint_schema() if field.name in ("add", "remove")])
        write_parquet(sidecar, files[number::sidecars], schema=schema)
        entry = {"path": sidecar.name, "sizeInBytes": sidecar.stat().st_size, "modificationTime": 1}
        top.append({"sidecar": entry})
    name = "parquet" if classic_name else f"{uuid.uuid4()}.{form}"
    path = log / f"{version:020d}.checkpoint.{name}"
    if form == "json":
        path.write_text("".join(json.dumps(action) + "\n" for action in top), encoding="utf-8")
    else:
        write_parquet(path, top)
    return path
