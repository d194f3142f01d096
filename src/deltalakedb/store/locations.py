"""Locations: each belongs to one table, from its reservation until its files are deleted or handed over."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache

from deltalakedb.exceptions import LocationOwnedError, redact
from deltalakedb.store.connection import LIVE, Connection, Row
from deltalakedb.store.names import name_key
from deltalakedb.store.queries import named_queries

RESERVED, REGISTERED, DROPPED, LEAVING, PURGING = "reserved", "live", "dropped", "leaving", "purging"
"""The states of a location; `schema.sql` explains them."""

RESERVED_MS = {"catalog": 7 * 86_400_000, "user": 3_600_000}
"""How long a reservation lasts, by who chose the location: one named by a user may be wanted by others."""


@dataclass(frozen=True, slots=True)
class LocationRow:
    """The owner of a location."""

    location: str
    table_uuid: str
    table_id: int | None
    table_name: str
    files_owner: str
    state: str
    expires_ms: int


@dataclass(frozen=True, slots=True)
class Claimant:
    """The table that wants a location."""

    table_uuid: str
    table_name: str
    files_owner: str
    table_id: int | None = None


def find_location(conn: Connection, location: str) -> LocationRow | None:
    """The owner of exactly this location."""
    row = conn.one("select_location", location=location)
    return None if row is None else to_location(row)


def location_of_table(conn: Connection, table_id: int) -> LocationRow | None:
    """The location of a table; None once its files were deleted or handed over."""
    row = conn.one("select_location_of_table", table_id=table_id)
    return None if row is None else to_location(row)


def reserve(
    conn: Connection,
    location: str,
    claimant: Claimant,
    *,
    now_ms: int,
    instead_of: Collection[str] = (),
    latest_holds: bool = False,
) -> None:
    """Reserves a location for a table that is being created. `instead_of`: uuids of tables that give up theirs for it.

    If a user named the location, the latest CREATE of a table name replaces an earlier reservation, so that a process
    which died does not block it; with `latest_holds` also one of another name.
    """
    lock_locations(conn)
    replaceable = {*instead_of, *_abandoned(conn, location, claimant, latest_holds)}
    refuse_owned(conn, location, claimant, now_ms=now_ms, instead_of=replaceable)
    _put(conn, location, claimant, RESERVED, now_ms + RESERVED_MS[claimant.files_owner])


def join(conn: Connection, location: str, claimant: Claimant, *, now_ms: int) -> str:
    """Reserves a location, or joins a reservation for the same name; returns the uuid of the table to create.

    For unannounced first commits: if two race, the one that commits first creates the table.
    """
    lock_locations(conn)
    holder = find_location(conn, location)
    is_same = holder is not None and name_key(holder.table_name) == name_key(claimant.table_name)
    if holder is not None and is_same and holder.state == RESERVED:
        return holder.table_uuid
    reserve(conn, location, claimant, now_ms=now_ms)
    return claimant.table_uuid


def claim(conn: Connection, location: str, claimant: Claimant, *, now_ms: int, is_reserved: bool = False) -> None:
    """Gives the location to a registered table. `is_reserved`: its reservation must still exist."""
    lock_locations(conn)
    refuse_owned(conn, location, claimant, now_ms=now_ms)
    holder = find_location(conn, location) if is_reserved else None
    if is_reserved and (holder is None or holder.table_uuid != claimant.table_uuid):
        raise LocationOwnedError(
            f"{claimant.table_name} cannot be created at {redact(location)}: the location was reserved for it, and is "
            "not any more, because that is too long ago or another transaction creates it; nothing was committed: run "
            "it again",
            table=claimant.table_name,
        )
    _put(conn, location, claimant, REGISTERED, LIVE)


def release(conn: Connection, table_uuid: str) -> None:
    """Frees the location: its files were deleted, or belong to another owner now."""
    conn.run("delete_location", table_uuid=table_uuid)


def give_back(conn: Connection, table_uuid: str) -> None:
    """Ends the reservation of a table that was not created. A created table keeps its location."""
    conn.run("delete_reservation", table_uuid=table_uuid)


def change_location(conn: Connection, table_id: int, name: str, state: str, expires_ms: int = LIVE) -> None:
    """Updates the location of a renamed, dropped, undropped or purged table; `name` is its new full name."""
    conn.run("update_location", table_id=table_id, table_name=name, location_state=state, expires_ms=expires_ms)


def lock_locations(conn: Connection) -> None:
    """Serialises claims of locations: no unique key can tell that one location contains another."""
    conn.one("select_next_table_id")


def refuse_owned(
    conn: Connection, location: str, claimant: Claimant, *, now_ms: int, instead_of: Collection[str] = ()
) -> None:
    """Raises LocationOwnedError if the location, one around it or one inside it belongs to another table."""
    for row in _overlapping(conn, location):
        holder = to_location(row)
        if holder.table_uuid == claimant.table_uuid:
            continue
        if holder.table_uuid in instead_of or _is_over(row, now_ms):
            release(conn, holder.table_uuid)
            continue
        raise LocationOwnedError(_refusal(location, claimant, holder), table=claimant.table_name)


def is_free(conn: Connection, location: str, *, now_ms: int) -> bool:
    """Whether the location, and those around and inside it, have no owner."""
    return all(_is_over(row, now_ms) for row in _overlapping(conn, location))


def owner_around(conn: Connection, location: str, *, now_ms: int) -> LocationRow | None:
    """The table that owns the location, or one around it."""
    rows = (row for row in _overlapping(conn, location) if not _is_over(row, now_ms))
    return next((to_location(row) for row in rows if f"{location}/".startswith(f"{row['location']}/")), None)


def to_location(row: Row) -> LocationRow:
    """Builds a LocationRow from the columns of dl_locations in a row, which may have others."""
    return LocationRow(
        row["location"],
        row["table_uuid"],
        row["table_id"],
        row["table_name"],
        row["files_owner"],
        row["location_state"],
        row["expires_ms"],
    )


def around(location: str) -> Iterator[str]:
    """Yields the location and every folder around it, without the bucket or disk."""
    yield location
    root = location.find("://") + len("://")
    end = location.rfind("/", root)
    while end > root:
        yield location[:end]
        end = location.rfind("/", root, end)


def _abandoned(conn: Connection, location: str, claimant: Claimant, latest_holds: bool) -> list[str]:
    holder = find_location(conn, location)
    if holder is None or (holder.state, holder.files_owner) != (RESERVED, "user"):
        return []
    is_same = name_key(holder.table_name) == name_key(claimant.table_name)
    return [holder.table_uuid] if latest_holds or is_same else []


def _overlapping(conn: Connection, location: str) -> list[Row]:
    spellings = list(around(location))
    keys = {f"location_{number}": spelling for number, spelling in enumerate(spellings)}
    inside = {"first_inside": f"{location}/", "after_inside": f"{location}0"}  # "0" follows "/"
    return conn.sql(_overlap_query(len(spellings)), **keys, **inside)


@lru_cache(maxsize=64)
def _overlap_query(count: int) -> str:
    keys = ", ".join(f":location_{number}" for number in range(count))
    return named_queries()["select_overlapping_locations"].replace(":location", keys, 1)


def _is_over(row: Row, now_ms: int) -> bool:
    """Whether the holder no longer needs the location."""
    if row["location_state"] == RESERVED:
        return bool(row["expires_ms"] <= now_ms)
    if row["location_state"] == LEAVING:
        # A mirror that another writer has stopped will never be complete: the files belong to that writer.
        return bool(row["is_mirrored"] or row["is_stopped"])
    return False


def _put(conn: Connection, location: str, claimant: Claimant, state: str, expires_ms: int) -> None:
    release(conn, claimant.table_uuid)
    conn.run(
        "insert_location",
        location=location,
        table_uuid=claimant.table_uuid,
        table_id=claimant.table_id,
        table_name=claimant.table_name,
        files_owner=claimant.files_owner,
        location_state=state,
        expires_ms=expires_ms,
    )


_REASONS = {
    RESERVED: "which another transaction is creating there",
    DROPPED: "which was dropped and can still be undropped; to have the place at once, `dl undrop` it under another "
    "name (--as) and `dl drop --purge` that",
    LEAVING: "which was dropped and is not yet mirrored to the end; `dl mirror once` finishes that",
    PURGING: "whose files are being deleted; `dl mirror once` finishes that",
}


def _refusal(location: str, claimant: Claimant, holder: LocationRow) -> str:
    until = f" (until {holder.expires_ms} ms at the latest)" if holder.state == RESERVED else ""
    where = "it" if holder.location == location else redact(holder.location)
    reason = f", {_REASONS[holder.state]}" if holder.state in _REASONS else ""
    nested = "" if holder.location == location else ", and locations must not contain each other"
    return (
        f"{claimant.table_name} cannot be created at {redact(location)}: {where} belongs to the table "
        f"{holder.table_name}{reason}{until}{nested}; a location has one owner, choose another one"
    )
