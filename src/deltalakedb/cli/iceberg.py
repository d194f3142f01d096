"""`dl iceberg`: registers Iceberg tables by their metadata files, and gives those files to other catalogs."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from deltalakedb.cli import output
from deltalakedb.cli.options import (
    CatalogOption,
    CommandGroup,
    StorageOption,
    TableArgument,
    command,
    open_catalog,
    storage_options,
)
from deltalakedb.exceptions import ConfigError, NotSayableInIcebergError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltalakedb.catalog.catalog import Catalog
    from deltalakedb.iceberg.catalog import LoadedTable
    from deltalakedb.store.registry import TableRow

group = typer.Typer(
    cls=CommandGroup,
    help="Register Iceberg tables, and give them to other catalogs and to Delta readers.",
    no_args_is_help=True,
)


def add_to(app: typer.Typer) -> None:
    command(group, "register", register, reads=False)
    command(group, "export", export)
    command(group, "metadata", metadata)
    command(group, "mirror", mirror)
    app.add_typer(group, name="iceberg")


def register(
    location: Annotated[
        str, typer.Argument(metavar="METADATA", help="The table's or view's newest metadata.json file.")
    ],
    as_: Annotated[str, typer.Option("--as", metavar="NAME", help="The name in this catalog, as namespace.name.")],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="If an Iceberg table has the name, give it this metadata.")
    ] = False,
    storage_option: StorageOption = None,
    catalog: CatalogOption = None,
) -> None:
    """Register an Iceberg table or view that exists already. Its files stay where they are and remain yours.

    From then on only this catalog may commit to it: remove it from the catalog that had it.
    """
    from deltalakedb.iceberg.registering import register as register_file

    path = location if "://" in location or location.startswith("file:") else f"file://{os.path.abspath(location)}"
    with open_catalog(catalog, creates=True) as cat:
        registered = register_file(cat, path, as_, overwrite=overwrite, options=storage_options(storage_option))
    output.say(f"registered the {registered.mode} {registered.full_name} at {registered.location}")


def export(
    table: TableArgument,
    to: Annotated[
        str | None, typer.Option("--to", metavar="FOLDER", help="Copy the file into this folder, and print its place.")
    ] = None,
    storage_option: StorageOption = None,
    catalog: CatalogOption = None,
) -> None:
    """Print where the current metadata.json of an Iceberg table or view is, so that another catalog can register it.

    Both catalogs then have the table, and only one of them may commit to it: drop it in the other, without --purge.
    """
    from deltalakedb.iceberg.describing import load_version
    from deltalakedb.iceberg.registering import copy_metadata

    with open_catalog(catalog) as cat:
        loaded = load_version(cat, table)
        place = loaded.metadata_location
        if to is not None:
            place = copy_metadata(loaded, to, storage_options(storage_option))
    value = {"table": str(loaded.name), "version": loaded.version, "metadata_location": place}
    output.emit(value, lambda: print(place))


def metadata(
    table: TableArgument,
    version: Annotated[int | None, typer.Option("--version", metavar="N", help="The metadata of this version.")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Say whether Iceberg clients can read a Delta table, and why not.")
    ] = False,
    catalog: CatalogOption = None,
) -> None:
    """Print the metadata of an Iceberg table or view, as its metadata.json has it.

    Of a Delta table it is what Iceberg clients get of the table as it is now.
    """
    from deltalakedb.catalog.entries import require_table
    from deltalakedb.iceberg.describing import load_version
    from deltalakedb.store.names import parse_table_name

    with open_catalog(catalog) as cat:
        with cat.store.read() as conn:
            row = require_table(conn, parse_table_name(table))
        if row.is_delta:
            _delta_metadata(cat, row, version, check=check)
            return
        if check:
            raise ConfigError(f"{table} is an Iceberg table or view already: --check is for Delta tables")
        output.emit_json(_as_in_file(load_version(cat, table, version)))


def _delta_metadata(cat: Catalog, table: TableRow, version: int | None, *, check: bool) -> None:
    from deltalakedb.iceberg.delta.cleaning import lost_files
    from deltalakedb.iceberg.delta.delta_tables import DeltaTables

    if version is not None:
        raise ConfigError(f"{table.full_name} is a Delta table: its metadata for Iceberg holds all versions")
    try:
        state = DeltaTables(cat).load(table)
        lost = lost_files(cat.store, table, cat.storage_options_of(table)) if check else []
        problems: Sequence[str] = [_describe_lost(lost)] if lost else []
    except NotSayableInIcebergError as error:
        if not check:
            raise
        problems = error.problems or [str(error)]
    if problems:
        value = {"table": table.full_name, "readable": False, "problems": list(problems)}
        output.emit(value, lambda: print(*problems, sep="\n"))
        raise typer.Exit(1)
    if check:
        value = {"table": table.full_name, "readable": True, "problems": []}
        output.emit(value, lambda: print(f"Iceberg clients can read {table.full_name}"))
    else:
        output.emit_json(state.metadata)


def _describe_lost(names: Sequence[str]) -> str:
    return f"files in its folder _iceberg are lost ({len(names)}, such as {names[0]}): run `dl gc`"


def mirror(
    table: TableArgument,
    storage_option: StorageOption = None,
    catalog: CatalogOption = None,
) -> None:
    """Let Delta readers read an Iceberg table: bring the `_delta_log` in its location up to its newest version.

    Repeat it after commits to the table. Delta writers are refused; a table that Delta readers would read wrongly is
    not mirrored, and the error says why.
    """
    with open_catalog(catalog) as cat:
        mirrored = cat.mirror_iceberg(table, storage_options(storage_option))
    value = {**asdict(mirrored), "commits": list(mirrored.commits)}
    added = f"{len(mirrored.commits)} commits added" if mirrored.commits else "nothing to add"
    output.emit(
        value,
        lambda: print(
            f"{mirrored.table} version {mirrored.version} is version {mirrored.delta_version} of the Delta table at "
            f"{mirrored.location} ({added})"
        ),
    )


def _as_in_file(loaded: LoadedTable) -> object:
    from deltalakedb.iceberg.statements import render

    return json.loads(render(loaded.metadata))
