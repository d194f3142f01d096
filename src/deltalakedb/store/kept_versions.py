"""Which versions of a table the database keeps: finds the row of one, or says why it is not there."""

from datetime import UTC, datetime

from deltalakedb.exceptions import DeltaError, TableNotFoundError, VersionNotFoundError
from deltalakedb.store.connection import Connection, Row, Store
from deltalakedb.store.registry import TableRow


def require_version(conn: Connection, table: TableRow, version: int) -> Row:
    """The row of a version; VersionNotFoundError, which says why, when it is not kept."""
    row = conn.one("select_version", table_id=table.table_id, version=version)
    if row is None:
        raise explain_absence(conn, table, version)
    return row


def check_kept(store: Store, table: TableRow, version: int) -> None:
    """Raise if the version was taken away; what was read of it before this returns is whole."""
    with store.read() as conn:
        require_version(conn, table, version)


def explain_absence(conn: Connection, table: TableRow, version: int) -> DeltaError:
    """Why a version is not in the database: not committed yet, removed by `dl gc`, or never read."""
    name = table.full_name
    around = conn.one("select_neighbours", table_id=table.table_id, version=version) or {}
    before, after = around.get("before"), around.get("after")
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
    """The end of a sentence on where the history starts; '' when `dl gc` has not cut it."""
    cut = conn.one("select_last_gc", table_id=table.table_id)
    if cut is None:
        return ""
    at = datetime.fromtimestamp(cut["at_ms"] / 1000, UTC).isoformat(timespec="seconds")
    return f" because `dl gc` removed what was older than the table's retention on {at}"


def not_loaded(table: TableRow) -> TableNotFoundError:
    return TableNotFoundError(f"table {table.full_name} has no versions in the database")
