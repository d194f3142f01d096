"""`dl files` and `dl plan`: live files, and what a predicate keeps and prunes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltalakedb.cli import output
from deltalakedb.cli.options import CatalogOption, TableArgument, command, open_catalog, travel_time

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


def files(
    table: TableArgument,
    where: WhereOption = None,
    version: VersionOption = None,
    timestamp: TimestampOption = None,
    catalog: CatalogOption = None,
) -> None:
    """List the active files of a table, or those that may match a predicate."""
    with open_catalog(catalog) as cat:
        opened = _open_at(cat, table, version, timestamp)
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
        planned = _open_at(cat, table, version, timestamp).plan(where, columns=["size"], explain=True)
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


def _rows(found: pa.Table) -> Iterator[dict[str, Any]]:
    for batch in found.to_batches(max_chunksize=10_000):
        yield from batch.to_pylist()


def _json_rows(found: pa.Table) -> Iterator[dict[str, Any]]:
    for row in _rows(found):
        parsed = {name: _parsed(row[name]) for name in ("partition_values", "stats", "deletion_vector")}
        yield {**row, **parsed}


def _parsed(text: str | None) -> Any:
    """Parse JSON; statistics that are no JSON stay text."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text
