"""The registry: names, namespaces and heads, as functions on an open connection."""

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import attrgetter, itemgetter
from typing import Any

from deltalakedb.exceptions import NotADeltaTableError, StoreError, TableExistsError, TableNotFoundError, redact
from deltalakedb.log.protocol.actions import Metadata, Protocol
from deltalakedb.log.protocol.rows import metadata_from_row, protocol_from_row
from deltalakedb.store import locations
from deltalakedb.store.connection import UNKNOWN_COUNT, Connection, DuplicateRowError, Row
from deltalakedb.store.names import full_name, name_key
from deltalakedb.store.namespaces import ensure_namespace

ICEBERG, VIEW = "iceberg", "view"
ICEBERG_MODES = frozenset({ICEBERG, VIEW})
"""The modes of Iceberg tables and views; every other mode is that of a Delta table."""


@dataclass(frozen=True, slots=True)
class TableRow:
    """A registered table or view."""

    table_id: int
    table_uuid: str
    namespace: str
    name: str
    location: str
    mode: str
    state: str
    properties: Mapping[str, Any]
    files_owner: str = "user"
    """`catalog`: it chose the folder, and a drop keeps the files for a while; `user`: a drop leaves the files alone."""

    @property
    def full_name(self) -> str:
        return full_name(self.namespace, self.name)

    @property
    def key(self) -> tuple[str, str]:
        """How its name is compared."""
        return name_key(self.namespace), name_key(self.name)

    @property
    def is_delta(self) -> bool:
        """Whether it is a Delta table, not an Iceberg table or view."""
        return self.mode not in ICEBERG_MODES


@dataclass(frozen=True, slots=True)
class Head:
    """The newest version of a table, its state, and the counters that new ids come from."""

    table_id: int
    current_version: int
    metadata_version: int
    protocol_version: int
    mirrored_version: int
    base_version: int
    last_commit_ms: int
    num_files: int
    num_records: int
    files_without_records: int
    size_bytes: int
    next_file_id: int
    bounds_epoch: int
    vacuumed_version: int = 0
    """Versions below this one may have lost files to a vacuum."""
    vacuum_count: int = 0
    """Incremented when a vacuum begins and when it ends: odd while one deletes files."""


@dataclass(frozen=True, slots=True)
class OpenTable:
    """What is read when a table is opened."""

    table: TableRow
    head: Head
    protocol: Protocol
    metadata: Metadata
    fenced: bool


_HEAD_FIELDS = tuple(Head.__dataclass_fields__)
_head_fields, _head_columns = attrgetter(*_HEAD_FIELDS), itemgetter(*_HEAD_FIELDS)
_TABLE_FIELDS = tuple(TableRow.__dataclass_fields__)


# -- tables


def resolve_table(conn: Connection, namespace: str, name: str, *, at_ms: int | None = None) -> TableRow | None:
    """The table of this name, now or at an instant; names are not case-sensitive."""
    keys = {"namespace_key": name_key(namespace), "name_key": name_key(name)}
    row = conn.one("select_table", **keys) if at_ms is None else conn.one("select_table_at", **keys, at_ms=at_ms)
    return to_table_row(row) if row else None


def open_table(conn: Connection, namespace: str, name: str) -> OpenTable | None:
    """A table with its head, protocol and metadata, read in one query; None if it does not exist or has no version."""
    row = conn.one("open_table", namespace_key=name_key(namespace), name_key=name_key(name))
    if row is not None and row["metadata_id"] is None:
        raise not_delta(to_table_row(row))
    return None if row is None else to_open_table(row)


def not_delta(table: TableRow) -> NotADeltaTableError:
    """The error of a statement for Delta tables on an Iceberg table or view."""
    what = "a view of Iceberg" if table.mode == VIEW else "an Iceberg table"
    return NotADeltaTableError(
        f"{table.full_name} is {what}, not a Delta table: use it through the Iceberg REST catalog of `dl serve`, at "
        "/iceberg (docs/iceberg.md)" + ("" if table.mode == VIEW else ", or in Python with `catalog.iceberg(name)`")
    )


_METADATA_COLUMNS = (
    "metadata_id", "metadata_name", "description", "format", "schema_json", "partition_columns", "configuration",
    "created_time", "metadata_extra",
)  # fmt: skip
_PROTOCOL_COLUMNS = ("min_reader_version", "min_writer_version", "reader_features", "writer_features", "protocol_extra")


