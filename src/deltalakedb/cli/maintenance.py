"""`dl gc`, `dl validate`: keeping the log small, and holding SQL against the files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltalakedb.cli import output
from deltalakedb.cli.options import CatalogOption, DryRunOption, command, open_catalog

if TYPE_CHECKING:
    from deltalakedb.store.gc import CollectedTable, GcReport


def add_to(app: typer.Typer) -> None:
    command(app, "gc", gc)


def gc(
    table: Annotated[str | None, typer.Argument(metavar="TABLE", help="One table; the whole catalog without.")] = None,
    audit_days: Annotated[
        float | None,
        typer.Option(
            "--audit-days", metavar="DAYS", min=0, help="Also remove audit rows older than this; kept without."
        ),
    ] = None,
    dry_run: DryRunOption = False,
    catalog: CatalogOption = None,
) -> None:
    """Remove history from SQL that is older than the retention; every version since then still opens."""
    if table is not None and audit_days is not None:
        raise typer.BadParameter(
            "the audit trail belongs to the whole catalog; leave TABLE out", param_hint="--audit-days"
        )
    with open_catalog(catalog) as cat, output.progress("collecting", "rows") as advance:
        report = cat.gc(table, dry_run=dry_run, audit_days=audit_days, progress=advance)
    rows = [_gc_row(done) for done in report.tables]
    value = {
        "dry_run": report.dry_run,
        "rows_removed": report.rows_removed,
        "transactions_removed": report.transactions_removed,
        "leases_removed": report.leases_removed,
        "audit_rows_removed": report.audit_rows_removed,
        "tables": rows,
    }
    output.emit(value, lambda: _show_gc(report, rows))


def _gc_row(done: CollectedTable) -> dict[str, Any]:
    return {
        "table": done.table.full_name,
        "first_version": done.base_version,
        "versions_removed": done.versions_removed,
        "rows_removed": done.rows_removed,
        "dropped": done.dropped,
        "kept_because": done.kept_because,
    }


def _show_gc(report: GcReport, rows: list[dict[str, Any]]) -> None:
    columns = ("table", "starts at", "versions removed", "rows removed", "note")
    cells = [
        (
            row["table"],
            row["first_version"],
            row["versions_removed"],
            row["rows_removed"],
            row["kept_because"] or ("dropped" if row["dropped"] else None),
        )
        for row in rows
    ]
    output.table(columns, cells, right=columns[1:4])
    others = (
        f"{report.transactions_removed} transactions, {report.leases_removed} leases and "
        f"{report.audit_rows_removed} audit rows"
    )
    verb = "would be removed" if report.dry_run else "removed"
    output.say(f"{report.rows_removed} rows {verb}, among them {others} of the whole catalog")
