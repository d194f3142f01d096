"""Owns the statement that makes a table of Parquet files which lie below its location; no row is read or copied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias
from urllib.parse import unquote

from deltalakedb.exceptions import DeltaError, SchemaMismatchError
from deltalakedb.log.actions import AddFile
from deltalakedb.log.codec import to_json
from deltalakedb.log.paths import encode_path
from deltalakedb.log.proposal import ProposedCommit
from deltalakedb.log.types import ArrayType, DataType, MapType, StructField, StructType
from deltalakedb.operations.creation import NewTable
from deltalakedb.operations.target import Done, Target

if TYPE_CHECKING:
    import pyarrow as pa

    from deltalakedb.data import DataStorage
    from deltalakedb.files.tree import ListedFile

Strategy: TypeAlias = Literal["hive", "directory"] | None

_THREADS: Final = 8
_HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_STATS_COLUMNS: Final = "delta.dataSkippingStatsColumns"


@dataclass(frozen=True, slots=True)
class Conversion:
    """How Parquet files are to be taken for a table."""

    partition_by: StructType
    strategy: Strategy
    collect_stats: bool = True

    def partition_values(self, path: str, place: str) -> dict[str, str | None]:
        """What the folders of a file say."""
        folders = [unquote(part) for part in path.split("/")[:-1]]
        names = self.partition_by.names
        if self.strategy == "hive":
            pairs = [part.partition("=") for part in folders if "=" in part]
            found = {name: None if text == _HIVE_NULL else text for name, _, text in pairs}
            plain = len(pairs) < len(folders)
        else:
            found = dict(zip(names, folders, strict=False))
            plain = len(folders) != len(names)
        if plain or set(found) != set(names):
            listed = ", ".join(names) or "none"
            raise DeltaError(
                f"{place}: the folders of {path} are not the partition columns ({listed}); give the columns as a "
                "Schema with partition_by, and partition_strategy 'hive' (x=1/y=2) or 'directory' (1/2)"
            )
        return {name: found[name] for name in names}


def find_table(
    new: NewTable, conversion: Conversion, *, location: str, options: Mapping[str, str] | None = None
) -> NewTable:
    """The table that the files at a location are: its schema, and an add action for each file."""
    from deltalakedb.files.tree import list_files
    from deltalakedb.storage import open_data_storage

    try:
        listed = sorted((file for file in list_files(location, options) if _is_data(file.path)), key=lambda f: f.path)
    except DeltaError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        listed = []
    if not listed:
        raise DeltaError(f"there is no Parquet file at {location}: nothing can be converted")
    values = [conversion.partition_values(file.path, location) for file in listed]
    storage = open_data_storage(location, options)
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="deltalakedb-footer") as pool:
        footers = list(pool.map(lambda file: _Footer.read(storage, file, conversion.collect_stats), listed))
    fields = _merged([footer.schema for footer in footers], [file.path for file in listed])
    taken = [name for name in conversion.partition_by.names if name in {item.name for item in fields}]
    if taken:
        raise SchemaMismatchError(f"{location}: the partition column {taken[0]} is a column of the files too")
    adds = tuple(
        AddFile(encode_path(file.path), partitions, file.size, file.modified_ms, True, footer.stats)
        for file, partitions, footer in zip(listed, values, footers, strict=True)
    )
    schema = StructType((*fields, *conversion.partition_by.fields))
    return replace(new, schema=schema, partition_by=conversion.partition_by.names, adds=adds)


def convert(target: Target, new: NewTable, conversion: Conversion) -> Done:  # noqa: ARG001  a verb has a target
    """The first commit of a table that its files were before."""
    parameters = {
        "numFiles": str(len(new.adds)),
        "partitionBy": to_json(list(new.partition_by)),
        "collectStats": to_json(conversion.collect_stats),
    }
    return Done(ProposedCommit(new.adds, "CONVERT", parameters))


def _is_data(path: str) -> bool:
    """Names with a line or a dot in front are no data to anybody; a folder of a partition may have one."""
    hidden = (part.startswith(("_", ".")) and "=" not in part for part in path.split("/"))
    return path.endswith(".parquet") and not any(hidden)


@dataclass(frozen=True, slots=True)
class _Footer:
    schema: StructType
    stats: str | None

    @classmethod
    def read(cls, storage: DataStorage, file: ListedFile, collect_stats: bool) -> _Footer:
        import pyarrow as pa
        import pyarrow.parquet as pq

        from deltalakedb.data import arrow_to_schema
        from deltalakedb.data.footers import FooterStats

        try:
            with storage.open(file.path, file.size) as source:
                parquet = pq.ParquetFile(source)
                arrow, footer = parquet.schema_arrow, parquet.metadata
        except (pa.ArrowException, OSError) as error:
            raise DeltaError(f"{storage.location}/{file.path} is no Parquet file that can be read: {error}") from error
        schema = arrow_to_schema(arrow)
        if not collect_stats:
            return cls(schema, None)
        # A bound in a footer is in the unit of the file; only what has the table's own type is taken.
        exact = ",".join(_quoted(item.name) for item in arrow if _is_exact(item, schema))
        return cls(schema, FooterStats(schema, (), {_STATS_COLUMNS: exact or _quoted("\0")}).of(footer))


def _is_exact(item: pa.Field, schema: StructType) -> bool:
    import pyarrow.types as pt

    from deltalakedb.data.arrow_types import file_type

    field = schema.field(item.name)
    assert field is not None
    return bool(pt.is_large_string(item.type)) or item.type.equals(file_type(field.type))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _merged(schemas: Sequence[StructType], paths: Sequence[str]) -> list[StructField]:
    """All columns of all files; one that a file does not have, or that one lets be null, may be null."""
    found: dict[str, StructField] = {}
    for schema, path in zip(schemas, paths, strict=True):
        for item in schema.fields:
            mine = found.setdefault(item.name, item)
            if _plain(mine.type) != _plain(item.type):
                raise SchemaMismatchError(
                    f"column {item.name!r} is {item.type} in {path}, and {mine.type} in files before it; a table has "
                    "one type for a column: rewrite the file"
                )
            found[item.name] = replace(mine, nullable=mine.nullable or item.nullable, metadata={})
    everywhere = {name for name in found if all(schema.field(name) is not None for schema in schemas)}
    return [item if name in everywhere else replace(item, nullable=True) for name, item in found.items()]


def _plain(kind: DataType) -> DataType:
    """A type without what it says of nulls."""
    match kind:
        case StructType():
            return StructType(tuple(_plain_fields(kind.fields)))
        case ArrayType():
            return ArrayType(_plain(kind.element_type))
        case MapType():
            return MapType(_plain(kind.key_type), _plain(kind.value_type))
        case _:
            return kind


def _plain_fields(fields: Iterable[StructField]) -> Iterable[StructField]:
    return (StructField(item.name, _plain(item.type)) for item in fields)
