"""An Iceberg table written by hand: any version of the format, evolved schemas and specs, every kind of deletes.

Only its metadata is in files. What data and delete files would hold is in memory, where `judge.py` looks at it.
"""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.iceberg.planning.avro_files import (
    FILE_COUNTS,
    ROW_COUNTS,
    list_schema,
    manifest_metadata,
    manifest_schema,
    to_avro,
)
from tests.iceberg.planning.columns import KINDS, bounds, result_type, transformed

PATH_ID, POSITION_ID = 2_147_483_546, 2_147_483_545
Row = dict[int, Any]


@dataclass
class File:
    """A data or delete file, and its entry in manifests."""

    content: int
    path: str
    spec_id: int
    partition: tuple[Any, ...]
    num_records: int
    stats: dict[str, Any]
    rows: list[Row] = field(default_factory=list)
    positions: dict[str, list[int]] = field(default_factory=dict)
    """Of position deletes and vectors: the rows of each data file."""
    sequence_number: int | None = None
    snapshot_id: int | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def entry(self, status: int, *, inherits: bool) -> dict[str, Any]:
        return {
            "status": status,
            "snapshot_id": None if inherits and status == 1 else self.snapshot_id,
            "sequence_number": None if inherits and status == 1 else self.sequence_number,
            "data_file": self,
        }


