"""The catalog as a pure value: what each statement answers and what it makes of names, rows and dropped tables.

It knows no files, versions, locks or mirrors. Identities are numbers that the runner gives to creating statements, so
that the same statement makes the same table wherever it stands in an order of transactions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

Rows = tuple[int, ...]
Seen = tuple[object, ...]
"""What a statement answered: ("ok", value), or the kind of its error."""

OK: Seen = ("ok", None)
EXISTS: Seen = ("exists",)
MISSING: Seen = ("missing",)
NOT_DROPPED: Seen = ("not dropped",)


@dataclass(frozen=True, slots=True)
class Table:
    """A table: `key` is its identity, `place` the folder of its files; `@` begins one that the catalog chose."""

    key: str
    rows: Rows
    place: str
    owner: Literal["catalog", "user"] = "catalog"
    mode: Literal["managed", "follower", "detached"] = "managed"
    unit: int = -1
    """The transaction that created it: what it drops again was never there."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """A table that can be undropped; `unit` is the transaction that dropped it."""

    name: str
    table: Table
    unit: int


@dataclass(frozen=True, slots=True)
class State:
    """A catalog. `folders` are the Delta tables in files that decide for themselves, by their place."""

    names: Mapping[str, Table] = field(default_factory=dict)
    dropped: tuple[Dropped, ...] = ()
    folders: Mapping[str, Rows] = field(default_factory=dict)

    def put(self, name: str, table: Table) -> State:
        return replace(self, names={**self.names, name: table})

    def take(self, name: str) -> State:
        return replace(self, names={one: table for one, table in self.names.items() if one != name})

    def with_folder(self, place: str, rows: Rows) -> State:
        return replace(self, folders={**self.folders, place: rows})

    def without_folder(self, place: str) -> State:
        return replace(self, folders={one: rows for one, rows in self.folders.items() if one != place})

    def owner_of(self, place: str) -> str | None:
        """The key of the table that has a place, live or dropped."""
        tables = [*self.names.values(), *(one.table for one in self.dropped)]
        return next((table.key for table in tables if table.place == place), None)

    @property
    def rows(self) -> dict[str, Rows]:
        return {name: table.rows for name, table in sorted(self.names.items())}


@dataclass(frozen=True, slots=True)
class Context:
    """What a statement needs beside the state: the number of its transaction, and how the catalog is configured."""

    unit: int
    keeps_dropped: bool


Answer = tuple[State, Seen]


def refused(reason: str) -> Seen:
    """A refusal that says nothing of names or rows, which any order of transactions allows."""
    return ("refused", reason)


def is_refused(seen: Seen) -> bool:
    return seen[0] == "refused"


# -- statements on names


def create(state: State, name: str, new: Table, *, ignore: bool = False) -> Answer:
    if name in state.names:
        return state, OK if ignore else EXISTS
    if new.owner == "catalog":
        return state.put(name, new), OK
    if state.owner_of(new.place) is not None:
        return state, refused("owned")
    if new.place in state.folders:
        return state, refused("occupied")
    return state.put(name, new), OK


def drop(state: State, name: str, context: Context, *, purge: bool = False) -> Answer:
    table = state.names.get(name)
    if table is None:
        return state, MISSING
    if purge and table.mode != "managed":
        return state, refused("belong to others")
    gone = state.take(name)
    if table.unit == context.unit:
        return gone, OK
    if table.owner == "catalog":
        if purge or not context.keeps_dropped:
            return gone, OK
        return replace(gone, dropped=(*gone.dropped, Dropped(name, table, context.unit))), OK
    if table.mode == "managed" and not purge:
        gone = gone.with_folder(table.place, table.rows)
    return gone, OK


def undrop(state: State, name: str, target: str, key: str | None) -> Answer:
    """`key` is the table that came back: of those dropped last under the name, in one transaction, any may."""
    if target in state.names:
        return state, EXISTS
    named = [one for one in state.dropped if one.name == name]
    if not named:
        return state, NOT_DROPPED
    newest = [one for one in named if one.unit == named[-1].unit]
    back = next((one for one in newest if one.table.key == key), newest[-1])
    kept = tuple(one for one in state.dropped if one is not back)
    return replace(state, dropped=kept).put(target, back.table), OK


def rename(state: State, name: str, new_name: str) -> Answer:
    table = state.names.get(name)
    if table is None:
        return state, MISSING
    if new_name != name and new_name in state.names:
        return state, EXISTS
    return state.take(name).put(new_name, table), OK


def list_names(state: State) -> Answer:
    return state, ("ok", tuple(sorted(state.names)))


# -- statements on rows


def read(state: State, name: str, remainder: int | None) -> Answer:
    table = state.names.get(name)
    if table is None:
        return state, MISSING
    return state, ("ok", tuple(row for row in table.rows if remainder is None or row % 3 == remainder))


def change_rows(state: State, name: str, make: Callable[[Rows], Rows]) -> Answer:
    table = state.names.get(name)
    if table is None:
        return state, MISSING
    if table.mode != "managed":
        return state, refused("mode")
    return state.put(name, replace(table, rows=tuple(sorted(make(table.rows))))), OK


def write(state: State, name: str, new: Table, *, overwrite: bool) -> Answer:
    """`new` is the table if there is none, and has the rows."""
    if name not in state.names:
        return create(state, name, new)
    return change_rows(state, name, lambda old: new.rows if overwrite else old + new.rows)


def delete(state: State, name: str, remainder: int | None) -> Answer:
    return change_rows(
        state, name, lambda old: () if remainder is None else tuple(r for r in old if r % 3 != remainder)
    )


def restore(state: State, name: str, key: str | None, rows: Rows) -> Answer:
    """`rows` are those of the version that is restored, of the table `key`: another table has another past."""
    table = state.names.get(name)
    if table is not None and table.key != key:
        return state, ("another table",)
    return change_rows(state, name, lambda _: rows)


# -- a table's life between SQL and its files


def attach(state: State, place: str, name: str, key: str) -> Answer:
    rows, table = state.folders.get(place), state.names.get(name)
    if table is not None and table.place == place:
        if table.mode == "managed":
            return state, OK
        assert rows is not None, "a table whose files decide has a folder"
        return (state.put(name, replace(table, mode="follower", rows=rows)) if table.mode == "detached" else state), OK
    if rows is None and (table is None or state.owner_of(place) is None):
        return state, refused("no files")
    if table is not None:
        return state, EXISTS
    if state.owner_of(place) is not None:
        return state, refused("owned")
    assert rows is not None
    return state.put(name, Table(key, rows, place, "user", "follower")), OK


def follow(state: State, name: str) -> Answer:
    table = state.names.get(name)
    if table is None:
        return state, MISSING
    if table.mode != "follower":
        return state, refused("mode")
    return state.put(name, replace(table, rows=state.folders[table.place])), OK


def promote(state: State, name: str) -> Answer:
    table = state.names.get(name)
    if table is None:
        return state, MISSING
    if table.mode == "managed":
        return state, OK
    managed = replace(table, mode="managed", rows=state.folders[table.place])
    return state.put(name, managed).without_folder(table.place), OK


def detach(state: State, name: str) -> Answer:
    table = state.names.get(name)
    if table is None:
        return state, MISSING
    if table.mode == "follower":
        return state, refused("mode")
    if table.mode == "detached":
        return state, OK
    detached = replace(table, mode="detached", owner="user")
    return state.put(name, detached).with_folder(table.place, table.rows), OK


def append_elsewhere(state: State, place: str, rows: Rows) -> Answer:
    """Another Delta writer adds rows to a folder that decides for itself, or makes a table where nothing is."""
    if place not in state.folders and state.owner_of(place) is not None:
        return state, refused("fenced")
    return state.with_folder(place, tuple(sorted(state.folders.get(place, ()) + rows))), OK
