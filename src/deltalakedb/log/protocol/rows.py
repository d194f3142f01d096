"""Converts file actions to Arrow rows of FILES_SCHEMA and TOMBSTONES_SCHEMA, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from deltalakedb.log.protocol.actions import AddFile, RemoveFile
from deltalakedb.log.protocol.codec import deletion_vector_from_json, deletion_vector_to_json, to_json
from deltalakedb.log.protocol.text import from_sql_text, to_sql_text, to_sql_texts
from deltalakedb.log.protocol.txnlog import FILES_SCHEMA, TOMBSTONES_SCHEMA


def adds_to_batch(adds: Iterable[AddFile]) -> pa.RecordBatch:
    """Builds one row of FILES_SCHEMA for each add."""
    files = list(adds)
    vectors = [add.deletion_vector for add in files]
    columns = {
        "path": to_sql_texts([add.path for add in files]),
        "partition_values": _maps([add.partition_values for add in files]),
        "size": [add.size for add in files],
        "modification_time": [add.modification_time for add in files],
        "data_change": [add.data_change for add in files],
        "stats": to_sql_texts([add.stats for add in files]),
        "tags": _maps([add.tags for add in files]),
        "deletion_vector": [None if vector is None else deletion_vector_to_json(vector) for vector in vectors],
        "base_row_id": [add.base_row_id for add in files],
        "default_row_commit_version": [add.default_row_commit_version for add in files],
        "clustering_provider": to_sql_texts([add.clustering_provider for add in files]),
        "extra": [add.extra for add in files],
    }
    return pa.RecordBatch.from_pydict(columns, schema=FILES_SCHEMA)


def removes_to_batch(removes: Iterable[RemoveFile]) -> pa.RecordBatch:
    """Builds one row of TOMBSTONES_SCHEMA for each remove."""
    rows = [remove_to_row(remove) for remove in removes]
    return pa.RecordBatch.from_pylist(rows, schema=TOMBSTONES_SCHEMA)


def adds_from_batch(batch: pa.RecordBatch) -> Iterator[AddFile]:
    """The inverse of `adds_to_batch`."""
    return (add_from_row(row) for row in batch.to_pylist())


def removes_from_batch(batch: pa.RecordBatch) -> Iterator[RemoveFile]:
    """The inverse of `removes_to_batch`."""
    return (remove_from_row(row) for row in batch.to_pylist())


def remove_to_row(remove: RemoveFile) -> dict[str, Any]:
    return {
        "path": to_sql_text(remove.path),
        "data_change": remove.data_change,
        "deletion_timestamp": remove.deletion_timestamp,
        "extended_file_metadata": remove.extended_file_metadata,
        "partition_values": _map(remove.partition_values),
        "size": remove.size,
        "stats": _text(remove.stats),
        "tags": _map(remove.tags),
        "deletion_vector": None if remove.deletion_vector is None else deletion_vector_to_json(remove.deletion_vector),
        "base_row_id": remove.base_row_id,
        "default_row_commit_version": remove.default_row_commit_version,
        "extra": remove.extra,
    }


def add_from_row(row: Mapping[str, Any]) -> AddFile:
    vector = row["deletion_vector"]
    return AddFile(
        path=from_sql_text(row["path"]),
        partition_values=json.loads(row["partition_values"]),
        size=row["size"],
        modification_time=row["modification_time"],
        data_change=row["data_change"],
        stats=_from_text(row["stats"]),
        tags=_from_map(row["tags"]),
        deletion_vector=None if vector is None else deletion_vector_from_json(vector),
        base_row_id=row["base_row_id"],
        default_row_commit_version=row["default_row_commit_version"],
        clustering_provider=_from_text(row["clustering_provider"]),
        extra=row["extra"] or "",
    )


def remove_from_row(row: Mapping[str, Any]) -> RemoveFile:
    vector = row["deletion_vector"]
    return RemoveFile(
        path=from_sql_text(row["path"]),
        data_change=row["data_change"],
        deletion_timestamp=row["deletion_timestamp"],
        extended_file_metadata=row["extended_file_metadata"],
        partition_values=_from_map(row["partition_values"]),
        size=row["size"],
        stats=_from_text(row["stats"]),
        tags=_from_map(row["tags"]),
        deletion_vector=None if vector is None else deletion_vector_from_json(vector),
        base_row_id=row["base_row_id"],
        default_row_commit_version=row["default_row_commit_version"],
        extra=row["extra"] or "",
    )


def _text(text: str | None) -> str | None:
    return None if text is None else to_sql_text(text)


def _from_text(text: str | None) -> str | None:
    return None if text is None else from_sql_text(text)


def _map(values: Mapping[str, str | None] | None) -> str | None:
    return None if values is None else to_json(dict(values))


def _maps(values: Sequence[Mapping[str, str | None] | None]) -> list[str | None]:
    """Applies `_map` to each; equal maps (including their order) are rendered once."""
    text_by_items: dict[tuple[tuple[str, str | None], ...], str] = {}
    texts: list[str | None] = []
    for value in values:
        if value is None:
            texts.append(None)
            continue
        key = tuple(value.items())
        text = text_by_items.get(key)
        if text is None:
            text = text_by_items[key] = to_json(dict(value))
        texts.append(text)
    return texts


def _from_map(text: str | None) -> Mapping[str, str | None] | None:
    if text is None:
        return None
    values: Mapping[str, str | None] = json.loads(text)
    return values