@lru_cache(maxsize=256)
def _metadata_of(*values: Any) -> Metadata:
    """Parses metadata once per text, however often a table is opened."""
    row = dict(zip(_METADATA_COLUMNS, values, strict=True))
    return metadata_from_row({**row, "name": row["metadata_name"], "extra": row["metadata_extra"]})


@lru_cache(maxsize=256)
def _protocol_of(*values: Any) -> Protocol:
    row = dict(zip(_PROTOCOL_COLUMNS, values, strict=True))
    return protocol_from_row({**row, "extra": row["protocol_extra"]})


def to_open_table(row: Row) -> OpenTable:
    """Builds an OpenTable from the registry, head, metadata and protocol columns of one row."""
    metadata = _metadata_of(*[row[column] for column in _METADATA_COLUMNS])
    protocol = _protocol_of(*[row[column] for column in _PROTOCOL_COLUMNS])
    return OpenTable(to_table_row(row), to_head(row), protocol, metadata, bool(row["fenced"]))


def to_head(row: Row) -> Head:
    """Builds a Head from its columns of a row, which may have others."""
    return Head(*_head_columns(row))


def head_values(head: object) -> Row:
    """The fields of a head, or of an object with the same fields; the inverse of `to_head`."""
    return dict(zip(_HEAD_FIELDS, _head_fields(head), strict=True))


def table_by_id(conn: Connection, table_id: int) -> TableRow | None:
    row = conn.one("select_table_by_id", table_id=table_id)
    return to_table_row(row) if row else None


def table_by_location(conn: Connection, location: str) -> TableRow | None:
    """The registered table at a location."""
    row = conn.one("select_table_by_location", location=location)
    return to_table_row(row) if row else None


def list_tables(conn: Connection, at_ms: int | None = None) -> list[TableRow]:
    """All tables, now or at an instant."""
    rows = conn.all("select_tables") if at_ms is None else conn.all("select_tables_at", at_ms=at_ms)
    return [to_table_row(row) for row in rows]


def register_table(
    conn: Connection,
    *,
    namespace: str,
    name: str,
    location: str,
    mode: str,
    state: str = "live",
    properties: Mapping[str, Any] | None = None,
    at_ms: int,
    table_id: int | None = None,
    table_uuid: str | None = None,
    files_owner: str = "user",
    is_reserved: bool = False,
) -> TableRow:
    """Registers a new table, and creates its namespace if needed. The name and the location must be free.

    `is_reserved`: the location was reserved for this table; the reservation must still exist.
    """
    locations.lock_locations(conn)  # before the namespace: the order in which commits lock them
    ensure_namespace(conn, namespace, at_ms=at_ms)
    conn.one("lock_namespace", namespace_key=name_key(namespace))  # so that it is not dropped meanwhile
    table = TableRow(
        table_id=next_table_id(conn) if table_id is None else table_id,
        table_uuid=table_uuid or str(uuid.uuid4()),
        namespace=namespace,
        name=name,
        location=location,
        mode=mode,
        state=state,
        properties=dict(properties or {}),
        files_owner=files_owner,
    )
    refuse_taken_name(conn, table)
    claimant = locations.Claimant(table.table_uuid, table.full_name, files_owner, table.table_id)
    locations.claim(conn, location, claimant, now_ms=at_ms, is_reserved=is_reserved)
    insert_row(conn, table, at_ms)
    return table


def change_table(conn: Connection, table_id: int, *, at_ms: int, **changes: Any) -> TableRow:
    """Changes some columns of a table's row from an instant on; the old row stays on record.

    The caller has locked the table's head, so the row cannot change meanwhile.
    """
    row, from_ms = end_row(conn, table_id, at_ms=at_ms)
    changed = replace(row, **changes)
    insert_row(conn, changed, from_ms)
    return changed


def end_row(conn: Connection, table_id: int, *, at_ms: int) -> tuple[TableRow, int]:
    """Ends the current row of a table; returns it, and the instant from which a new row may be valid."""
    row = conn.one("lock_table_row", table_id=table_id)
    if row is None:
        raise TableNotFoundError(f"the table with id {table_id} is not registered any more")
    until_ms = max(at_ms, row["from_ms"] + 1)
    conn.run("end_table_row", table_id=table_id, until_ms=until_ms)
    return to_table_row(row), until_ms


