"""The statement that makes a table of Parquet files at its location; no row is read or copied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias
from urllib.parse import unquote

from deltalakedb.exceptions import DeltaError, SchemaMismatchError, StorageError
from deltalakedb.log.protocol.actions import AddFile
from deltalakedb.log.protocol.codec import to_json
from deltalakedb.log.protocol.paths import encode_path
from deltalakedb.log.protocol.proposal import ProposedCommit
from deltalakedb.log.schema.types import ArrayType, DataType, MapType, StructField, StructType
from deltalakedb.operations.creation import NewTable
from deltalakedb.operations.target import Done, Target

if TYPE_CHECKING:
    import pyarrow as pa

    from deltalakedb.storage.interface import ListedFile, Storage

Strategy: TypeAlias = Literal["hive", "directory"] | None

_THREADS: Final = 8
_HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_STATS_COLUMNS: Final = "delta.dataSkippingStatsColumns"


@dataclass(frozen=True, slots=True)
class Conversion:
    """How Parquet files are converted to a table."""

    partition_by: StructType
    strategy: Strategy
    collect_stats: bool = True

    def partition_values(self, path: str, place: str) -> dict[str, str | None]:
        """Return the partition values in a file's folders."""
        folders = [unquote(part) for part in path.split("/")[:-1]]
        names = self.partition_by.names
        if self.strategy == "hive":
            pairs = [part.partition("=") for part in folders if "=" in part]
            values = {name: None if text == _HIVE_NULL else text for name, _, text in pairs}
            has_others = len(pairs) < len(folders)
        else:
            values = dict(zip(names, folders, strict=False))
            has_others = len(folders) != len(names)
        if has_others or set(values) != set(names):
            column_names = ", ".join(names) or "none"
            raise DeltaError(
                "Generic error: The schema of partition columns must be provided to convert a Parquet table to a Delta "
                "table: "
                f"{place}: the folders of {path} are not the partition columns ({column_names}); give the columns as a "
                "Schema with partition_by, and partition_strategy 'hive' (x=1/y=2) or 'directory' (1/2)"
            )
        return {name: values[name] for name in names}


def find_table(
    new: NewTable, conversion: Conversion, *, location: str, options: Mapping[str, str] | None = None
) -> NewTable:
    """Return the table that the files at a location form: its schema, and an add action for each file."""
    from deltalakedb.storage.location import open_storage

    storage = open_storage(location, options)
    files = sorted((file for file in storage.walk() if _is_data(file.path)), key=lambda file: file.path)
    if not files:
        raise DeltaError(f"No parquet file is found in the given location: {location}")
    values = [conversion.partition_values(file.path, location) for file in files]
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="deltalakedb-footer") as pool:
        footers = list(pool.map(lambda file: _Footer.read(storage, file, conversion.collect_stats), files))
    fields = _merged([footer.schema for footer in footers], [file.path for file in files])
    duplicates = [name for name in conversion.partition_by.names if name in {item.name for item in fields}]
    if duplicates:
        raise SchemaMismatchError(f"{location}: the partition column {duplicates[0]} is a column of the files too")
    adds = tuple(
        AddFile(encode_path(file.path), partitions, file.size, file.modified_ms, True, footer.stats)
        for file, partitions, footer in zip(files, values, footers, strict=True)
    )
    schema = StructType((*fields, *conversion.partition_by.fields))
    return replace(new, schema=schema, partition_by=conversion.partition_by.names, adds=adds)


def convert(target: Target, new: NewTable, conversion: Conversion) -> Done:  # noqa: ARG001  verbs take a target
    """Return the first commit of a table made of existing files."""
    parameters = {
        "numFiles": str(len(new.adds)),
        "partitionBy": to_json(list(new.partition_by)),
        "collectStats": to_json(conversion.collect_stats),
    }
    return Done(ProposedCommit(new.adds, "CONVERT", parameters))


def _is_data(path: str) -> bool:
    """Return whether a file is data: names with a leading `_` or `.` are not, except partition folders."""
    hidden = (part.startswith(("_", ".")) and "=" not in part for part in path.split("/"))
    return path.endswith(".parquet") and not any(hidden)


@dataclass(frozen=True, slots=True)
class _Footer:
    schema: StructType
    stats: str | None

    @classmethod
    def read(cls, storage: Storage, file: ListedFile, collect_stats: bool) -> _Footer:
        import pyarrow as pa
        import pyarrow.parquet as pq

        from deltalakedb.data import arrow_to_schema
        from deltalakedb.data.footers import FooterStats

        try:
            with storage.open(file.path, file.size) as source:
                parquet = pq.ParquetFile(source)
                arrow, footer = parquet.schema_arrow, parquet.metadata
        except StorageError:
            raise
        except (pa.ArrowException, OSError) as error:
            raise DeltaError(f"Failed to parse parquet: {storage.location}/{file.path}: {error}") from error
        schema = arrow_to_schema(arrow)
        if not collect_stats:
            return cls(schema, None)
        # Footer bounds are in the file's unit; only those that can be told in the table's are used.
        exact = ",".join(_quoted(item.name) for item in arrow if _is_exact(item, schema))
        return cls(
            schema, FooterStats(schema, (), {_STATS_COLUMNS: exact or _quoted("\0")}, trusts_floats=True).of(footer)
        )


def _is_exact(item: pa.Field, schema: StructType) -> bool:
    from deltalakedb.data.footers import has_footer_bounds

    field = schema.field(item.name)
    assert field is not None
    return has_footer_bounds(item.type, field.type)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _merged(schemas: Sequence[StructType], paths: Sequence[str]) -> list[StructField]:
    """Return all columns of all files; nullable if it is nullable or missing in any file."""
    fields: dict[str, StructField] = {}
    for schema, path in zip(schemas, paths, strict=True):
        for item in schema.fields:
            first = fields.setdefault(item.name, item)
            if _plain(first.type) != _plain(item.type):
                raise SchemaMismatchError(
                    f"Fail to merge schema field '{item.name}' because the from data_type = {first.type} does not "
                    f"equal {item.type}, which it is in {path}; a table has one type for a column: rewrite the file"
                )
            fields[item.name] = replace(first, nullable=first.nullable or item.nullable, metadata={})
    everywhere = {name for name in fields if all(schema.field(name) is not None for schema in schemas)}
    return [item if name in everywhere else replace(item, nullable=True) for name, item in fields.items()]


def _plain(kind: DataType) -> DataType:
    """Return a type without its nullability."""
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
