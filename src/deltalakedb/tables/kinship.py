"""Owns what makes a table of ours count as one of `deltalake`: libraries such as Polars ask `isinstance`."""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deltalakedb.tables.reader import TableReader

READ_FROM_PATHS = frozenset({"string", "byte", "short", "integer", "long", "date"})
"""Types of partition columns whose values Polars reads correctly from the names of folders."""


def shown_class(table: TableReader) -> type:
    """Return the class that `isinstance` finds beside a table's own: a subclass of `deltalake.DeltaTable` too.

    It is the table's own class while `deltalake` is not loaded, and for a table that Polars would misread: with column
    mapping, or with partition values that it does not understand.
    """
    ours = type(table)
    theirs: Any = getattr(sys.modules.get("deltalake"), "DeltaTable", None)
    if theirs is None or issubclass(ours, theirs) or not _is_read_by_others(table):
        return ours
    return _class_of_both(ours, theirs)  # type: ignore[arg-type]  # a class is hashable, its instances are not


def _is_read_by_others(table: TableReader) -> bool:
    snapshot = table.__dict__.get("_snapshot")
    if snapshot is None:
        return False
    columns = [table._struct.field(name) for name in snapshot.metadata.partition_columns]
    return all(item is not None and str(item.type) in READ_FROM_PATHS for item in columns) and all(
        item.name == item.physical_name for item in table._struct.fields
    )


@cache
def _class_of_both(ours: type, theirs: type) -> type:
    return type(ours.__name__, (ours, theirs), {"__module__": ours.__module__})


def restore(kind: type, state: dict[str, Any]) -> Any:
    """Return a table with these attributes; pickles of tables name this function."""
    table: Any = object.__new__(kind)
    table.__dict__.update(state)
    return table