def record_table(conn: Connection, table: TableRow, *, from_ms: int, until_ms: int) -> None:
    """Records a past or present row of a table from one instant to another, as told by its own log."""
    ensure_namespace(conn, table.namespace, at_ms=from_ms)
    values = row_values(table) | {"from_ms": from_ms, "until_ms": until_ms}
    conn.run("record_table", **values, namespace_key=name_key(table.namespace), name_key=name_key(table.name))


def insert_row(conn: Connection, table: TableRow, from_ms: int) -> None:
    """Inserts the current row of a table, valid from an instant on. Its name must be free."""
    refuse_taken_name(conn, table)
    values = row_values(table) | {"from_ms": from_ms}
    try:
        conn.run("insert_table", **values, namespace_key=name_key(table.namespace), name_key=name_key(table.name))
    except DuplicateRowError as error:  # a concurrent transaction inserted it first
        what = f"location {redact(table.location)}" if "location" in error.constraint else f"name {table.full_name}"
        raise TableExistsError(f"the {what} was taken by another table at the same time") from error


def refuse_taken_name(conn: Connection, table: TableRow) -> None:
    """Raises TableExistsError if another table has the name."""
    owner = resolve_table(conn, table.namespace, table.name)
    if owner is not None:
        raise TableExistsError(f"the table {owner.full_name} exists already; drop or rename it, or choose another name")


def next_change_ms(conn: Connection) -> int:
    """The time of a registry change, made like a transaction's T: the database's clock, but never backwards."""
    conn.hold_clock()
    newest = conn.one("select_newest_transaction")
    return max(conn.now_ms(), (newest["committed_at_ms"] or 0) + 1 if newest else 0)


def next_table_id(conn: Connection) -> int:
    """Returns a new table id. Other callers wait until this transaction ends."""
    row = conn.one("select_next_table_id")
    if row is None or not conn.run("advance_next_table_id", expected=row["next_table_id"]):
        raise StoreError("the catalog's own row is missing or was changed meanwhile: no table id can be handed out")
    return int(row["next_table_id"])


def to_table_row(row: Row) -> TableRow:
    """Builds a TableRow from the registry columns of a row, which may have others."""
    return TableRow(
        row["table_id"],
        row["table_uuid"],
        row["namespace"],
        row["name"],
        row["location"],
        row["mode"],
        row["state"],
        json.loads(row["properties"]),
        row["files_owner"],
    )


def row_values(table: TableRow) -> Row:
    """The inverse of `to_table_row`."""
    return {**{field: getattr(table, field) for field in _TABLE_FIELDS}, "properties": to_json_text(table.properties)}


def catalog_id(conn: Connection) -> str:
    """The id of the catalog in this database."""
    row = conn.one("select_catalog")
    if row is None:
        raise StoreError("the catalog's own row is missing: the database was not made by `dl init`")
    return str(row["catalog_id"])


# -- heads


def read_head(conn: Connection, table_id: int) -> Head | None:
    row = conn.one("select_head", table_id=table_id)
    return Head(**row) if row else None


def list_heads(conn: Connection) -> dict[int, Head]:
    """The heads of all registered tables, by table id."""
    return {row["table_id"]: Head(**row) for row in conn.all("select_heads")}


def lock_head(conn: Connection, table_id: int) -> Head | None:
    """Returns the head and locks it until the transaction ends; None before the table's first version."""
    row = conn.one("lock_head", table_id=table_id)
    return Head(**row) if row else None


def insert_head(conn: Connection, head: Head) -> None:
    conn.run("insert_head", **head_values(head))


def advance_head(conn: Connection, head: Head, expected: int) -> None:
    """Moves the head on from version `expected`, at which it was locked."""
    if conn.run("advance_head", **head_values(head), expected=expected) not in (1, UNKNOWN_COUNT):
        raise StoreError(f"the head of table {head.table_id} is gone or has moved while it was being changed")


# -- transactions


def transaction_ms(conn: Connection, txn_id: str) -> int | None:
    """When a transaction was committed; None if this catalog has no transaction with the id."""
    row = conn.one("select_transaction", txn_id=txn_id)
    return None if row is None else int(row["committed_at_ms"])


def to_json_text(value: Mapping[str, Any]) -> str:
    """Renders JSON with sorted keys: equal values give equal text."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"), sort_keys=True)
