"""`dl tables`, `dl show`, `dl rename`, `dl drop`: the registry."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltalakedb.cli import output
from deltalakedb.cli.options import CatalogOption, DryRunOption, TableArgument, command, open_catalog

if TYPE_CHECKING:
    from deltalakedb.log.types import StructType
    from deltalakedb.table import DeltaTable


def add_to(app: typer.Typer) -> None:
    command(app, "tables", tables)
    command(app, "show", show)
    command(app, "rename", rename, reads=False)
    command(app, "drop", drop, reads=False)


def tables(
    namespace: Annotated[str | None, typer.Argument(metavar="NAMESPACE", help="Only tables in this namespace.")] = None,
    catalog: CatalogOption = None,
) -> None:
    """List the tables of the catalog."""
    with open_catalog(catalog) as cat:
        found = cat.table_infos(namespace)
    columns = ("table", "mode", "state", "version", "committed", "files", "size", "location")
    rows = [
        (
            info.full_name,
            info.mode,
            info.state,
            info.version,
            output.iso_ms(info.committed_at_ms),
            info.num_files,
            output.size(info.size_bytes),
            info.location,
        )
        for info in found
    ]
    value = [{"table": info.full_name, **asdict(info)} for info in found]
    output.emit(value, lambda: output.table(columns, rows, right=("version", "files", "size")))


def show(
    table: TableArgument,
    version: Annotated[int | None, typer.Option("--version", metavar="N", help="The version to show.")] = None,
    catalog: CatalogOption = None,
) -> None:
    """Show a table: where it is, its version, schema, protocol, properties and counts."""
    with open_catalog(catalog) as cat:
        opened = cat.table(table, version=version)
        value = _description(opened)
    output.emit(value, lambda: _print_description(value, opened.schema()))


def rename(
    table: TableArgument,
    new_name: Annotated[str, typer.Argument(metavar="NEW_NAME", help="The new name, as namespace.name.")],
    catalog: CatalogOption = None,
) -> None:
    """Give a table another name; its location and history stay."""
    with open_catalog(catalog) as cat:
        cat.rename_table(table, new_name)
    output.say(f"renamed {table} to {new_name}")


def drop(
    table: TableArgument,
    dry_run: DryRunOption = False,
    catalog: CatalogOption = None,
) -> None:
    """Take a table out of the catalog. Its files are not touched."""
    with open_catalog(catalog) as cat:
        found = cat.table(table)
        if not dry_run:
            cat.drop_table(table)
    would = "would unregister" if dry_run else "unregistered"
    output.say(f"{would} {found.name} ({found.mode}, version {found.version()}); the files at {found.table_uri} stay")


def _description(table: DeltaTable) -> dict[str, Any]:
    metadata, protocol, totals = table.metadata(), table.protocol(), table.totals()
    return {
        "table": table.name,
        "mode": table.mode,
        "location": table.table_uri,
        "version": table.version(),
        "committed_at_ms": table.committed_at_ms(),
        "id": metadata.id,
        "name": metadata.name,
        "description": metadata.description,
        "num_files": totals.num_files,
        "size_bytes": totals.size_bytes,
        "num_records": None if totals.files_without_records else totals.num_records,
        "partition_columns": metadata.partition_columns,
        "properties": metadata.configuration,
        "protocol": protocol._asdict(),
        "domain_metadata": table.domain_metadata(),
        "schema": json.loads(table.schema().to_json()),
    }


def _print_description(value: dict[str, Any], schema: StructType) -> None:
    protocol = value["protocol"]
    features = sorted({*(protocol["reader_features"] or ()), *(protocol["writer_features"] or ())})
    output.fields(
        {
            "table": value["table"],
            "mode": value["mode"],
            "location": value["location"],
            "version": value["version"],
            "committed": output.iso_ms(value["committed_at_ms"]),
            "id": value["id"],
            "description": value["description"],
            "files": value["num_files"],
            "size": output.size(value["size_bytes"]),
            "rows": "unknown (some files do not say)" if value["num_records"] is None else value["num_records"],
            "partitioned by": ", ".join(value["partition_columns"]),
            "protocol": f"reader {protocol['min_reader_version']}, writer {protocol['min_writer_version']}",
            "features": ", ".join(features),
            **{f"property {key}": text for key, text in sorted(value["properties"].items())},
            **{f"domain {key}": text for key, text in sorted(value["domain_metadata"].items())},
        }
    )
    print()
    rows = [(column.name, column.type, "" if column.nullable else "not null") for column in schema.fields]
    output.table(("column", "type", "null"), rows)
