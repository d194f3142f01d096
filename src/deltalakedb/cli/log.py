"""`dl history`, `dl diff`, `dl audit`, `dl sql`: who did what and when, and what changed between two versions."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltalakedb.cli import output
from deltalakedb.cli.options import (
    CatalogOption,
    SinceOption,
    TableArgument,
    UntilOption,
    command,
    instant,
    open_catalog,
)

if TYPE_CHECKING:
    from deltalakedb.table import DeltaTable

LimitOption = Annotated[int | None, typer.Option("--limit", "-n", metavar="N", min=0, help="At most this many.")]


def add_to(app: typer.Typer) -> None:
    command(app, "history", history)
    command(app, "diff", diff)
    command(app, "audit", audit)
    command(app, "sql", sql)


def history(
    table: TableArgument,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: LimitOption = None,
    catalog: CatalogOption = None,
) -> None:
    """List a table's commits, newest first."""
    between = {"since": instant(since, "--since"), "until": instant(until, "--until")}
    with open_catalog(catalog) as cat:
        entries = cat.history(table, limit=limit, **between)
    rows = [
        (
            entry["version"],
            output.iso_ms(entry["timestamp"]),
            entry.get("operation"),
            entry.get("userName") or entry.get("engineInfo"),
            entry.get("operationParameters"),
        )
        for entry in entries
    ]
    columns = ("version", "timestamp", "operation", "by", "parameters")
    output.emit(entries, lambda: output.table(columns, rows, right=("version",)))


def diff(
    table: TableArgument,
    from_version: Annotated[int, typer.Argument(metavar="V1", help="The version to start from.")],
    to_version: Annotated[int, typer.Argument(metavar="V2", help="The version to end at.")],
    catalog: CatalogOption = None,
) -> None:
    """Show what changed between two versions: files, schema, properties, protocol."""
    with open_catalog(catalog) as cat:
        opened = cat.table(table)
        difference = opened.diff(from_version, to_version)
        changes = list(_setting_changes(opened, from_version, to_version))
    files = [("+", row) for row in difference.added.to_pylist()] + [
        ("-", row) for row in difference.removed.to_pylist()
    ]
    value = {
        "table": opened.name,
        "from_version": from_version,
        "to_version": to_version,
        "added": [row for sign, row in files if sign == "+"],
        "removed": [row for sign, row in files if sign == "-"],
        "metadata_changed": difference.metadata_changed,
        "protocol_changed": difference.protocol_changed,
        "changes": [{"what": what, "from": old, "to": new} for what, old, new in changes],
    }
    output.emit(value, lambda: _print_diff(files, changes))


def audit(
    since: SinceOption = None,
    until: UntilOption = None,
    actor: Annotated[str | None, typer.Option("--actor", metavar="NAME", help="Only what this actor did.")] = None,
    table: Annotated[
        str | None, typer.Option("--table", metavar="TABLE", help="Only what was done to this table.")
    ] = None,
    limit: LimitOption = None,
    catalog: CatalogOption = None,
) -> None:
    """List what was done to the catalog, newest first: who, when, from where, what."""
    between = {"since": instant(since, "--since"), "until": instant(until, "--until")}
    with open_catalog(catalog) as cat:
        records = cat.audit(**between, actor=actor, table=table, limit=limit)
    rows = [
        (output.iso_ms(r["at_ms"]), r["actor"], r["origin"], r["action"], r["table"], r["details"]) for r in records
    ]
    output.emit(records, lambda: output.table(("when", "who", "from", "action", "table", "details"), rows))


def sql(
    query: Annotated[
        str, typer.Argument(metavar="SELECT", help="One SELECT over the dl_* tables and views; - reads stdin.")
    ],
    catalog: CatalogOption = None,
) -> None:
    """Run one read-only SELECT on the catalog's database."""
    text = sys.stdin.read() if query == "-" else query
    with open_catalog(catalog) as cat:
        output.arrow(cat.sql(text))


def _setting_changes(table: DeltaTable, from_version: int, to_version: int) -> list[tuple[str, Any, Any]]:
    """Columns, partitioning, properties and protocol that differ, as (what, before, after)."""
    before, after = _settings(table, from_version), _settings(table, to_version)
    keys = [*before, *(key for key in after if key not in before)]
    return [(key, before.get(key), after.get(key)) for key in keys if before.get(key) != after.get(key)]


def _settings(table: DeltaTable, version: int) -> dict[str, Any]:
    from deltalakedb.schema import to_struct

    table.load_as_version(version)
    metadata, protocol = table.metadata(), table.protocol()
    fields = to_struct(table.schema()).fields
    columns = {f"column {f.name}": f"{f.type}{'' if f.nullable else ' not null'}" for f in fields}
    return {
        **columns,
        "partitioned by": ", ".join(metadata.partition_columns),
        "description": metadata.description,
        **{f"property {key}": value for key, value in metadata.configuration.items()},
        **{f"protocol {key}": value for key, value in protocol._asdict().items()},
    }


def _print_diff(files: list[tuple[str, dict[str, Any]]], changes: list[tuple[str, Any, Any]]) -> None:
    for what, old, new in changes:
        print(f"~ {what}: {old} -> {new}")
    rows = [(sign, row["path"], output.size(row["size"]), row["num_records"]) for sign, row in files]
    if rows:
        output.table(("", "path", "size", "rows"), rows, right=("size", "rows"))
    if not rows and not changes:
        output.say("no difference")
