"""Deletion vectors wherever they lie: in the log, in the table's folder, elsewhere."""

import struct
import uuid
import zlib
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from deltalakedb.data import ParquetOptions
from deltalakedb.data.deletion_vectors import _Z85
from deltalakedb.exceptions import DeltaError, MalformedLogError
from deltalakedb.log.protocol.actions import DeletionVector
from tests.data.tables import WrittenTable, new_table
from tests.unit.data.test_roaring import encode

GONE = {0, 3, 4, 9}
DATA = pa.table({"id": range(10)})


def encode_z85(data: bytes) -> str:
    data += b"\0" * (-len(data) % 4)
    text = ""
    for (number,) in struct.iter_unpack(">I", data):
        digits = [number // 85**place % 85 for place in range(4, -1, -1)]
        text += "".join(_Z85[digit] for digit in digits)
    return text


def inline() -> DeletionVector:
    bitmap = encode(GONE, runs=False)
    return DeletionVector("i", encode_z85(bitmap), len(bitmap), len(GONE))


def in_file(folder: Path, *, prefix: str = "", damage: int = 0) -> tuple[DeletionVector, Path]:
    """A file of two vectors; ours is the second."""
    name = uuid.uuid4()
    path = folder / prefix / f"deletion_vector_{name}.bin"
    path.parent.mkdir(parents=True, exist_ok=True)
    other, bitmap = encode({1}, runs=False), encode(GONE, runs=True)
    content = b"\x01"
    for found in (other, bitmap):
        offset = len(content)
        content += struct.pack(">i", len(found)) + found + struct.pack(">I", zlib.crc32(found) + damage)
    path.write_bytes(content)
    return DeletionVector("u", prefix + encode_z85(name.bytes), len(bitmap), len(GONE), offset), path


def ids_without(table: WrittenTable, vector: DeletionVector) -> list[int]:
    table.adds = [replace(add, deletion_vector=vector) for add in table.adds]
    return list(table.read()["id"].to_pylist())


KEPT = [number for number in range(10) if number not in GONE]


def test_a_vector_in_the_log(tmp_path: Path) -> None:
    assert ids_without(new_table(tmp_path / "t", DATA), inline()) == KEPT


@pytest.mark.parametrize("prefix", ["", "ab"])
def test_a_vector_in_the_tables_folder(tmp_path: Path, prefix: str) -> None:
    table = new_table(tmp_path / "t", DATA)
    vector, _ = in_file(tmp_path / "t", prefix=prefix)
    assert ids_without(table, vector) == KEPT


@pytest.mark.parametrize("as_uri", [True, False])
def test_a_vector_and_a_file_elsewhere(tmp_path: Path, as_uri: bool) -> None:
    table = new_table(tmp_path / "t", DATA)
    vector, path = in_file(tmp_path / "else where")
    place = path.as_uri() if as_uri else str(path)
    data = tmp_path / "else where" / "100% data.parquet"
    (tmp_path / "t" / table.adds[0].path).rename(data)
    table.adds = [replace(table.adds[0], path=data.as_uri())]
    assert ids_without(table, replace(vector, storage_type="p", path_or_inline_dv=place)) == KEPT


def test_rows_are_counted_over_row_groups_and_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = WrittenTable(tmp_path / "t", new_table(tmp_path / "x", DATA).schema)
    table.append(DATA, options=ParquetOptions(row_group_rows=3))
    for rows in (1, 2, 100):
        monkeypatch.setattr("deltalakedb.data.reader.BATCH_ROWS", rows)
        assert ids_without(table, inline()) == KEPT
        assert table.read(columns=["id"], predicate="id > 4")["id"].to_pylist() == [5, 6, 7, 8]


@pytest.mark.parametrize(
    ("vector", "message"),
    [
        (replace(inline(), cardinality=3), "holds 4 rows, the log says 3"),
        (replace(inline(), storage_type="x"), "storage type 'x' is not known"),
        (replace(inline(), storage_type="u", path_or_inline_dv="short"), "name is too short"),
    ],
)
def test_a_vector_that_makes_no_sense_is_refused(tmp_path: Path, vector: DeletionVector, message: str) -> None:
    with pytest.raises(MalformedLogError, match=message):
        ids_without(new_table(tmp_path / "t", DATA), vector)


def test_a_damaged_or_missing_file_is_refused(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t", DATA)
    vector, _ = in_file(tmp_path / "t", damage=1)
    with pytest.raises(MalformedLogError, match="is damaged"):
        ids_without(table, vector)
    whole, path = in_file(tmp_path / "t")
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(MalformedLogError, match="cannot be read"):
        ids_without(table, whole)
    path.unlink()
    with pytest.raises(DeltaError, match=r"deletion_vector_.*\.bin.*not found"):
        ids_without(table, whole)
