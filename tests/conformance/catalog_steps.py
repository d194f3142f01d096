"""The steps of a history: statements of transactions and operations on their own, and what they mean to the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tests.conformance import catalog_model as model
from tests.conformance.catalog_model import OK, Answer, Context, Rows, State, Table

MirrorMode = Literal["inline", "background", "off"]

NAMES = ("s.a", "s.b", "t.a", "t.b")
SPARE = "s.spare"
"""The name that a swap uses on the way."""
PLACES = ("x", "y")
"""Folders outside the warehouse: another writer has made a table in the first one when a history begins."""
SLOTS = 3
FREE = 4
"""A slot of the first catalog object, and the one after it of the second, in which no transaction is begun."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a slot: a transaction at a time. Slots 0 and 2 use the first catalog object, slot 1 the second."""

    slot: int


class Begin(Step):
    """A transaction begins, unless the slot has one."""


class Commit(Step):
    """The slot's transaction is committed."""


class Rollback(Step):
    """The slot's transaction is given up."""


# -- statements: in the slot's transaction, or on their own if it has none


@dataclass(frozen=True, slots=True)
class Create(Step):
    name: str
    place: str | None = None
    ignore: bool = False


@dataclass(frozen=True, slots=True)
class Drop(Step):
    name: str
    purge: bool = False


@dataclass(frozen=True, slots=True)
class Undrop(Step):
    name: str
    target: str


@dataclass(frozen=True, slots=True)
class Rename(Step):
    name: str
    new_name: str


@dataclass(frozen=True, slots=True)
class Swap(Step):
    """Two names by three renames; the first that fails is the last one."""

    left: str
    right: str


@dataclass(frozen=True, slots=True)
class Write(Step):
    name: str
    overwrite: bool = False


@dataclass(frozen=True, slots=True)
class Delete(Step):
    """Rows by their remainder when divided by three, or all of them."""

    name: str
    remainder: int | None = None


@dataclass(frozen=True, slots=True)
class Read(Step):
    name: str
    remainder: int | None = None


@dataclass(frozen=True, slots=True)
class Exists(Step):
    name: str


class Names(Step):
    """The names of all tables are listed."""


@dataclass(frozen=True, slots=True)
class Restore(Step):
    """To the version that is so many versions older than the newest one the transaction found."""

    name: str
    back: int


# -- operations on their own, whatever the slot has open


@dataclass(frozen=True, slots=True)
class Vacuum(Step):
    """Files that the log says were removed, however short ago."""

    name: str


@dataclass(frozen=True, slots=True)
class Attach(Step):
    place: str
    name: str


@dataclass(frozen=True, slots=True)
class Follow(Step):
    name: str


@dataclass(frozen=True, slots=True)
class Promote(Step):
    name: str


@dataclass(frozen=True, slots=True)
class Detach(Step):
    name: str


@dataclass(frozen=True, slots=True)
class AppendElsewhere(Step):
    """Another Delta writer adds rows."""

    place: str


class Reconcile(Step):
    """What the mirror has left undone is done, and what is to be purged is deleted."""


ALONE = (Vacuum, Attach, Follow, Promote, Detach, AppendElsewhere, Reconcile)


PRELUDE = (AppendElsewhere(0, "x"), Write(0, "s.a"), Write(1, "s.b"), Write(0, "t.a"), Drop(0, "t.a"))
"""What every history begins with: a table of another writer, two of ours, and one that may be undropped."""


@dataclass(frozen=True, slots=True)
class History:
    """Steps, and how the two catalog objects that take them are configured. Its repr is Python that runs."""

    steps: tuple[Step, ...]
    mirrors: tuple[MirrorMode, MirrorMode] = ("inline", "inline")
    keeps_dropped: bool = True

    def __repr__(self) -> str:
        steps = "".join(f"\n        {step!r}," for step in self.steps)
        shown = f"({steps}\n    )" if steps else "()"
        return f"History(\n    {shown},\n    mirrors={self.mirrors!r},\n    keeps_dropped={self.keeps_dropped!r},\n)"


@dataclass(frozen=True, slots=True)
class Call:
    """A step as it was run: its number makes the identities and rows it brings, the rest the runner has learned."""

    step: Step
    number: int
    key: str | None = None
    """The table that was undropped or restored."""
    restored: Rows = ()
    version: int = -1
    """The version that was restored, and its rows."""

    @property
    def rows(self) -> Rows:
        return (4 * self.number, 4 * self.number + 1)

    @property
    def new_key(self) -> str:
        return f"table {self.number}"

    def new_table(self, context: Context, rows: Rows, place: str | None = None) -> Table:
        owner: Literal["catalog", "user"] = "catalog" if place is None else "user"
        return Table(self.new_key, rows, place or f"@{self.new_key}", owner, unit=context.unit)


def answer(call: Call, state: State, context: Context) -> Answer:
    """What the model says to a step, and makes of it."""
    match call.step:
        case Create(name=name, place=place, ignore=ignore):
            return model.create(state, name, call.new_table(context, (), place), ignore=ignore)
        case Drop(name=name, purge=purge):
            return model.drop(state, name, context, purge=purge)
        case Undrop(name=name, target=target):
            return model.undrop(state, name, target, call.key)
        case Rename(name=name, new_name=new_name):
            return model.rename(state, name, new_name)
        case Names():
            return model.list_names(state)
        case Exists(name=name):
            return state, ("ok", name in state.names)
        case Read(name=name, remainder=remainder):
            return model.read(state, name, remainder)
        case _:
            return _answer_rows(call, state, context)


def _answer_rows(call: Call, state: State, context: Context) -> Answer:
    match call.step:
        case Write(name=name, overwrite=overwrite):
            return model.write(state, name, call.new_table(context, call.rows), overwrite=overwrite)
        case Delete(name=name, remainder=remainder):
            return model.delete(state, name, remainder)
        case Restore(name=name):
            return model.restore(state, name, call.key, call.restored)
        case Attach(place=place, name=name):
            return model.attach(state, place, name, call.new_key)
        case Follow(name=name):
            return model.follow(state, name)
        case Promote(name=name):
            return model.promote(state, name)
        case Detach(name=name):
            return model.detach(state, name)
        case AppendElsewhere(place=place):
            return model.append_elsewhere(state, place, call.rows)
        case Vacuum(name=name):
            return state, OK if name in state.names else model.MISSING
        case _:
            return state, OK


def renames_of(swap: Swap) -> tuple[Rename, ...]:
    pairs = (swap.left, SPARE), (swap.right, swap.left), (SPARE, swap.right)
    return tuple(Rename(swap.slot, old, new) for old, new in pairs)
