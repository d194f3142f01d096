"""The two layers: the schemas of the table of changes and of the table of current rows."""

from __future__ import annotations

from typing import Final

from deltalakedb.cdc.captured_table import CapturedTable
from deltalakedb.log.schema.types import ArrayType, PrimitiveType, StructField, StructType

OP: Final = "_op"
LSN: Final = "_lsn"
XID: Final = "_xid"
ORDINAL: Final = "_ordinal"
COMMITTED_AT: Final = "_committed_at"
UNCHANGED: Final = "_unchanged"
BEFORE: Final = "before"
AFTER: Final = "after"

INSERT: Final = "insert"
UPDATE: Final = "update"
DELETE: Final = "delete"
TRUNCATE: Final = "truncate"

_STRING, _LONG = PrimitiveType("string"), PrimitiveType("long")


def current_schema(table: CapturedTable) -> StructType:
    """The schema of current rows. All columns are nullable: the source may drop a constraint at any time."""
    return StructType(tuple(StructField(column.name, column.type, True) for column in table.columns))


def changes_schema(table: CapturedTable) -> StructType:
    """The schema of changes, which are ordered by (`_lsn`, `_ordinal`).

    `_lsn` is that of the transaction's commit and `_ordinal` counts its changes, over all tables. `before` is the row's
    key, or the whole row under REPLICA IDENTITY FULL, and null if Postgres sends none. `_unchanged` names the large
    values of `after` that Postgres did not send because the update did not change them: they are null there.
    """
    row = current_schema(table)
    return StructType(
        (
            StructField(OP, _STRING, True),
            StructField(LSN, _LONG, True),
            StructField(XID, _LONG, True),
            StructField(ORDINAL, _LONG, True),
            StructField(COMMITTED_AT, PrimitiveType("timestamp"), True),
            StructField(UNCHANGED, ArrayType(_STRING), True),
            StructField(BEFORE, row, True),
            StructField(AFTER, row, True),
        )
    )
