"""`dl create`, `dl tables`, `dl show`, `dl rename`, `dl drop`, `dl undrop`: the registry."""

from __future__ import annotations

import difflib
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltalakedb.cli import iceberg_tables, output
from deltalakedb.cli.options import (
    CatalogOption,
    DryRunOption,
    StorageOption,
    TableArgument,
    WarehouseOption,
    command,
    key_values,
    open_catalog,
    storage_options,
)
from deltalakedb.exceptions import DeltaError, NotADeltaTableError
from deltalakedb.store.names import name_key, parse_namespace, parse_table_name

if TYPE_CHECKING:
    from deltalakedb.catalog.catalog import Catalog
    from deltalakedb.catalog.entries import DroppedTable
    from deltalakedb.log.schema.types import StructType
    from deltalakedb.table import DeltaTable

SchemaOption = Annotated[
    str | None,
    typer.Option(
        "--schema",
        metavar="SCHEMA",
        help="The columns: text such as 'id long not null, day date', or a JSON file with a Delta schema.",
    ),
]

PartitionOption = Annotated[
    list[str] | None,
    typer.Option(
        "--partition-by", metavar="COLUMN", help="A partition column; repeatable, or several separated by commas."
    ),
]


def add_to(app: typer.Typer) -> None:
    command(app, "create", create, reads=False)
    command(app, "tables", tables)
    command(app, "show", show)
    command(app, "rename", rename, reads=False)
    command(app, "drop", drop, reads=False)
    command(app, "undrop", undrop, reads=False)


def create(
    table: TableArgument,
    schema: SchemaOption = None,
    partition_by: PartitionOption = None,
    location: Annotated[
        str | None,
        typer.Option("--location", metavar="PATH", help="The folder for its files; by default below the warehouse."),
    ] = None,
    warehouse: WarehouseOption = None,
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="KEY=VALUE", help="A table property; repeatable."),
    ] = None,
    description: Annotated[
        str | None, typer.Option("--description", metavar="TEXT", help="What the table is for.")
    ] = None,
    if_missing: Annotated[
        bool, typer.Option("--if-missing", help="Do nothing if a table of this name exists.")
    ] = False,
    storage_option: StorageOption = None,
    dry_run: DryRunOption = False,
    catalog: CatalogOption = None,
) -> None:
    """Create an empty managed table: SQL decides about its commits, and `_delta_log` is the mirror.

    If a Delta table exists at the location, it is attached instead; its first write through the catalog makes it
    managed. --schema is not needed then.
    """
    with open_catalog(catalog, creates=True, warehouse=warehouse) as cat:
        existed = if_missing and _exists(cat, table)
        definition: dict[str, Any] = {
            "schema": None if schema is None else _schema_of(schema),
            "partition_by": [part.strip() for text in partition_by or () for part in text.split(",") if part.strip()],
            "location": location,
            "properties": key_values(properties, "--property"),
            "description": description,
            "storage_options": storage_options(storage_option),
        }
        if location is not None and not existed and not dry_run and cat.attach_existing(table, **definition):
            name, version, place = cat.table(table).name, cat.table(table).version(), cat.table(table).table_uri
            output.say(f"attached {name}, version {version}, which is at {place} already")
            return
        if schema is None:
            raise typer.BadParameter("is needed to create a table", param_hint="--schema")
        with cat.begin(tables=[table]) as tx:
            tx.create_table(table, mode="ignore" if if_missing else "error", **definition)
            created = tx.table(table)
            if dry_run:
                tx.rollback()
    if existed:
        output.say(f"{created.name} exists already ({created.mode}, version {created.version()}); nothing was done")
    else:
        output.say(f"{'would create' if dry_run else 'created'} {created.name} at {created.table_uri}")


def _exists(catalog: Catalog, table: str) -> bool:
    name = parse_table_name(table)
    return any(parse_table_name(existing).key == name.key for existing in catalog.tables(name.namespace))