class Lake:
    """A table in a folder, changed by whole snapshots."""

    def __init__(self, folder: Path, columns: dict[str, str], *, version: int = 2, seed: int = 0) -> None:
        self.folder = folder
        self.version = version
        self.random = Random(seed)
        self.columns: dict[int, tuple[str, str]] = dict(enumerate(columns.items(), 1))
        self.last_column = len(columns)
        self.schemas: list[dict[str, Any]] = []
        self.specs: list[list[tuple[int, int, str]]] = [[]]
        self.snapshots: list[dict[str, Any]] = []
        self.manifests: list[dict[str, Any]] = []
        self.files: list[File] = []
        """Live data files."""
        self.deletes: list[File] = []
        self.partition_ids: dict[tuple[int, str], int] = {}
        self.next_row_id = 0
        self.counter = 0
        (folder / "metadata").mkdir(parents=True)
        self._add_schema()

    # -- schema and spec

    def _add_schema(self) -> None:
        fields = [
            {"id": number, "name": name, "required": False, "type": kind.replace(",", ", ")}
            for number, (name, kind) in self.columns.items()
        ]
        self.schemas.append({"type": "struct", "schema-id": len(self.schemas), "fields": fields})

    def add_column(self, name: str, kind: str) -> None:
        self.last_column += 1
        self.columns[self.last_column] = (name, kind)
        self._add_schema()

    def change_column(self, number: int, name: str, kind: str) -> None:
        self.columns[number] = (name, kind)
        self._add_schema()

    def drop_column(self, number: int) -> None:
        del self.columns[number]
        self._add_schema()

    def partition_by(self, *fields: tuple[int, str]) -> None:
        """Adds a spec: column and transform of each field."""
        spec = []
        for column, transform in fields:
            number = self.partition_ids.setdefault((column, transform), 1000 + len(self.partition_ids))
            spec.append((number, column, transform))
        self.specs.append(spec)

    def kind_of(self, column: int) -> str:
        """The newest type of a column, also of a dropped one."""
        for schema in reversed(self.schemas):
            for item in schema["fields"]:
                if item["id"] == column:
                    return str(item["type"]).replace(", ", ",")
        raise KeyError(column)

    def spec_json(self, spec_id: int) -> dict[str, Any]:
        fields = [
            {"source-id": column, "field-id": number, "name": f"p{number}", "transform": transform}
            for number, column, transform in self.specs[spec_id]
        ]
        return {"spec-id": spec_id, "fields": fields}

    def metadata(self) -> dict[str, Any]:
        current = self.snapshots[-1]["snapshot-id"] if self.snapshots else None
        return {
            "format-version": self.version,
            "location": self.folder.as_uri(),
            "schemas": self.schemas,
            "current-schema-id": len(self.schemas) - 1,
            "partition-specs": [self.spec_json(number) for number in range(len(self.specs))],
            "default-spec-id": len(self.specs) - 1,
            "snapshots": self.snapshots,
            "current-snapshot-id": current,
        }

    # -- files

    def _path(self, kind: str) -> Path:
        self.counter += 1
        return self.folder / ("metadata" if kind == "avro" else "data") / f"{self.counter:05d}.{kind}"

    def draw_rows(self, count: int) -> list[Row]:
        random = self.random
        nothing = [number for number in self.columns if random.random() < 0.1]
        return [
            {
                number: None if number in nothing or random.random() < 0.15 else KINDS[kind].draw(random)
                for number, (_, kind) in self.columns.items()
            }
            for _ in range(count)
        ]

    def partition_of(self, row: Row, spec_id: int) -> tuple[Any, ...]:
        return tuple(
            transformed(transform, self.kind_of(column), row.get(column))
            for _, column, transform in self.specs[spec_id]
        )

    def write_rows(self, rows: list[Row]) -> list[File]:
        """Data files of the newest spec: one for each partition."""
        spec_id = len(self.specs) - 1
        groups: dict[str, list[Row]] = {}
        for row in rows:
            groups.setdefault(repr(self.partition_of(row, spec_id)), []).append(row)
        return [self._write_file(group, spec_id) for group in groups.values()]

    def _write_file(self, rows: list[Row], spec_id: int) -> File:
        path = self._path("parquet")
        kinds = {number: kind for number, (_, kind) in self.columns.items()}
        partition = self.partition_of(rows[0], spec_id)
        return File(0, path.as_uri(), spec_id, partition, len(rows), self.stats(rows, kinds), rows)

    def stats(self, rows: list[Row], kinds: dict[int, str]) -> dict[str, Any]:
        """Statistics as some writers give them: parts are missing at random, texts are cut."""
        random = self.random
        names = ("value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")
        stats: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
        truncate = random.choice((None, 1, 2, 16))
        for number, kind in kinds.items():
            if random.random() < 0.1:
                continue
            values = [row.get(number) for row in rows]
            present = [value for value in values if value is not None]
            stats["value_counts"].append({"key": number, "value": len(values)})
            stats["null_value_counts"].append({"key": number, "value": len(values) - len(present)})
            if KINDS[kind].is_float and random.random() < 0.7:
                stats["nan_value_counts"].append({"key": number, "value": sum(map(math.isnan, present))})
            low, high = bounds(kind, present, truncate=truncate)
            stats["lower_bounds"] += [{"key": number, "value": low}] if low is not None else []
            stats["upper_bounds"] += [{"key": number, "value": high}] if high is not None else []
        missing = [name for name in names if random.random() < 0.1]
        return {name: None if name in missing else values for name, values in stats.items()}

    # -- snapshots

    def append(self, rows: list[Row], schema_id: int | None = None) -> None:
        added = self.write_rows(rows)
        self.files += added
        self.commit("append", data=[self._manifest(added)], schema_id=schema_id)

    def remove(self, files: list[File]) -> None:
        """Deletes whole data files: all manifests are written again."""
        self.files = [item for item in self.files if item not in files]
        self.rewrite(removed=files, operation="delete")

    def rewrite(self, *, removed: list[File] | None = None, operation: str = "replace") -> None:
        """Writes all data files into new manifests as existing ones."""
        specs = sorted({item.spec_id for item in self.files})
        manifests = []
        for spec_id in specs:
            group = [item for item in self.files if item.spec_id == spec_id]
            entries = [item.entry(0, inherits=False) for item in group]
            entries += [item.entry(2, inherits=False) for item in removed or [] if item.spec_id == spec_id]
            manifests.append(self._write_manifest(entries, spec_id, "data"))
        self.manifests = [item for item in self.manifests if item["content"] == 1]
        self.commit(operation, data=manifests)

    def delete_positions(self, files: list[File], chosen: dict[str, list[int]]) -> None:
        """Position deletes of data files of one partition, in one file."""
        pairs = sorted((path, position) for path, positions in chosen.items() for position in positions)
        path = self._path("parquet")
        names = [name for name, _ in pairs]
        stats: dict[str, Any] = {}
        if self.random.random() < 0.7:
            stats = {
                "lower_bounds": [{"key": PATH_ID, "value": min(names).encode()}],
                "upper_bounds": [{"key": PATH_ID, "value": max(names).encode()}],
            }
        deletes = File(1, path.as_uri(), files[0].spec_id, files[0].partition, len(pairs), stats, [], chosen)
        self.deletes.append(deletes)
        self.commit("delete", deletes=[self._manifest([deletes])])

    def delete_vector(self, file: File, positions: list[int]) -> None:
        """A deletion vector on one data file (version 3)."""
        path = self._path("puffin")
        extra = {"referenced_data_file": file.path, "content_offset": 4, "content_size_in_bytes": 40}
        chosen = {file.path: positions}
        vector = File(1, path.as_uri(), file.spec_id, file.partition, len(positions), {}, [], chosen, extra=extra)
        self.deletes = [item for item in self.deletes if item.extra.get("referenced_data_file") != file.path]
        self.deletes.append(vector)
        # At most one vector on a file: the manifests with an older one are written again without it.
        self._rewrite_deletes()

    def _rewrite_deletes(self) -> None:
        old = [item for item in self.deletes if item.snapshot_id is not None]
        new = [item for item in self.deletes if item.snapshot_id is None]
        manifests = []
        for spec_id in sorted({item.spec_id for item in old}):
            entries = [item.entry(0, inherits=False) for item in old if item.spec_id == spec_id]
            manifests.append(self._write_manifest(entries, spec_id, "deletes"))
        self.manifests = [item for item in self.manifests if item["content"] == 0]
        self.commit("delete", deletes=[*manifests, self._manifest(new)])

    def delete_equal(self, columns: list[int], rows: list[Row], partition_of: Row | None = None) -> None:
        """Equality deletes; everywhere if the newest spec has no fields, else in the partition of a row."""
        spec_id = len(self.specs) - 1
        path = self._path("parquet")
        kinds = {number: self.columns[number][1] for number in columns}
        values = [{number: row.get(number) for number in columns} for row in rows]
        partition = self.partition_of(partition_of or {}, spec_id)
        deletes = File(
            2,
            path.as_uri(),
            spec_id,
            partition,
            len(rows),
            self.stats(values, kinds),
            values,
            extra={"equality_ids": columns},
        )
        self.deletes.append(deletes)
        self.commit("delete", deletes=[self._manifest([deletes])])

    # -- manifests

    def _manifest(self, files: list[File]) -> dict[str, Any]:
        inherits = self.random.random() < 0.8 or self.version == 1
        content = "data" if files[0].content == 0 else "deletes"
        return {"pending": files, "inherits": inherits, "content": content}

    def _write_manifest(self, entries: list[dict[str, Any]], spec_id: int, content: str) -> dict[str, Any]:
        fields = [(n, f"p{n}", result_type(transform, self.kind_of(c))) for n, c, transform in self.specs[spec_id]]
        schema = manifest_schema(self.version, fields)
        rows = [{**entry, "data_file": self._data_file(entry["data_file"], fields)} for entry in entries]
        metadata = manifest_metadata(self.version, self.schemas[-1], self.spec_json(spec_id), content)
        path = self._path("avro")
        path.write_bytes(to_avro(schema, rows, metadata, self.random.choice(("null", "deflate"))))
        live = [entry["data_file"] for entry in entries if entry["status"] != 2]
        return {
            "manifest_path": path.as_uri(),
            "manifest_length": path.stat().st_size,
            "partition_spec_id": spec_id,
            "content": 0 if content == "data" else 1,
            "records": sum(item.num_records for item in live),
        }

    def _data_file(self, file: File, fields: list[tuple[int, str, str]]) -> dict[str, Any]:
        partition = {name: value for (_, name, _), value in zip(fields, file.partition, strict=True)}
        return {
            "content": file.content,
            "file_path": file.path,
            "file_format": "PUFFIN" if file.path.endswith("puffin") else "PARQUET",
            "partition": partition,
            "record_count": file.num_records,
            "file_size_in_bytes": 100,
            "block_size_in_bytes": 100,
            **file.stats,
            **file.extra,
        }

    def commit(
        self,
        operation: str,
        *,
        data: list[dict[str, Any]] | None = None,
        deletes: list[dict[str, Any]] | None = None,
        schema_id: int | None = None,
    ) -> None:
        number = len(self.snapshots) + 1
        snapshot_id = 1000 + number
        sequence_number = number if self.version > 1 else 0
        for item in [*(data or []), *(deletes or [])]:
            if "pending" in item:
                item = self._write_pending(item, snapshot_id, sequence_number)
            row = {**item, "added_snapshot_id": snapshot_id, "sequence_number": sequence_number}
            row |= {"min_sequence_number": 0, "first_row_id": None, **dict.fromkeys((*FILE_COUNTS, *ROW_COUNTS), 1)}
            if self.version > 2 and row["content"] == 0:
                row["first_row_id"] = self.next_row_id
                self.next_row_id += item["records"]
            self.manifests.append(row)
        path = self._path("avro")
        path.write_bytes(to_avro(list_schema(self.version), self.manifests, {"format-version": str(self.version)}))
        self.snapshots.append(
            {
                "snapshot-id": snapshot_id,
                "parent-snapshot-id": snapshot_id - 1 if number > 1 else None,
                "sequence-number": sequence_number,
                "timestamp-ms": number,
                "summary": {"operation": operation},
                "manifest-list": path.as_uri(),
                "schema-id": len(self.schemas) - 1 if schema_id is None else schema_id,
            }
        )

    def _write_pending(self, item: dict[str, Any], snapshot_id: int, sequence_number: int) -> dict[str, Any]:
        files: list[File] = item["pending"]
        for added in files:
            added.snapshot_id, added.sequence_number = snapshot_id, sequence_number
        entries = [added.entry(1, inherits=item["inherits"]) for added in files]
        return self._write_manifest(entries, files[0].spec_id, item["content"])


def dump(metadata: dict[str, Any], path: Path) -> str:
    """Writes the metadata file, for readers of files."""
    complete = {
        "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
        "last-updated-ms": 1,
        "last-column-id": 100,
        "last-partition-id": 2000,
        "last-sequence-number": 1000,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "default-sort-order-id": 0,
        **metadata,
    }
    path.write_text(json.dumps(complete))
    return path.as_uri()
