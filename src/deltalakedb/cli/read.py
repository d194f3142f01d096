"""`dl files`, `dl plan`, `dl read`: the live files of a table, what a predicate keeps and prunes, and the rows."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltalakedb.cli import iceberg_tables, output
from deltalakedb.cli.options import CatalogOption, TableArgument, command, instant, open_catalog, travel_time
from deltalakedb.exceptions import NotADeltaTableError

if TYPE_CHECKING:
    import pyarrow as pa

    from deltalakedb.catalog.catalog import Catalog
    from deltalakedb.table import DeltaTable

WhereOption = Annotated[
    str | None, typer.Option("--where", "-w", metavar="PREDICATE", help="Only files that may hold a matching row.")
]
VersionOption = Annotated[int | None, typer.Option("--version", metavar="N", help="The table at this version.")]
TimestampOption = Annotated[
    str | None, typer.Option("--timestamp", metavar="TIME", help="The table as it was at this time (ISO 8601).")
]

_COLUMNS = ("path", "size", "modification_time", "partition_values", "stats", "deletion_vector")


def add_to(app: typer.Typer) -> None:
    command(app, "files", files)
    command(app, "plan", plan)
    command(app, "read", read)


def files(
    table: TableArgument,
    where: WhereOption = None,
    version: VersionOption = None,
    timestamp: TimestampOption = None,
    catalog: CatalogOption = None,
) -> None:
    """List the active files of a table, or those that may match a predicate."""
    with open_catalog(catalog) as cat:
        try:
            opened = _open_at(cat, table, version, timestamp)
        except NotADeltaTableError:
            iceberg_tables.files(cat, table, where, version, instant(timestamp, "--timestamp"))
            return
        file_table = opened.files(_COLUMNS) if where is None else opened.plan(where, columns=_COLUMNS).files
    if output.settings.json:
        output.records(_COLUMNS, _json_rows(file_table))
        return
    columns = ("path", "size", "modified", "partition")
    rows = (
        (row["path"], row["size"], output.iso_ms(row["modification_time"]), row["partition_values"])
        for row in _rows(file_table.select(["path", "size", "modification_time", "partition_values"]))
    )
    output.table(columns, rows, right=("size",))


def plan(
    table: TableArgument,
    where: Annotated[str, typer.Option("--where", "-w", metavar="PREDICATE", help="The predicate, in SQL.")],
    version: VersionOption = None,
    timestamp: TimestampOption = None,
    catalog: CatalogOption = None,
) -> None:
    """Show what a predicate keeps and prunes, and why."""
    with open_catalog(catalog) as cat:
        try:
            opened = _open_at(cat, table, version, timestamp)
        except NotADeltaTableError:
            iceberg_tables.plan(cat, table, where, version, instant(timestamp, "--timestamp"))
            return
        planned = opened.plan(where, columns=["size"], explain=True)
    value = {
        "table": planned.table,
        "version": planned.version,
        "num_files": planned.num_files,
        "num_pruned": planned.num_pruned,
        "size_bytes": sum(planned.files.column("size").to_pylist()),
        "steps": planned.steps(),
    }
    output.emit(value, lambda: print(planned.explain()))


def _open_at(cat: Catalog, name: str, version: int | None, timestamp: str | None) -> DeltaTable:
    if version is not None and timestamp is not None:
        raise typer.BadParameter("give --version or --timestamp, not both", param_hint="--timestamp")
    moment = travel_time(timestamp)
    if moment is None:
        return cat.table(name, version=version)
    table = cat.table(name)
    table.load_as_version(moment)
    return table


def _rows(file_table: pa.Table) -> Iterator[dict[str, Any]]:
    for batch in file_table.to_batches(max_chunksize=10_000):
        yield from batch.to_pylist()


def _json_rows(file_table: pa.Table) -> Iterator[dict[str, Any]]:
    for row in _rows(file_table):
        parsed = {name: _parse_json(row[name]) for name in ("partition_values", "stats", "deletion_vector")}
        yield {**row, **parsed}


def _parse_json(text: str | None) -> Any:
    """Parse JSON; statistics that are no JSON stay text."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


def read(
    table: TableArgument,
    where: Annotated[
        str | None, typer.Option("--where", "-w", metavar="PREDICATE", help="Only rows for which this SQL is true.")
    ] = None,
    columns: Annotated[
        str | None, typer.Option("--columns", metavar="C1,C2", help="Only these columns, in this order.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", metavar="N", min=0, help="At most this many rows.")
    ] = None,
    version: VersionOption = None,
    timestamp: TimestampOption = None,
    csv: Annotated[bool, typer.Option("--csv", help="Print the rows as CSV.")] = False,
    catalog: CatalogOption = None,
) -> None:
    """Print rows of a table. SQL chooses the files; only those that may hold a matching row are opened."""
    if csv and output.settings.json:
        raise typer.BadParameter("give --csv or --json, not both", param_hint="--csv")
    with open_catalog(catalog) as cat:
        chosen = None if columns is None else [name.strip() for name in columns.split(",")]
        try:
            opened = _open_at(cat, table, version, timestamp)
        except NotADeltaTableError:
            at_ms = instant(timestamp, "--timestamp")
            rows = iceberg_tables.read(
                cat, table, where=where, columns=chosen, limit=limit, version=version, at_ms=at_ms
            )
        else:
            rows = opened.to_pyarrow_reader(chosen, where)
        batches = _at_most(rows, limit)
        if csv:
            _print_csv(rows.schema, batches)
        else:
            output.records(rows.schema.names, _records(batches))


def _at_most(rows: pa.RecordBatchReader, limit: int | None) -> Iterator[pa.RecordBatch]:
    remaining = limit
    while remaining is None or remaining > 0:
        batch = next(rows, None)
        if batch is None:
            return
        part = batch if remaining is None else batch.slice(0, remaining)
        remaining = None if remaining is None else remaining - part.num_rows
        yield part


def _records(batches: Iterator[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    for batch in batches:
        for start in range(0, batch.num_rows, 10_000):
            for row in batch.slice(start, 10_000).to_pylist():
                yield {name: _to_json_value(value) for name, value in row.items()}


def _to_json_value(value: Any) -> Any:
    """A value that JSON can hold, without loss: times to the microsecond, decimals digit by digit."""
    match value:
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case date():
            return value.isoformat()
        case Decimal():
            return str(value)
        case bytes():
            return value.hex()
        case list() | tuple():
            return [_to_json_value(item) for item in value]
        case dict():
            return {key: _to_json_value(item) for key, item in value.items()}
    return value


def _print_csv(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
    """Print CSV; lists and structs, which CSV cannot hold, are written as JSON."""
    import csv
    import json

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(schema.names)
    for row in _records(batches):
        writer.writerow(
            json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value for value in row.values()
        )