def _schema_of(text: str) -> StructType:
    """The schema in the text, or in the file that it names."""
    from deltalakedb.operations.definition import to_schema

    path = Path(text)
    try:
        is_file = path.suffix.lower() == ".json" or path.is_file()
        return to_schema(path.read_text(encoding="utf-8") if is_file else text)
    except OSError as error:
        raise typer.BadParameter(f"{text} cannot be read: {error.strerror}", param_hint="--schema") from None
    except (DeltaError, UnicodeDecodeError) as error:
        raise typer.BadParameter(str(error), param_hint="--schema") from None


def tables(
    namespace: Annotated[str | None, typer.Argument(metavar="NAMESPACE", help="Only tables in this namespace.")] = None,
    dropped: Annotated[bool, typer.Option("--dropped", help="List only dropped tables that can be undropped.")] = False,
    catalog: CatalogOption = None,
) -> None:
    """List the tables and views of the catalog, of both formats."""
    with open_catalog(catalog) as cat:
        if dropped:
            _list_dropped(cat.dropped_tables(namespace))
            return
        infos = cat.table_infos(namespace)
        if namespace is not None and not infos:
            _hint_at_namespaces(cat, namespace)
    columns = ("table", "format", "mode", "state", "version", "committed", "files", "size", "location")
    rows = [
        (
            info.full_name,
            info.format,
            info.mode if info.format == "delta" else "managed",
            info.state,
            info.version,
            output.iso_ms(info.committed_at_ms),
            info.num_files,
            output.size(info.size_bytes),
            info.location,
        )
        for info in infos
    ]
    value = [{"table": info.full_name, **asdict(info)} for info in infos]
    output.emit(value, lambda: output.table(columns, rows, right=("version", "files", "size")))


def _hint_at_namespaces(catalog: Catalog, namespace: str) -> None:
    """Say on stderr why the list is empty: the namespace has no tables, or does not exist."""
    namespaces = {name_key(existing): existing for existing in catalog.namespaces()}
    key = name_key(parse_namespace(namespace))
    if key in namespaces or any(existing.startswith(f"{key}.") for existing in namespaces):
        output.say(f"the namespace {namespace} has no tables; `dl tables --dropped {namespace}` lists dropped ones")
        return
    near = difflib.get_close_matches(key, namespaces, n=1)
    hint = f"did you mean {namespaces[near[0]]}?" if near else "`dl namespace list` lists those that exist"
    output.say(f"there is no namespace {namespace}; {hint}")


def _list_dropped(tables: list[DroppedTable]) -> None:
    columns = ("table", "dropped", "undrop until", "version", "files", "size", "location")
    rows = [
        (
            dropped.full_name,
            output.iso_ms(dropped.dropped_at_ms),
            output.iso_ms(dropped.undrop_until_ms),
            dropped.version,
            dropped.num_files,
            output.size(dropped.size_bytes),
            dropped.location,
        )
        for dropped in tables
    ]
    value = [{"table": dropped.full_name, **asdict(dropped)} for dropped in tables]
    output.emit(value, lambda: output.table(columns, rows, right=("version", "files", "size")))


def show(
    table: TableArgument,
    version: Annotated[int | None, typer.Option("--version", metavar="N", help="The version to show.")] = None,
    catalog: CatalogOption = None,
) -> None:
    """Show a table or view: where it is, its version, schema, protocol, properties and counts."""
    from deltalakedb.schema import to_struct

    with open_catalog(catalog) as cat:
        try:
            opened = cat.table(table, version=version)
        except NotADeltaTableError:
            iceberg_tables.show(cat, table, version)
            return
        value = _description(opened)
    output.emit(value, lambda: _print_description(value, to_struct(opened.schema())))


def rename(
    table: TableArgument,
    new_name: Annotated[str, typer.Argument(metavar="NEW_NAME", help="The new name, as namespace.name.")],
    catalog: CatalogOption = None,
) -> None:
    """Rename a table or view; its location and history stay."""
    with open_catalog(catalog) as cat:
        cat.rename_table(table, new_name)
    output.say(f"renamed {table} to {new_name}")


