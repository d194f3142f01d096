"""Recognises the files of the embedded engines."""

from pathlib import Path

from deltalakedb.exceptions import NotADatabaseError

_NAMES = {"sqlite": "SQLite", "duckdb": "DuckDB"}


def not_a_database(path: Path, wanted: str) -> NotADatabaseError:
    """The error for a file that an engine cannot read as its own; says what the file is, if known."""
    kind = kind_of(path)
    if kind is not None and kind != wanted:
        return NotADatabaseError(
            f"{path} is a {_NAMES[kind]} database, not a {_NAMES[wanted]} one; use the engine {kind}"
        )
    return NotADatabaseError(f"{path} is not a {_NAMES[wanted]} database; check the path and the engine")


def kind_of(path: Path) -> str | None:
    """The engine that the file belongs to; None if unknown.

    Never call this on a file in use: closing a descriptor drops all POSIX locks that the process has on the file.
    """
    try:
        with path.open("rb") as file:
            head = file.read(16)
    except OSError:
        return None
    if head == b"SQLite format 3\0":
        return "sqlite"
    return "duckdb" if head[8:12] == b"DUCK" else None
