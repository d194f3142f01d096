"""Reads manifest lists and manifests of format versions 1 to 3 into entries: a data or delete file each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import EllipsisType
from typing import Any, Final, Literal, TypeAlias

import orjson

from deltalakedb.exceptions import MalformedLogError
from deltalakedb.iceberg.planning.avro import Record, open_avro
from deltalakedb.iceberg.planning.column_stats import ColumnStats
from deltalakedb.iceberg.planning.schema import PartitionField, PartitionSpec
from deltalakedb.iceberg.planning.types import Value, from_avro, to_json_value

ManifestContent: TypeAlias = Literal["data", "deletes"]
FileContent: TypeAlias = Literal["data", "position-deletes", "equality-deletes"]
PartitionValue: TypeAlias = Value | EllipsisType | None
"""`...` is a value that cannot be read: it may be anything."""

INHERITED: Final = -1
"""A sequence number or a snapshot id that is the manifest's."""

ANY_DATA_FILE: Final = "*"
"""The delete key of equality deletes that apply to every partition."""

MAX_PATH_BYTES: Final = 2_000
_ADDED: Final = 1
_DELETED: Final = 2
_CONTENTS: Final[tuple[FileContent, ...]] = ("data", "position-deletes", "equality-deletes")
_PATH_COLUMN: Final = 2_147_483_546  # file_path in position delete files
_LARGEST: Final = 2**63 - 1
BOUNDS: Final = ("lower-bounds", "upper-bounds")
_STATS: Final = ("value-counts", "null-value-counts", "nan-value-counts", *BOUNDS)
# The field of each map in a data file, the fields of its keys and of its values.
_MAPS: Final = {
    "column-sizes": ("f108", "f117", "f118"),
    "value-counts": ("f109", "f119", "f120"),
    "null-value-counts": ("f110", "f121", "f122"),
    "nan-value-counts": ("f137", "f138", "f139"),
    "lower-bounds": ("f125", "f126", "f127"),
    "upper-bounds": ("f128", "f129", "f130"),
}
_NOTHING: Final[Mapping[int, Any]] = {}


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """A row of a manifest list."""

    path: str
    length: int | None
    spec_id: int
    content: ManifestContent
    sequence_number: int
    added_snapshot_id: int
    first_row_id: int | None
    live_files: int | None = None
    """How many files it has, without those that it only says are deleted."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A live entry of a manifest; the fields are the columns of dl_iceberg_files, and what bounds are made of."""

    file_content: FileContent
    file_path: str
    spec_id: int
    file_partition: str
    partition: tuple[PartitionValue, ...]
    num_records: int
    size: int
    sequence_number: int
    added_by: int | None
    row_offset: int | None
    delete_key: str | None
    file: str
    file_stats: str | None
    stats: ColumnStats


# ---- manifest lists


def read_manifest_list(path: str, data: bytes) -> list[ManifestFile]:
    """The manifests of a snapshot, each once."""
    manifests: dict[str, ManifestFile] = {}
    for record in open_avro(path, data).records():
        try:
            manifest = _manifest_file(record)
        except (KeyError, TypeError, ValueError) as error:
            raise MalformedLogError(f"the manifest list {path} has a malformed row: {error}") from error
        manifests.setdefault(manifest.path, manifest)
    return list(manifests.values())


def _manifest_file(record: Record) -> ManifestFile:
    content: ManifestContent = "deletes" if record.get("f517") == 1 else "data"
    first_row_id = record.get("f520")
    counts: tuple[Any, Any] = (record.get("f504"), record.get("f505"))
    return ManifestFile(
        path=checked_path(record["f500"]),
        length=record.get("f501"),
        spec_id=_count(record["f502"]),
        content=content,
        sequence_number=_count(record.get("f515") or 0),
        added_snapshot_id=record.get("f503") or 0,
        # DuckDB writes -1 for some manifests that have none.
        first_row_id=None if first_row_id in (None, -1) else _count(first_row_id),
        live_files=sum(counts) if all(isinstance(count, int) and count >= 0 for count in counts) else None,
    )


def checked_path(path: Any) -> str:
    if not isinstance(path, str) or not path or "\0" in path or len(path.encode()) > MAX_PATH_BYTES:
        raise ValueError(f"a file path is empty, longer than {MAX_PATH_BYTES} bytes or not a text")
    return path


def _count(value: Any) -> int:
    if not isinstance(value, int) or not 0 <= value <= _LARGEST:
        raise ValueError(f"{value!r} is not a count")
    return value


# ---- manifests


def read_manifest(manifest: ManifestFile, data: bytes, spec: PartitionSpec) -> Iterator[Entry]:
    """The live entries of a manifest. What they inherit from the manifest list is left open."""
    rows_before = 0
    for record in open_avro(manifest.path, data).records():
        try:
            status = record["f0"]
            if status == _DELETED:
                continue
            entry = _entry(record, status, manifest, spec, rows_before)
        except (KeyError, TypeError, ValueError) as error:
            raise MalformedLogError(f"the manifest {manifest.path} has a malformed entry: {error!r}") from error
        if entry.row_offset is not None:
            rows_before += entry.num_records
        yield entry


