"""Field ids that data files have of their own, from their footers: Iceberg clients find columns by these, not by names.

Delta's writers give files no ids, or those of column mapping. Files that Iceberg clients appended have the ids that the
table had then; and `deltalake` keeps those of Arrow data that was read from an Iceberg file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from deltalakedb.data.arrow_types import is_any_list
from deltalakedb.exceptions import MalformedLogError, MissingFileError, StorageError
from deltalakedb.iceberg.delta.field_ids import ELEMENT, KEY, VALUE, Path, dotted, without_case
from deltalakedb.log.protocol.codec import from_sql_text
from deltalakedb.storage.location import open_logged, open_storage

READERS: Final = 16
FIELD_ID: Final = b"PARQUET:field_id"
_LAST_ID: Final = 2_147_483_446
"""Iceberg reserves the ids above."""

Fields: TypeAlias = tuple[tuple[Path, int | None], ...]
"""The fields of a file with their ids."""


def read_file_ids(location: str, options: Mapping[str, str] | None, sizes: Mapping[str, int]) -> dict[Fields, str]:
    """The fields of the files that have ids, each set of fields with one of its files.

    `sizes` are those of files by their paths, as the database has them. Files that are lost or damaged are passed over:
    that is reported where they are read.
    """
    storage = open_storage(location, options)

    def read(path: str, size: int) -> Fields:
        try:
            with open_logged(storage, path, size) as file:
                return tuple(_struct_fields(pq.read_schema(file), ()))
        except StorageError:
            raise  # which passes: the file could have ids
        except (MalformedLogError, MissingFileError, OSError, pa.ArrowException):
            return ()

    names = [from_sql_text(path) for path in sizes]
    if not names:
        return {}
    with ThreadPoolExecutor(min(READERS, len(names)), thread_name_prefix="deltalakedb-footer") as pool:
        found = dict(zip(pool.map(read, names, sizes.values()), names, strict=True))
    return {fields: path for fields, path in found.items() if any(number is not None for _, number in fields)}


def _struct_fields(fields: Iterable[pa.Field], above: Path) -> Iterator[tuple[Path, int | None]]:
    for item in fields:
        yield from _field(item, (*above, item.name))


def _field(item: pa.Field, path: Path) -> Iterator[tuple[Path, int | None]]:
    raw = (item.metadata or {}).get(FIELD_ID)
    yield path, None if raw is None else int(raw)
    if pt.is_struct(item.type):
        yield from _struct_fields(item.type, path)
    elif is_any_list(item.type):
        yield from _field(item.type.value_field, (*path, ELEMENT))
    elif pt.is_map(item.type):
        yield from _field(item.type.key_field, (*path, KEY))
        yield from _field(item.type.item_field, (*path, VALUE))


def with_ids_of_files(known: Mapping[Path, int], files: Iterable[Fields]) -> dict[Path, int]:
    """The known ids, and those that can be taken over from files: no two of them, and no two fields, disagree."""
    by_path: dict[Path, set[int | None]] = {}
    by_number: dict[int | None, set[Path]] = {}
    for fields in [tuple(known.items()), *files]:
        for path, number in fields:
            by_path.setdefault(without_case(path), set()).add(number)
            by_number.setdefault(number, set()).add(without_case(path))
    ids = dict(known)
    for fields in files:
        for path, number in fields:
            is_agreed = len(by_path[without_case(path)]) == len(by_number[number]) == 1
            has_parent = len(path) == 1 or path[:-1] in ids
            if number is not None and 0 < number <= _LAST_ID and is_agreed and has_parent:
                ids.setdefault(path, number)
    return ids


def file_problems(files: Mapping[Fields, str], ids: Mapping[Path, int]) -> Sequence[str]:
    """Why Iceberg clients would take other columns of a file than those of the table; one sentence for each file."""
    known = {without_case(path): number for path, number in ids.items()}
    numbers = set(ids.values())
    problems = []
    for fields, file in files.items():
        for path, number in fields:
            expected = known.get(without_case(path))
            if number == expected or (expected is None and number not in numbers):
                continue
            if number is None and isinstance(path[-1], int):
                continue  # elements are found by their place
            problems.append(_problem(file, path, number, expected))
            break
    return problems


def _problem(file: str, path: Path, number: int | None, expected: int | None) -> str:
    if number is None:
        return f"its file {file} has field ids, and none for the column {dotted(path)}"
    if expected is None:
        return f"its file {file} has the field id {number} for {dotted(path)}, and the table has it for another column"
    return f"its file {file} has the field id {number} for the column {dotted(path)}, and the table has {expected}"
