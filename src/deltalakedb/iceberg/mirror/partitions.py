"""Partition columns for Delta: only where the files lie in folders as Delta writers name them.

Some readers take partition values from the path. So a table is partitioned for Delta only if its live files are of one
spec of identity transforms and each path spells the values as Delta does. Otherwise the columns are read from the
files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from deltalakedb.exceptions import CannotMirrorError, redact
from deltalakedb.iceberg.mirror.columns import Column
from deltalakedb.iceberg.mirror.layouts import Layout
from deltalakedb.iceberg.mirror.live_files import LiveFile
from deltalakedb.iceberg.planning.manifests import PartitionValue
from deltalakedb.iceberg.planning.schema import PartitionSpec, TableShape
from deltalakedb.iceberg.planning.types import Primitive, moment_text

_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_FAMILIES: Final = frozenset({"boolean", "integer", "days", "text"})
"""The types whose values every reader spells alike."""


@dataclass(frozen=True, slots=True)
class Partitioning:
    """The partition columns, and the values of each file by its path in Iceberg's metadata."""

    columns: tuple[Column, ...]
    values: Mapping[str, Mapping[str, str | None]]


def partitioning(
    shape: TableShape, default_spec_id: int, columns: Sequence[Column], files: Sequence[LiveFile]
) -> Partitioning:
    """Return how the table is partitioned for Delta readers; without columns if it is not."""
    spec_ids = {item.entry.spec_id for item in files} or {default_spec_id}
    spec = shape.specs.get(next(iter(spec_ids))) if len(spec_ids) == 1 else None
    sources = None if spec is None else _sources(spec, columns)
    if not sources or spec is None:
        return Partitioning((), {})
    values = {}
    for item in files:
        texts = _texts(spec, item.entry.partition)
        if texts is None or not _is_spelled_in(item.path, sources, texts):
            return Partitioning((), {})
        values[item.path] = {source.physical_name: text for source, text in zip(sources, texts, strict=True)}
    return Partitioning(sources, values)


def check_columns_are_in_files(
    shape: TableShape, columns: Sequence[Column], files: Sequence[LiveFile], layouts: Mapping[str, Layout]
) -> None:
    """Refuse a file whose partition value is in Iceberg's metadata alone, as in tables taken over from Hive."""
    names = {column.field_id: column.name for column in columns}
    for item in files:
        for part, value in zip(shape.specs[item.entry.spec_id].fields, item.entry.partition, strict=True):
            is_there = part.transform.name != "identity" or part.source_id in layouts[item.path].ids
            if not is_there and value is not None and part.source_id in names:
                raise CannotMirrorError(
                    f"the partition column {names[part.source_id]} is not in the data file {redact(item.path)}: "
                    "rewrite the data files"
                )


def _sources(spec: PartitionSpec, columns: Sequence[Column]) -> tuple[Column, ...] | None:
    """The columns of a spec of identity transforms; None if it cannot be one of Delta."""
    by_id = {column.field_id: column for column in columns}
    found = []
    for part in spec.fields:
        column = by_id.get(part.source_id)
        if part.transform.name != "identity" or column is None or part.type is None:
            return None
        if part.type.family not in _FAMILIES or column in found:
            return None
        found.append(column)
    return tuple(found) if len(found) < len(columns) else None


def _texts(spec: PartitionSpec, values: Sequence[PartitionValue]) -> list[str | None] | None:
    """Partition values as texts of the log; None if one cannot be said, such as an empty string, which means null."""
    texts: list[str | None] = []
    for part, value in zip(spec.fields, values, strict=True):
        text = None if value is None else _text(part.type, value)
        if value is not None and not text:
            return None
        texts.append(text)
    return texts


def _text(kind: Primitive | None, value: PartitionValue) -> str:
    if kind is None or value is None or isinstance(value, type(...)):
        return ""
    if kind.family == "boolean":
        return "true" if value else "false"
    if kind.family == "days" and isinstance(value, int):
        text = moment_text(kind, value)
        return text if len(text) == len("2026-01-01") and text[0].isdigit() else ""
    return str(value)


def _is_spelled_in(path: str, sources: Sequence[Column], texts: Sequence[str | None]) -> bool:
    folders = path.split("/")[-len(sources) - 1 : -1]
    names = [source.physical_name for source in sources]
    wanted = zip(names, (_NULL if text is None else text for text in texts), strict=True)
    return [_split(folder) for folder in folders] == list(wanted)


def _split(folder: str) -> tuple[str, str]:
    name, _, value = folder.partition("=")
    return unquote(name), unquote(value)
