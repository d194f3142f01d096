"""Performs the steps of a history on a catalog or in a transaction, and tells what they answer in the model's words."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import deltalake

from deltalakedb import Catalog, CatalogTransaction
from deltalakedb.exceptions import (
    DeltaError,
    LocationOwnedError,
    NotWritableError,
    TableExistsError,
    TableNotFoundError,
)
from deltalakedb.store.names import parse_table_name
from tests.conformance.catalog_model import EXISTS, MISSING, NOT_DROPPED, Rows, Seen, is_refused, refused
from tests.conformance.catalog_steps import (
    Attach,
    Call,
    Create,
    Delete,
    Detach,
    Drop,
    Exists,
    Follow,
    History,
    Names,
    Promote,
    Read,
    Rename,
    Restore,
    Step,
    Undrop,
    Vacuum,
    Write,
)
from tests.conformance.transacting import numbers

Folder = Callable[[str], Path]

_REFUSALS = {
    "belong to others": "belong to others",
    "dropped by this transaction itself": "own drop",
    "is undropped by this transaction": "own undrop",
    "should be less then last available version": "no older version",
    "when restore": "files are gone",
    "only a follower": "mode",
    "the log names this data file": "files are gone",
    "its files were purged": "files are gone",
    "a vacuum": "files are gone",
    "deltalakedb": "fenced",
}
"""Parts of messages that say why a statement is refused."""


_ALWAYS = ("owned", "occupied", "own drop", "own undrop", "no older version", "no files")


def observe(perform: Callable[[], object]) -> Seen:
    """What a step answers: its value, or the kind of its error. An error that no step may raise goes on."""
    try:
        return ("ok", perform())
    except LocationOwnedError:
        return refused("owned")
    except TableExistsError as error:
        return refused("occupied") if "a Delta table is there already" in str(error) else EXISTS
    except TableNotFoundError as error:
        if "there is no dropped table" in str(error):
            return NOT_DROPPED
        return MISSING if "there is no table" in str(error) else refused("no files")
    except NotWritableError:
        return refused("mode")
    except (DeltaError, deltalake.exceptions.DeltaError, FileNotFoundError) as error:
        for text, reason in _REFUSALS.items():
            if text in str(error):
                return refused(reason)
        raise


def fits(step: Step, expected: Seen, seen: Seen, *, files_went: bool) -> bool:
    """Whether an answer is the model's, or a refusal that needs no reason in names and rows.

    Locations are reserved by open transactions, too; files go with a vacuum or a purge elsewhere.
    """
    if expected == seen or (is_refused(expected) and seen[0] != "ok"):
        return True
    if seen == refused("mode"):
        return isinstance(step, Vacuum)  # of a detached table: it has nobody to commit for
    if seen == refused("files are gone"):
        return files_went
    return is_refused(seen) and seen[1] in _ALWAYS


def changes_something(step: Step) -> bool:
    return not isinstance(step, Read | Exists | Names)


def deletes_files(step: Step, history: History) -> bool:
    return isinstance(step, Vacuum) or (isinstance(step, Drop) and (step.purge or not history.keeps_dropped))


# -- in a transaction


def in_transaction(tx: CatalogTransaction, call: Call, folder: Folder) -> object:
    match call.step:
        case Create(name=name, place=place, ignore=ignore):
            at = None if place is None else folder(place)
            tx.create_table(name, "id long", location=at, mode="ignore" if ignore else "error")
        case Drop(name=name, purge=purge):
            tx.drop_table(name, purge)
        case Undrop(name=name, target=target):
            tx.undrop_table(name, target)
        case Rename(name=name, new_name=new_name):
            tx.rename_table(name, new_name)
        case Write(name=name, overwrite=overwrite):
            tx.write(name, numbers(*call.rows), mode="overwrite" if overwrite else "append")
        case Delete(name=name, remainder=remainder):
            tx.delete(name, None if remainder is None else f"id % 3 = {remainder}")
        case Restore(name=name):
            tx.restore(name, call.version)
        case Read(name=name, remainder=remainder):
            return _read(tx.table(name), remainder)
        case Exists(name=name):
            return _exists(lambda: tx.table(name))
        case Names():
            return tuple(sorted(tx.tables()))
        case _:
            raise AssertionError(f"{call.step} is no statement of a transaction")
    return None


def _read(table: Any, remainder: int | None) -> Rows:
    filters = None if remainder is None else f"id % 3 = {remainder}"
    return tuple(sorted(table.to_pyarrow_table(filters=filters).column("id").to_pylist()))


def _exists(open_table: Callable[[], object]) -> bool:
    try:
        open_table()
    except TableNotFoundError:
        return False
    return True


def uuid_of(tx: CatalogTransaction, name: str) -> str:
    """Who the table is that a transaction sees under a name."""
    draft = tx.find_draft(parse_table_name(name))
    assert draft is not None
    return draft.pinned.table_uuid


def version_to_restore(tx: CatalogTransaction, step: Restore) -> int | None:
    draft = tx.find_draft(parse_table_name(step.name))
    return None if draft is None or draft.base is None else max(0, draft.base.version - step.back)


def rows_of_version(tx: CatalogTransaction, name: str, version: int) -> Rows:
    """The rows of a version; none when its files are gone, and then it cannot be restored."""
    table = tx.table(name)
    table.load_as_version(version)
    with suppress(DeltaError, FileNotFoundError):
        return _read(table, None)
    return ()


# -- on their own


def alone(catalog: Catalog, call: Call, folder: Folder) -> object:
    match call.step:
        case Create(name=name, place=place, ignore=ignore):
            at = None if place is None else folder(place)
            with catalog.begin() as tx:  # `Catalog.create_table` attaches what is there already
                tx.create_table(name, "id long", location=at, mode="ignore" if ignore else "error")
        case Drop(name=name, purge=purge):
            catalog.drop_table(name, purge)
        case Undrop(name=name, target=target):
            catalog.undrop_table(name, target)
        case Rename(name=name, new_name=new_name):
            catalog.rename_table(name, new_name)
        case Write(name=name) | Delete(name=name):
            with catalog.begin(tables=[name]) as tx:
                in_transaction(tx, call, folder)
        case Restore(name=name):
            catalog.table(name).restore(call.version)
        case Read(name=name, remainder=remainder):
            return _read(catalog.table(name), remainder)
        case Exists(name=name):
            return _exists(lambda: catalog.table(name))
        case Names():
            return tuple(sorted(catalog.tables()))
        case _:
            _live(catalog, call.step, folder)
    return None


def _live(catalog: Catalog, step: Step, folder: Folder) -> None:
    match step:
        case Vacuum(name=name):
            catalog.table(name).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
        case Attach(place=place, name=name):
            catalog.attach_table(folder(place), name)
        case Follow(name=name):
            catalog.follow(name)
        case Promote(name=name):
            catalog.promote_table(name)
        case Detach(name=name):
            catalog.detach_table(name)
        case _:
            raise AssertionError(f"{step} is no operation of a catalog")
