"""`dl attach`, `dl import`, `dl follow`: copy logs from files into SQL."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltalakedb.cli import output
from deltalakedb.cli.options import CatalogOption, StorageOption, command, open_catalog, storage_options
from deltalakedb.exceptions import DeltaError
from deltalakedb.runtime.signals import ended_by_signal

if TYPE_CHECKING:
    from deltalakedb.catalog.catalog import Catalog
    from deltalakedb.mirror.follow import FollowResult


class History(StrEnum):
    """How much of a table's history is copied."""

    full = "full"
    latest = "latest"


PathArgument = Annotated[str | None, typer.Argument(metavar="PATH", help="The table's folder or URL.")]
NameOption = Annotated[
    str | None, typer.Option("--as", envvar="DL_AS", metavar="NS.NAME", help="The table's name in the catalog.")
]
HistoryOption = Annotated[
    History,
    typer.Option(
        "--history", help="Copy every version that the files still have, or only from the newest checkpoint on."
    ),
]
RecursiveOption = Annotated[
    str | None,
    typer.Option("--recursive", metavar="PREFIX", help="Take every table below PREFIX, named after its folders."),
]
IntoOption = Annotated[
    str | None,
    typer.Option("--into", metavar="NAMESPACE", help="With --recursive: the namespace for the tables."),
]


def add_to(app: typer.Typer) -> None:
    command(app, "attach", attach)
    command(app, "import", import_)
    command(app, "follow", follow)


def attach(
    path: PathArgument = None,
    name: NameOption = None,
    history: HistoryOption = History.full,
    recursive: RecursiveOption = None,
    into: IntoOption = None,
    storage_option: StorageOption = None,
    catalog: CatalogOption = None,
) -> None:
    """Copy a table's log into SQL, read-only; `dl follow` updates the copy."""
    targets = _targets(path, name, recursive, into, storage_options(storage_option))
    _attach_all(catalog, targets, history, storage_options(storage_option))


def import_(
    path: PathArgument = None,
    name: NameOption = None,
    history: HistoryOption = History.full,
    recursive: RecursiveOption = None,
    into: IntoOption = None,
    rebuild: Annotated[
        str | None,
        typer.Option(
            "--rebuild",
            metavar="PREFIX",
            help="Fill an empty catalog from its own mirrors below PREFIX: names, ids, versions, transactions.",
        ),
    ] = None,
    take_over: Annotated[
        str | None,
        typer.Option(
            "--take-over",
            metavar="ID",
            help="With --rebuild: the catalog that this database becomes, if mirrors of several are found.",
        ),
    ] = None,
    storage_option: StorageOption = None,
    catalog: CatalogOption = None,
) -> None:
    """Import tables: their log is copied into SQL, which decides about commits from then on (attach and promote)."""
    options = storage_options(storage_option)
    if rebuild is not None:
        if path is not None or name is not None or recursive is not None or into is not None:
            raise typer.BadParameter("--rebuild finds and names the tables itself; give it alone")
        _rebuild(catalog, rebuild, take_over, options)
        return
    if take_over is not None:
        raise typer.BadParameter("--take-over goes with --rebuild")
    _attach_all(catalog, _targets(path, name, recursive, into, options), history, options, promote=True)


def follow(
    tables: Annotated[
        list[str] | None, typer.Argument(metavar="TABLE", help="The tables; by default all followers.")
    ] = None,
    interval: Annotated[
        float | None,
        typer.Option("--interval", metavar="SECONDS", min=0.1, help="Repeat at this interval until interrupted."),
    ] = None,
    storage_option: StorageOption = None,
    catalog: CatalogOption = None,
) -> None:
    """Read the commits that other writers added to the files since the last time."""
    options = storage_options(storage_option)
    with open_catalog(catalog) as cat:
        if interval is not None:
            _follow_on(cat, tables, options, interval)
        elif not _follow_once(cat, tables, options):
            raise typer.Exit(1)


# -- attach and import


def _targets(
    path: str | None, name: str | None, recursive: str | None, into: str | None, options: dict[str, str] | None
) -> Iterator[tuple[str, str]]:
    """The location and the name of each table."""
    if recursive is not None:
        if path is not None or name is not None:
            raise typer.BadParameter("--recursive finds and names the tables itself; leave PATH and --as out")
        return _find_tables(recursive, into, options)
    if path is None or name is None:
        raise typer.BadParameter("give PATH and --as NS.NAME, or --recursive PREFIX")
    if into is not None:
        raise typer.BadParameter("--into goes with --recursive; here --as names the namespace")
    return iter([(path, name)])


def _find_tables(prefix: str, into: str | None, options: dict[str, str] | None) -> Iterator[tuple[str, str]]:
    from deltalakedb.files.discovery import find_tables
    from deltalakedb.operations.folder import shows_iceberg_table
    from deltalakedb.storage.location import canonical_location

    root = canonical_location(prefix, options)
    for location in find_tables(prefix, options):
        if shows_iceberg_table(location, options):
            output.say(f"{location} is left out: its _delta_log shows an Iceberg table to Delta readers")
            continue
        yield location, name_below(root, location, into)


def name_below(root: str, location: str, into: str | None) -> str:
    """A table's name from its folders below `root`: the last one is the name, those before it the namespace."""
    from urllib.parse import unquote

    from deltalakedb.store.names import join_namespace, namespace_parts

    below = location.removeprefix(root).strip("/") or location.rstrip("/").rpartition("/")[2]
    parts = [_as_name_part(unquote(part)) for part in below.split("/")]
    return join_namespace([*(namespace_parts(into) if into else ()), *parts])


