"""Deleted rows of data files, from Iceberg's position deletes and vectors, as files of Delta deletion vectors."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from deltalakedb.data.deletion_vectors import Rows, decode_bitmap
from deltalakedb.exceptions import CannotMirrorError, MalformedLogError, StorageError, redact
from deltalakedb.iceberg.locations import open_file
from deltalakedb.iceberg.mirror.layouts import missing_file
from deltalakedb.iceberg.mirror.live_files import LiveFile
from deltalakedb.iceberg.planning.avro import MAX_FILE_BYTES
from deltalakedb.iceberg.planning.deletes import DeleteFile

_FRAME: Final = 8
"""The bytes of the length before a vector in a Puffin file, and of the checksum after it."""


def deleted_rows(files: Iterable[LiveFile], options: Mapping[str, str] | None) -> dict[str, Rows]:
    """Return the numbers of the deleted rows of each data file: those of all its deletes, sorted, each once."""
    found: dict[str, list[Rows]] = {}
    by_delete_file: dict[str, list[str]] = {}
    for item in files:
        found[item.path] = []
        for deletes in item.deletes:
            if deletes.is_vector:
                found[item.path].append(_read_vector(item.path, deletes, options))
            else:
                by_delete_file.setdefault(deletes.file["file-path"], []).append(item.path)
    for delete_path, data_paths in by_delete_file.items():
        for path, rows in _read_positions(delete_path, data_paths, options).items():
            found[path].append(rows)
    nothing = np.empty(0, np.uint64)
    return {path: np.unique(np.concatenate([nothing, *parts])) for path, parts in found.items()}


def _read_positions(path: str, data_paths: Sequence[str], options: Mapping[str, str] | None) -> dict[str, Rows]:
    """The positions in a file of position deletes, of some data files."""
    storage, name = open_file(path, options)
    try:
        with storage.open(name) as file:
            table = pq.read_table(file, columns=["file_path", "pos"])
        named = table["file_path"].cast(pa.string())
        rows = table.set_column(0, "file_path", named).filter(pc.is_in(named, pa.array(data_paths, pa.string())))
        groups = rows.group_by("file_path").aggregate([("pos", "list")])
        positions = (pc.cast(group.values, pa.uint64()).to_numpy() for group in groups["pos_list"])
        return dict(zip(groups["file_path"].to_pylist(), positions, strict=True))
    except FileNotFoundError:
        raise missing_file(path) from None
    except (pa.ArrowException, OSError, KeyError) as error:
        if isinstance(error, StorageError):
            raise
        raise CannotMirrorError(f"the position deletes in {redact(path)} cannot be read: {error}") from error


def _read_vector(path: str, deletes: DeleteFile, options: Mapping[str, str] | None) -> Rows:
    """The rows in a vector of a Puffin file, which frames a bitmap in the same way as Delta."""
    file = deletes.file
    where = redact(file["file-path"])
    if file.get("referenced-data-file", path) != path:
        raise MalformedLogError(f"a vector in {where} is of another data file than its manifest says")
    if not 0 <= int(file["content-size-in-bytes"]) <= MAX_FILE_BYTES or int(file["content-offset"]) < 0:
        raise MalformedLogError(f"a vector in {where} is said to be at no possible place, or larger than a file may be")
    storage, name = open_file(file["file-path"], options)
    try:
        blob = storage.get_range(name, int(file["content-offset"]), int(file["content-size-in-bytes"]))
    except FileNotFoundError:
        raise missing_file(file["file-path"]) from None
    bitmap = blob[4:-4]
    if len(blob) < _FRAME or struct.unpack(">I", blob[:4])[0] != len(bitmap):
        raise MalformedLogError(f"a vector in {where} is cut short")
    if struct.unpack(">I", blob[-4:])[0] != zlib.crc32(bitmap):
        raise MalformedLogError(f"a vector in {where} is damaged: its checksum differs")
    try:
        return decode_bitmap(bitmap, int(file["record-count"]), source="its manifest")
    except MalformedLogError as error:
        raise MalformedLogError(f"a vector in {where} cannot be read: {error}") from None
