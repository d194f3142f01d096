"""Looks up the versions that the database keeps, and explains why one is missing."""

from datetime import UTC, datetime

from deltalakedb.exceptions import DeltaError, TableNotFoundError, VersionNotFoundError
from deltalakedb.store.connection import Connection, Row, Store
from deltalakedb.store.registry import TableRow


def require_version(conn: Connection, table: TableRow, version: int) -> Row:
    """Returns the row of a version; raises VersionNotFoundError with the reason if it is not kept."""
    row = conn.one("select_version", table_id=table.table_id, version=version)
    if row is None:
        raise explain_absence(conn, table, version)
    return row


def check_kept(store: Store, table: TableRow, version: int) -> None:
    """Raises if the version was removed; what was read of it before this returns is complete."""
    with store.read() as conn:
        require_version(conn, table, version)


def explain_absence(conn: Connection, table: TableRow, version: int) -> DeltaError:
    """The error for a missing version: not committed yet, removed by `dl gc`, or never read."""
    name = table.full_name
    neighbours = conn.one("select_neighbours", table_id=table.table_id, version=version) or {}
    before, after = neighbours.get("before"), neighbours.get("after")
    if before is None and after is None:
        return not_loaded(table)
    if after is None:
        return VersionNotFoundError(f"table {name}: version {version} was not committed yet, the newest is {before}")
    if before is None:
        return VersionNotFoundError(
            f"table {name}: version {version} lies before the history in the database, which starts at {after}"
            f"{why_it_starts_there(conn, table)}; older versions are at most in `_delta_log`, if they were not "
            "cleaned up there"
        )
    return VersionNotFoundError(
        f"table {name}: version {version} is missing: versions {before + 1} to {after - 1} were cleaned up before "
        f"they could be read; the nearest kept ones are {before} and {after}"
    )


def why_it_starts_there(conn: Connection, table: TableRow) -> str:
    """The end of a sentence on where the history starts; '' if `dl gc` has not cut it."""
    gc_row = conn.one("select_last_gc", table_id=table.table_id)
    if gc_row is None:
        return ""
    gc_time = datetime.fromtimestamp(gc_row["at_ms"] / 1000, UTC).isoformat(timespec="seconds")
    return f" because `dl gc` removed what was older than the table's retention on {gc_time}"


def not_loaded(table: TableRow) -> TableNotFoundError:
    return TableNotFoundError(f"table {table.full_name} has no versions in the database")