def _as_name_part(folder: str) -> str:
    """A folder's name; characters that a name has only in backticks, or not at all, become underscores."""
    from deltalakedb.store.names import MAX_PART_LENGTH, is_name_character

    return "".join(char if is_name_character(char) else "_" for char in folder)[:MAX_PART_LENGTH]


def _attach_all(
    catalog: str | None,
    targets: Iterator[tuple[str, str]],
    history: History,
    options: dict[str, str] | None,
    *,
    promote: bool = False,
) -> None:
    done: list[dict[str, Any]] = []
    failed = False
    with open_catalog(catalog, creates=True) as cat:
        for location, name in targets:
            try:
                done.append(_attach_one(cat, location, name, history, options, promote=promote))
            except DeltaError as error:
                # One table among many: the others are still attached.
                failed = True
                output.fail(error)
    if not done and not failed:
        output.warn("no Delta table was found there")
    output.emit(done, lambda: None)
    if failed:
        raise typer.Exit(1)


def _attach_one(
    cat: Catalog, location: str, name: str, history: History, options: dict[str, str] | None, *, promote: bool
) -> dict[str, Any]:
    take, verb = (cat.import_table, "imported") if promote else (cat.attach_table, "attached")
    with output.progress(f"{verb[:-2]}ing {name}", "file actions") as advance:
        table = take(location, name, history=history.value, storage_options=options, progress=advance)
    totals = table.totals()
    output.say(f"{table.name} is {verb} at version {table.version()}: {totals.num_files} files at {table.table_uri}")
    return {
        "table": table.name,
        "mode": table.mode,
        "location": table.table_uri,
        "version": table.version(),
        "num_files": totals.num_files,
        "size_bytes": totals.size_bytes,
    }


def _rebuild(catalog: str | None, prefix: str, take_over: str | None, options: dict[str, str] | None) -> None:
    with (
        open_catalog(catalog, creates=True) as cat,
        output.progress(f"rebuilding from {prefix}", "file actions") as advance,
    ):
        rebuilt = cat.rebuild(prefix, take_over=take_over, storage_options=options, progress=advance)
    for table in rebuilt.tables:
        renamed = f" (its files say {table.was_named}, which is another table now)" if table.was_named else ""
        state = "is still dropped, and can be undropped" if table.dropped else "is back"
        output.say(f"{table.table.full_name} {state} at version {table.version}: {table.table.location}{renamed}")
    for skipped in rebuilt.left_out:
        output.warn(f"{skipped.location} is left out: {skipped.reason}")
    output.say(f"this is the catalog {rebuilt.catalog_id} again, with {rebuilt.num_transactions} transactions")
    value = {
        "catalog_id": rebuilt.catalog_id,
        "num_transactions": rebuilt.num_transactions,
        "tables": [
            {"table": table.table.full_name, "version": table.version, "location": table.table.location}
            for table in rebuilt.tables
        ],
        "left_out": [{"location": skipped.location, "reason": skipped.reason} for skipped in rebuilt.left_out],
    }
    output.emit(value, lambda: None)


# -- follow


def _follow_once(cat: Catalog, tables: list[str] | None, options: dict[str, str] | None) -> bool:
    """Follow every table once; returns whether all succeeded."""
    is_ok = True
    rows: list[dict[str, Any]] = []
    for name in tables or [info.full_name for info in cat.table_infos() if info.mode == "follower"]:
        try:
            with output.progress(f"following {name}", "file actions") as advance:
                results = cat.follow(name, storage_options=options, progress=advance)
        except DeltaError as error:
            is_ok = False
            output.fail(error)
            continue
        rows += [_follow_row(result) for result in results]
    columns = ("table", "from_version", "to_version", "commits", "gap")
    if rows or is_ok:
        output.emit(rows, lambda: output.table(columns, [tuple(row.values()) for row in rows]))
    return is_ok


def _follow_on(cat: Catalog, tables: list[str] | None, options: dict[str, str] | None, interval: float) -> None:
    """Follow in rounds until a signal ends it; a failure is reported, and retried in the next round."""
    with ended_by_signal() as ended:
        while not ended.is_set():
            for name in tables or [info.full_name for info in cat.table_infos() if info.mode == "follower"]:
                if ended.is_set():
                    break
                _follow_turn(cat, name, options)
            ended.wait(interval)
    output.say("stopped")


def _follow_turn(cat: Catalog, name: str, options: dict[str, str] | None) -> None:
    try:
        results = cat.follow(name, storage_options=options)
    except DeltaError as error:
        output.fail(error)
        return
    for result in results:
        if result.to_version == result.from_version:
            continue
        row = _follow_row(result)
        if output.settings.json:
            output.emit_json(row, indent=None)
        else:
            print(f"{row['table']}: version {row['from_version']} -> {row['to_version']}{_gap_text(row)}", flush=True)


def _follow_row(result: FollowResult) -> dict[str, Any]:
    gap = result.gap
    return {
        "table": result.table.full_name,
        "from_version": result.from_version,
        "to_version": result.to_version,
        "commits": result.num_commits,
        "gap": [gap.first, gap.last] if gap else None,
    }


def _gap_text(row: dict[str, Any]) -> str:
    return f" (versions {row['gap'][0]} to {row['gap'][1]} were cleaned up before they were read)" if row["gap"] else ""