def _entry(record: Record, status: int, manifest: ManifestFile, spec: PartitionSpec, rows_before: int) -> Entry:
    item: Record = record["f2"]
    content = _CONTENTS[_count(item.get("f134") or 0)]
    if (content == "data") != (manifest.content == "data"):
        raise ValueError(f"{content} in a manifest of {manifest.content}")
    sequence_number = record.get("f3")
    if sequence_number is None and status != _ADDED and manifest.sequence_number > 0:
        raise ValueError("an existing file has no sequence number")
    added_by = record.get("f1")
    partition = _partition(item["f102"] or {}, spec)
    values = [_partition_json(part, value) for part, value in zip(spec.fields, partition, strict=True)]
    file_partition = orjson.dumps(values).decode()
    path = checked_path(item["f100"])
    maps = _maps(item)
    stats = _stats(maps)
    inherits_row_id = content == "data" and item.get("f142") is None
    return Entry(
        file_content=content,
        file_path=path,
        spec_id=spec.spec_id,
        file_partition=file_partition,
        partition=partition,
        num_records=_count(item["f103"]),
        size=_count(item["f104"]),
        sequence_number=INHERITED if sequence_number is None else _count(sequence_number),
        added_by=(INHERITED if added_by is None else added_by) if status == _ADDED else None,
        row_offset=rows_before if inherits_row_id else None,
        delete_key=None if content == "data" else _delete_key(content, item, stats, spec, file_partition),
        file=orjson.dumps(_file_json(content, item, spec, values)).decode(),
        file_stats=_stats_json(maps),
        stats=stats,
    )


def _partition(raw: Record, spec: PartitionSpec) -> tuple[PartitionValue, ...]:
    """Partition values by field id; by position where a table of version 1 numbered its fields otherwise."""
    names = [f"f{part.field_id}" for part in spec.fields]
    if not all(name in raw for name in names):
        if len(raw) != len(names):
            raise ValueError(f"its partition does not have the fields of spec {spec.spec_id}")
        names = list(raw)
    return tuple(_partition_value(part, raw[name]) for part, name in zip(spec.fields, names, strict=True))


def _partition_value(part: PartitionField, raw: Any) -> PartitionValue:
    value = from_avro(part.type, raw)
    return ... if value is None and raw is not None else value


def _partition_json(part: PartitionField, value: PartitionValue) -> Any:
    return None if value is ... else to_json_value(part.type, value)


def _file_json(content: FileContent, item: Record, spec: PartitionSpec, partition: list[Any]) -> dict[str, Any]:
    key_metadata: bytes | None = item.get("f131")
    optional = {
        "key-metadata": None if key_metadata is None else key_metadata.hex().upper(),
        "split-offsets": item.get("f132"),
        "equality-ids": item.get("f135") if content == "equality-deletes" else None,
        "sort-order-id": item.get("f140"),
        "first-row-id": item.get("f142") if content == "data" else None,
        "referenced-data-file": item.get("f143") if content != "data" else None,
        "content-offset": item.get("f144") if content != "data" else None,
        "content-size-in-bytes": item.get("f145") if content != "data" else None,
    }
    return {
        "spec-id": spec.spec_id,
        "content": content,
        "file-path": item["f100"],
        "file-format": str(item["f101"]).lower(),
        "partition": partition,
        "file-size-in-bytes": item["f104"],
        "record-count": item["f103"],
        **{name: value for name, value in optional.items() if value is not None},
    }


def _maps(item: Record) -> dict[str, dict[int, Any]]:
    """The statistics of a file by their names in JSON; what is empty is left out."""
    maps: dict[str, dict[int, Any]] = {}
    for name, (field_name, key, value) in _MAPS.items():
        if pairs := item.get(field_name):
            maps[name] = {pair[key]: pair[value] for pair in pairs if pair[value] is not None}
    return maps


def _stats(maps: Mapping[str, dict[int, Any]]) -> ColumnStats:
    return ColumnStats(*(maps.get(name, _NOTHING) for name in _STATS))


def _stats_json(maps: Mapping[str, dict[int, Any]]) -> str | None:
    """Statistics in the form of plans: lists of field ids and of values, bounds in hexadecimal digits."""
    stats = {
        name: {
            "keys": list(values),
            "values": [raw.hex().upper() for raw in values.values()] if name in BOUNDS else list(values.values()),
        }
        for name, values in maps.items()
        if values
    }
    return orjson.dumps(stats).decode() if stats else None


def stats_from_json(text: str | None) -> ColumnStats:
    """The inverse of how statistics are stored."""
    if text is None:
        return ColumnStats()
    stats = orjson.loads(text)

    def pairs(name: str) -> dict[int, Any]:
        item = stats.get(name, {"keys": (), "values": ()})
        return dict(zip(item["keys"], item["values"], strict=True))

    counts = [pairs(name) for name in _STATS if name not in BOUNDS]
    bounds = [{key: bytes.fromhex(raw) for key, raw in pairs(name).items()} for name in BOUNDS]
    return ColumnStats(*counts, *bounds)


# ---- which data files a delete file can apply to


def _delete_key(
    content: FileContent, item: Record, stats: ColumnStats, spec: PartitionSpec, file_partition: str
) -> str:
    if content == "equality-deletes":
        return partition_key(spec.spec_id, file_partition) if spec.is_partitioned else ANY_DATA_FILE
    referenced = item.get("f143")
    if referenced is None:
        low, high = stats.lower_bounds.get(_PATH_COLUMN), stats.upper_bounds.get(_PATH_COLUMN)
        referenced = low.decode() if low is not None and low == high else None
    return partition_key(spec.spec_id, file_partition) if referenced is None else path_key(referenced)


def path_key(path: str) -> str:
    """The key of deletes that name one data file."""
    return "p:" + hashlib.sha256(path.encode()).hexdigest()[:32]


def partition_key(spec_id: int, file_partition: str) -> str:
    """The key of deletes of one partition."""
    return f"s:{spec_id}:" + hashlib.sha256(file_partition.encode()).hexdigest()[:32]
