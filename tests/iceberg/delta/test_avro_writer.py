"""The Avro files that are written for Iceberg clients are read alike by fastavro, by PyIceberg and by this package."""

import io
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import FileFormat, ManifestContent, read_manifest_list

from deltalakedb.iceberg.delta.avro_writer import avro_bytes, avro_file, avro_long, avro_optional, avro_text
from deltalakedb.iceberg.delta.delta_files import COLUMNS, FileShape
from deltalakedb.iceberg.delta.delta_schema import iceberg_schema
from deltalakedb.iceberg.delta.field_ids import assign_ids
from deltalakedb.iceberg.delta.generated_files import GeneratedFiles
from deltalakedb.iceberg.delta.manifest_entries import EntryEncoder
from deltalakedb.iceberg.delta.manifest_schemas import avro_name, manifest_list_schema, manifest_schema
from deltalakedb.iceberg.delta.manifest_writing import list_entry, write_list, write_manifest
from deltalakedb.iceberg.planning.manifests import ManifestFile, read_manifest
from deltalakedb.iceberg.planning.schema import TableShape
from deltalakedb.log.protocol.actions import Format, Metadata
from deltalakedb.log.protocol.codec import to_json
from deltalakedb.log.schema.types import parse_schema

PARTITION_TYPES = {
    "text": "string", "whole": "integer", "big": "long", "yes": "boolean", "price": "decimal(10,2)", "day": "date",
    "at": "timestamp", "local": "timestamp_ntz", "real": "double", "raw": "binary",
}  # fmt: skip
PARTITION = {
    "text": "Zürich", "whole": "-7", "big": str(2**60), "yes": "true", "price": "-1.25", "day": "1969-12-31",
    "at": "2024-01-02 03:04:05.678901", "local": "1950-01-01 00:00:00", "real": "-0.5", "raw": "ab",
}  # fmt: skip


@given(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=300), st.text(max_size=100), st.none() | st.integers(0, 9))
def test_numbers_bytes_and_texts_are_those_of_fastavro(number: int, raw: bytes, text: str, perhaps: int | None) -> None:
    schema = {
        "type": "record",
        "name": "r",
        "fields": [
            {"name": "number", "type": "long"},
            {"name": "raw", "type": "bytes"},
            {"name": "text", "type": "string"},
            {"name": "perhaps", "type": ["null", "int"]},
        ],
    }
    record = (
        avro_long(number)
        + avro_bytes(raw)
        + avro_text(text)
        + avro_optional(None if perhaps is None else avro_long(perhaps))
    )
    expected = {"number": number, "raw": raw, "text": text, "perhaps": perhaps}
    data = avro_file(schema, {"key": "value"}, [record] * 3)
    reader = fastavro.reader(io.BytesIO(data))
    assert list(reader) == [expected] * 3
    assert dict(reader.metadata)["key"] == "value"


def test_a_file_of_many_records_has_several_blocks() -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "n", "type": "long"}]}
    data = avro_file(schema, {}, [avro_long(number) for number in range(2_500)])
    assert list(fastavro.reader(io.BytesIO(data))) == [{"n": number} for number in range(2_500)]
    assert list(fastavro.reader(io.BytesIO(avro_file(schema, {}, [])))) == []


@pytest.mark.parametrize("format_version", [2, 3])
def test_schemas_are_accepted_by_fastavro(format_version: int) -> None:
    assert fastavro.parse_schema(manifest_list_schema(format_version))
    assert fastavro.parse_schema(manifest_schema(format_version, []))


@pytest.mark.parametrize(
    ("name", "escaped"), [("a b", "a_x20b"), ("9lives", "_9lives"), ("ok_1", "ok_1"), ("é", "_xE9")]
)
def test_names_of_partition_fields_are_escaped_as_iceberg_does(name: str, escaped: str) -> None:
    assert avro_name(name) == escaped


