"""Tables as the registry lists them, with their counters, and errors that name the nearest table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from deltalakedb.catalog.instants import to_iso
from deltalakedb.exceptions import TableNotFoundError
from deltalakedb.rights import Right, SecuredObject, current_access
from deltalakedb.store import Connection, registry
from deltalakedb.store.connection import Row
from deltalakedb.store.names import TableName, full_name, name_key, parse_namespace, parse_table_name
from deltalakedb.store.namespaces import list_namespaces
from deltalakedb.store.registry import TableRow

_MOST_NAMES = 10

ATTACHED_BY = "attached_by"
"""The property of a table that was attached implicitly: by opening a path (`path`) or CREATE at one (`create`)."""


def is_promoted_by_writes(table: TableRow) -> bool:
    """Return whether the first write through the catalog makes the table managed: it was attached implicitly."""
    return table.mode == "follower" and ATTACHED_BY in table.properties


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table as the registry lists it, with the head's counters; None if nothing is committed yet."""

    namespace: str
    name: str
    location: str
    mode: str
    state: str
    version: int | None
    committed_at_ms: int | None
    num_files: int | None
    num_records: int | None
    size_bytes: int | None
    format: str = "delta"
    """`delta`, `iceberg`, or `view` for a view of Iceberg."""
    files_owner: str = "user"
    """`catalog`: it chose the folder, and a drop keeps the files for a while; `user`: the location was given."""

    @property
    def full_name(self) -> str:
        return full_name(self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class DroppedTable:
    """A dropped table that can be undropped: what it was, when it was dropped, and how long it is kept."""

    namespace: str
    name: str
    location: str
    version: int | None
    num_files: int | None
    size_bytes: int | None
    dropped_at_ms: int
    undrop_until_ms: int
    state: str = "dropped"

    @property
    def full_name(self) -> str:
        return full_name(self.namespace, self.name)

    @classmethod
    def of(cls, row: Row, head: registry.Head | None) -> DroppedTable:
        """Make one from a row of `select_dropped_tables`."""
        table = last_named(row)
        return cls(
            namespace=table.namespace,
            name=table.name,
            location=row["location"],
            version=head.current_version if head else None,
            num_files=head.num_files if head else None,
            size_bytes=head.size_bytes if head else None,
            dropped_at_ms=row["until_ms"],
            undrop_until_ms=row["expires_ms"],
        )


def last_named(row: Row) -> TableRow:
    """Return a dropped table under its last name, from a row of `select_dropped_tables`."""
    name = parse_table_name(row["table_name"])
    return replace(registry.to_table_row(row), namespace=name.namespace, name=name.name)


def dropped_rows(conn: Connection) -> list[tuple[Row, SecuredObject]]:
    """Return the rows of `select_dropped_tables` that the caller may know of, each with what its rights are on."""
    rows = conn.all("select_dropped_tables")
    access = current_access()
    created_ms = {name_key(found.namespace): found.created_at_ms for found in list_namespaces(conn)} if rows else {}
    secured = [(row, SecuredObject.of_dropped(last_named(row), row["until_ms"], created_ms)) for row in rows]
    return [(row, on) for row, on in secured if access.allows(Right.DISCOVER, on)]


def require_table(conn: Connection, name: TableName, *, at_ms: int | None = None) -> TableRow:
    """Return the registered table of a name; if there is none, raise an error that names the nearest one."""
    row = current_access().admit(registry.resolve_table(conn, name.namespace, name.name, at_ms=at_ms))
    if row is None:
        raise no_such_table(conn, name, at_ms=at_ms)
    return row


def no_such_table(conn: Connection, name: TableName, *, at_ms: int | None = None) -> TableNotFoundError:
    rows = filter(current_access().sees, registry.list_tables(conn, at_ms))
    return not_among((row.full_name for row in rows), name, at_ms=at_ms)


def not_among(names: Iterable[str], name: TableName, *, at_ms: int | None = None) -> TableNotFoundError:
    """Return the error for a name that is none of these; it names the nearest one."""
    import difflib

    names_by_key = {name_key(other): other for other in names}
    near = difflib.get_close_matches(name_key(str(name)), names_by_key, n=1)
    hint = f"did you mean {names_by_key[near[0]]}?" if near else "`dl tables` lists those that exist"
    when = "" if at_ms is None else f" at {to_iso(at_ms)}"
    return TableNotFoundError(
        f"there was no table {name}{when}; {hint}" if when else f"there is no table {name}; {hint}"
    )


def not_dropped(names: Iterable[str], name: TableName) -> TableNotFoundError:
    """Return the error for a name that no dropped table had; it names those that can be undropped."""
    dropped_names = ", ".join(sorted(names)[:_MOST_NAMES])
    hint = f"can be undropped: {dropped_names}" if dropped_names else "nothing can be undropped"
    return TableNotFoundError(
        f"there is no dropped table {name} to bring back: it was never dropped, was purged, or its files were its "
        f"user's and stayed where they are (`dl attach` brings a Delta table back, `dl iceberg register` an Iceberg "
        f"table or a view, by its newest metadata.json); {hint}"
    )


def within(rows: list[TableRow], namespace: str | None) -> list[TableRow]:
    if namespace is None:
        return rows
    key = name_key(parse_namespace(namespace))
    return [row for row in rows if f"{name_key(row.namespace)}.".startswith(f"{key}.")]


def table_info(row: TableRow, head: registry.Head | None) -> TableInfo:
    are_counted = head is not None and head.files_without_records == 0
    return TableInfo(
        namespace=row.namespace,
        name=row.name,
        location=row.location,
        mode=row.mode,
        state=row.state,
        version=head.current_version if head else None,
        committed_at_ms=head.last_commit_ms if head else None,
        num_files=head.num_files if head else None,
        num_records=head.num_records if head and are_counted else None,
        size_bytes=head.size_bytes if head else None,
        files_owner=row.files_owner,
        format="delta" if row.is_delta else row.mode,
    )
