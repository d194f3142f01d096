"""What `dl show`, `dl files`, `dl plan` and `dl read` print of Iceberg tables and views."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from deltalakedb.cli import output
from deltalakedb.exceptions import DeltaError, MissingExtraError, PredicateError

if TYPE_CHECKING:
    import pyarrow as pa

    from deltalakedb.catalog.catalog import Catalog
    from deltalakedb.iceberg.catalog import LoadedTable
    from deltalakedb.store.planning import PlannedFiles

_COLUMNS = ("path", "size", "num_records", "partition", "content")
_CONTENTS = ("data", "position deletes", "equality deletes")


def show(catalog: Catalog, name: str, version: int | None) -> None:
    """Print an Iceberg table or view at a version."""
    from deltalakedb.iceberg.describing import describe, load_version

    value = describe(catalog, load_version(catalog, name, version))
    output.emit(value, lambda: _print_view(value) if value["format"] == "view" else _print_table(value))


def _print_table(value: Mapping[str, Any]) -> None:
    output.fields(
        {
            **_common_fields(value),
            "snapshot": value["snapshot_id"],
            "snapshots": value["num_snapshots"],
            "branches and tags": ", ".join(sorted(value["refs"])),
            "files": value["num_files"],
            "size": output.size(value["size_bytes"]),
            "rows": "unknown (the snapshot does not say)" if value["num_records"] is None else value["num_records"],
            "delete files": value["num_delete_files"],
            "partitioned by": ", ".join(value["partitioned_by"]),
            "sorted by": ", ".join(value["sorted_by"]),
            **_property_fields(value),
        }
    )
    _print_columns(value)


def _print_view(value: Mapping[str, Any]) -> None:
    texts = {f"SQL of {dialect}": text for dialect, text in sorted(value["sql"].items())}
    namespace = ".".join(value["default_namespace"] or ())
    output.fields({**_common_fields(value), "default namespace": namespace, **texts, **_property_fields(value)})
    _print_columns(value)


def _common_fields(value: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "table": value["table"],
        "format": f"{value['format']}, version {value['format_version']} of the format",
        "location": value["location"],
        "version": value["version"],
        "committed": output.iso_ms(value["committed_at_ms"]),
        "id": value["id"],
        "metadata file": value["metadata_file"],
    }


def _property_fields(value: Mapping[str, Any]) -> dict[str, Any]:
    return {f"property {key}": text for key, text in sorted(value["properties"].items())}


def _print_columns(value: Mapping[str, Any]) -> None:
    from deltalakedb.iceberg.describing import columns_of

    columns = columns_of(value["schema"])
    has_comments = any(comment for *_, comment in columns)
    rows = [
        (name, text, "not null" if is_required else "", *((comment,) if has_comments else ()))
        for name, text, is_required, comment in columns
    ]
    print()
    output.table(("column", "type", "null", *(("comment",) if has_comments else ())), rows)


def files(catalog: Catalog, name: str, where: str | None, version: int | None, at_ms: int | None) -> None:
    """Print the data and delete files of an Iceberg table, or the data files that may match a predicate."""
    loaded = _load(catalog, name, version, at_ms)
    columns: tuple[str, ...]
    if where is None:
        rows, columns = _all_files(_open(catalog, loaded)), _COLUMNS
    else:
        rows, columns = _planned_files(loaded, _plan(catalog, loaded, where).files), (*_COLUMNS, "delete_files")
    if output.settings.json:
        output.records(columns, rows)
    else:
        values = ([row[column] for column in _COLUMNS] for row in rows)
        output.table(("path", "size", "rows", "partition", "content"), values, right=("size", "rows"))


def _all_files(table: Any) -> Iterator[dict[str, Any]]:
    for row in table.inspect.files().to_pylist():
        yield {
            "path": row["file_path"],
            "size": row["file_size_in_bytes"],
            "num_records": row["record_count"],
            "partition": row["partition"] or {},
            "content": _CONTENTS[row["content"]],
        }


def _planned_files(loaded: LoadedTable, planned: pa.Table) -> Iterator[dict[str, Any]]:
    specs = {spec["spec-id"]: spec["fields"] for spec in loaded.metadata["partition-specs"]}
    for row in planned.to_pylist():
        names = [field["name"] for field in specs.get(row["spec_id"], ())]
        values = json.loads(row["partition_values"] or "[]")
        yield {
            "path": row["path"],
            "size": row["size"],
            "num_records": row["num_records"],
            "partition": dict(zip(names, values, strict=False)),
            "content": _CONTENTS[0],
            "delete_files": row["delete_files"],
        }


def plan(catalog: Catalog, name: str, where: str, version: int | None, at_ms: int | None) -> None:
    """Print what a predicate keeps and prunes of an Iceberg table."""
    loaded = _load(catalog, name, version, at_ms)
    planned = _plan(catalog, loaded, where, explain=True)
    value = {
        "table": str(loaded.name),
        "version": loaded.version,
        "num_files": planned.num_files,
        "num_pruned": planned.num_pruned,
        "size_bytes": sum(planned.files.column("size").to_pylist()),
        "steps": [asdict(step) for step in planned.steps],
    }
    output.emit(value, lambda: print(f"{loaded.name} version {loaded.version}: {planned.explain()}"))


def _plan(catalog: Catalog, loaded: LoadedTable, where: str, *, explain: bool = False) -> PlannedFiles:
    try:
        from deltalakedb.iceberg.planning.people import plan_files
        from deltalakedb.iceberg.planning.reading import StoredFiles
    except ModuleNotFoundError:
        raise MissingExtraError("the plan of an Iceberg table", "iceberg") from None
    read = StoredFiles(loaded.options)
    return plan_files(catalog.store, loaded.table_id, loaded.metadata, where, read=read, explain=explain)


def read(
    catalog: Catalog,
    name: str,
    *,
    where: str | None,
    columns: list[str] | None,
    limit: int | None,
    version: int | None,
    at_ms: int | None,
) -> pa.RecordBatchReader:
    """Return the rows of an Iceberg table."""
    import pyarrow as pa

    row_filter = {} if where is None else {"row_filter": where}
    with _predicates(where):
        scan = _open(catalog, _load(catalog, name, version, at_ms)).scan(
            selected_fields=("*",) if columns is None else tuple(columns),
            case_sensitive=False,
            limit=limit,
            **row_filter,
        )
        reader = scan.to_arrow_batch_reader()
    if columns is None:
        return reader
    in_order = [reader.schema.names[_place(reader.schema, column)] for column in columns]
    schema = pa.schema([reader.schema.field(column) for column in in_order])
    return pa.RecordBatchReader.from_batches(schema, (batch.select(in_order) for batch in reader))


def _place(schema: pa.Schema, column: str) -> int:
    """Return the place of a column by its name in any case."""
    return next(place for place, name in enumerate(schema.names) if name.lower() == column.lower())


def _load(catalog: Catalog, name: str, version: int | None, at_ms: int | None) -> LoadedTable:
    """Return a version of a table; raise for a view."""
    from deltalakedb.iceberg.describing import load_version

    loaded = load_version(catalog, name, version, at_ms=at_ms)
    if "view-uuid" in loaded.metadata:
        raise DeltaError(f"{loaded.name} is a view, which has no files here; `dl show {loaded.name}` prints its SQL")
    return loaded


def _open(catalog: Catalog, loaded: LoadedTable) -> Any:  # a table of PyIceberg
    from deltalakedb.iceberg.opening import open_loaded

    return open_loaded(catalog, loaded)


@contextmanager
def _predicates(where: str | None) -> Iterator[None]:
    """Raise PredicateError for what PyIceberg says of a predicate or a column that it cannot use."""
    try:
        yield
    except DeltaError:
        raise
    except Exception as error:  # PyIceberg's parser has errors of a library of its own
        if not isinstance(error, ValueError) and type(error).__name__ != "ParseException":
            raise
        if not isinstance(error, ValueError):
            raise PredicateError(f'{where!r} is no predicate that PyIceberg understands, such as "id = 1"') from error
        what = "the columns" if where is None else f"the predicate {where!r} or the columns"
        raise PredicateError(f"{what} cannot be used: {error}") from error