def drop(
    table: TableArgument,
    purge: Annotated[bool, typer.Option("--purge", help="Delete the table's files too; managed tables only.")] = False,
    dry_run: DryRunOption = False,
    catalog: CatalogOption = None,
) -> None:
    """Drop a table or view. If the catalog chose a Delta table's folder, `dl undrop` can bring it back for some days.

    A Delta table whose location was given is detached first, so that any Delta writer can write its files. The files of
    an Iceberg table stay, so that `dl iceberg register` can bring it back; with --purge they are deleted.
    """
    with open_catalog(catalog) as cat:
        info = cat.table_info(table)
        is_ours = (info.mode, info.files_owner) == ("managed", "catalog")
        keeps = is_ours and cat.config.catalog_drop_retention > 0 and not purge
        if dry_run:
            with cat.begin(tables=[table]) as tx:
                tx.drop_table(table, purge)
                tx.rollback()
        else:
            cat.drop_table(table, purge)
    verb = "drop" if info.mode in ("managed", "iceberg", "view") else "unregister"
    action = f"would {verb}" if dry_run else "dropped" if verb == "drop" else "unregistered"
    goes = purge or (is_ours and not keeps)
    files = ("would be deleted" if dry_run else "are deleted") if goes else "stay"
    name = info.full_name
    hint = f" for {cat.config.catalog_drop_retention:g} days; `dl undrop {name}` brings it back" if keeps else ""
    output.say(f"{action} {name} ({info.mode}, version {info.version}); the files at {info.location} {files}{hint}")


def undrop(
    table: TableArgument,
    as_: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="Bring it back under this name, as namespace.name.")
    ] = None,
    dry_run: DryRunOption = False,
    catalog: CatalogOption = None,
) -> None:
    """Bring a dropped table back, with its files and its history. `dl tables --dropped` lists the candidates."""
    with open_catalog(catalog) as cat, cat.begin() as tx:
        tx.undrop_table(table, as_)
        back = tx.table(as_ or table)
        name, version = back.name, back.version()
        if dry_run:
            tx.rollback()
    output.say(f"{'would bring back' if dry_run else 'brought back'} {name}, version {version}")


def _description(table: DeltaTable) -> dict[str, Any]:
    from deltalakedb.log.checks.properties import tags_of

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
        "tags": tags_of(metadata.configuration),
        "protocol": protocol._asdict(),
        "domain_metadata": table.domain_metadata(),
        "schema": json.loads(table.schema().to_json()),
    }


def _print_description(value: dict[str, Any], schema: StructType) -> None:
    from deltalakedb.log.checks.properties import TAG_PREFIX

    protocol = value["protocol"]
    features = sorted({*(protocol["reader_features"] or ()), *(protocol["writer_features"] or ())})
    properties = sorted(value["properties"].items())
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
            **{f"property {key}": text for key, text in properties if not key.startswith(TAG_PREFIX)},
            **{f"tag {key}": text for key, text in sorted(value["tags"].items())},
            **{f"domain {key}": text for key, text in sorted(value["domain_metadata"].items())},
        }
    )
    print()
    _print_columns(schema)


def _print_columns(schema: StructType) -> None:
    """Print the columns, and nested ones that have a comment or tags."""
    from deltalakedb.log.checks.properties import comment_of, tags_of
    from deltalakedb.log.protocol.features import every_field

    outermost = {id(column) for column in schema.fields}
    shown = [
        (path, column, comment_of(column) or "", tags_of(column.metadata))
        for path, column in every_field(schema)
        if id(column) in outermost or comment_of(column) or tags_of(column.metadata)
    ]
    is_described = any(comment or tags for _, _, comment, tags in shown)
    names = ("column", "type", "null", *(("comment", "tags") if is_described else ()))
    rows = []
    for path, column, comment, tags in shown:
        described = (comment, ", ".join(f"{key}={text}" for key, text in sorted(tags.items())))
        null = "" if column.nullable else "not null"
        rows.append((path, column.type, null, *(described if is_described else ())))
    output.table(names, rows)