def shape(location: str) -> tuple[FileShape, dict[str, Any]]:
    kinds = {"id": "long", "name": "string"} | PARTITION_TYPES
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds.items()]
    text = to_json({"type": "struct", "fields": fields})
    metadata = Metadata("x", Format(), text, tuple(PARTITION_TYPES), {})
    ids = assign_ids({}, [metadata])
    return FileShape(location, metadata, ids), iceberg_schema(parse_schema(text), ids, 0)


@pytest.mark.parametrize("format_version", [2, 3])
def test_manifests_and_lists_are_read_as_they_were_meant(tmp_path: Path, format_version: int) -> None:
    location = tmp_path.as_uri()
    made, schema = shape(location)
    stats = to_json(
        {
            "numRecords": 10,
            "minValues": {"id": 1, "name": "a"},
            "maxValues": {"id": 9, "name": "z"},
            "nullCount": {"id": 0, "name": 3},
        }
    )
    rows = [
        {
            "path": f"part-{number}%20x.parquet", "size": 100 + number, "num_records": 10, "stats": stats,
            "partition_values": to_json(PARTITION if number else dict.fromkeys(PARTITION)), "deletion_vector": None,
            "base_row_id": number * 10, "default_row_commit_version": None, "version": number, "file_id": number,
        }
        for number in range(3)
    ]  # fmt: skip
    files = made.files(pa.Table.from_pylist(rows).select(COLUMNS))
    encoder = EntryEncoder(made, format_version, {0: 100, 1: 101, 2: 102}, has_row_ids=True)
    entries = [encoder.data_entry(file) for file in files]
    written = GeneratedFiles(location, None)
    row = write_manifest(
        written, made, schema, entries,
        content="data", manifest_id=1, version=2, snapshot_id=102, format_version=format_version,
    )  # fmt: skip
    snapshot = {"snapshot-id": 102, "sequence-number": 3, "parent-snapshot-id": 101}
    path = write_list(written, [list_entry(row, format_version)], snapshot, version=2, format_version=format_version)
    written.sync()

    (manifest,) = read_manifest_list(PyArrowFileIO().new_input(path))
    assert (manifest.content, manifest.sequence_number, manifest.min_sequence_number) == (ManifestContent.DATA, 3, 1)
    assert (manifest.added_files_count, manifest.existing_files_count, manifest.deleted_files_count) == (1, 2, 0)
    assert (manifest.added_rows_count, manifest.existing_rows_count) == (10, 20)
    assert manifest.manifest_length == Path(row.manifest_path.removeprefix("file://")).stat().st_size
    read = manifest.fetch_manifest_entry(PyArrowFileIO(), discard_deleted=False)
    assert [entry.snapshot_id for entry in read] == [100, 101, 102]
    assert [(entry.sequence_number, entry.file_sequence_number) for entry in read] == [(1, 1), (2, 2), (3, 3)]
    file = read[2].data_file
    assert (file.file_path, file.file_format) == (f"file://{tmp_path}/part-2 x.parquet", FileFormat.PARQUET)
    assert (file.record_count, file.file_size_in_bytes) == (10, 102)
    assert file.null_value_counts == {1: 0, 2: 3}
    assert file.lower_bounds == {1: (1).to_bytes(8, "little"), 2: b"a"}
    assert file.upper_bounds == {1: (9).to_bytes(8, "little"), 2: b"z"}
    values = [file.partition[place] for place in range(len(PARTITION))]
    micros = 1_704_164_645_678_901
    assert values[:7] == ["Zürich", -7, 2**60, True, Decimal("-1.25"), -1, micros]
    assert values[8:] == [-0.5, b"ab"]
    assert [read[0].data_file.partition[place] for place in range(len(PARTITION))] == [None] * len(PARTITION)

    spec = TableShape({"schemas": [schema], "current-schema-id": 0, "partition-specs": [made.spec]}).specs[made.spec_id]
    own = list(
        read_manifest(
            ManifestFile(row.manifest_path, row.manifest_length, row.spec_id, "data", 3, 102, None),
            Path(row.manifest_path.removeprefix("file://")).read_bytes(),
            spec,
        )
    )
    assert [entry.partition for entry in own] == [file.partition for file in files]
    assert [entry.stats for entry in own] == [made.column_stats(file) for file in files]
