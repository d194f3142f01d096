"""Tells the files of the embedded engines from each other and from anything else."""

from pathlib import Path

from deltalakedb.exceptions import NotADatabaseError

_NAMES = {"sqlite": "SQLite", "duckdb": "DuckDB"}


def not_a_database(path: Path, wanted: str) -> NotADatabaseError:
    """The error for a file that an engine could not read as its own: says what the file is, if we know it."""
    found = kind_of(path)
    if found is not None and found != wanted:
        return NotADatabaseError(
            f"{path} is a {_NAMES[found]} database, not a {_NAMES[wanted]} one; use the engine {found}"
        )
    return NotADatabaseError(f"{path} is not a {_NAMES[wanted]} database; check the path and the engine")


def kind_of(path: Path) -> str | None:
    """The engine whose file this is.

    Never called on a file that is in use: closing a descriptor drops all POSIX locks the process has on the file.
    """
    try:
        with path.open("rb") as file:
            head = file.read(16)
    except OSError:
        return None
    if head == b"SQLite format 3\0":
        return "sqlite"
    return "duckdb" if head[8:12] == b"DUCK" else None
