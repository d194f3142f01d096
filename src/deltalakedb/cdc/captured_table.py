"""A captured table: the record of a source table, and of the tables of the lake that hold its rows and changes."""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal

from deltalakedb.cdc.source_names import requote_name, requote_source
from deltalakedb.exceptions import (
    CaptureError,
    CaptureSetupError,
    InvalidCommitError,
    MissingFileError,
    NotWritableError,
    SchemaMismatchError,
    TableNotFoundError,
    ValueNotHeld,
)
from deltalakedb.log.schema.types import DataType, type_from_value, type_to_value

Stage = Literal["pending", "copying", "streaming", "stopped"]
"""Waits for its first (or next) copy; is copied beside the stream; follows the stream; not captured until a new copy
is requested."""
Layers = Literal["both", "changes", "current"]
"""The tables of the lake for a source table: that of changes, that of current rows, or both."""
MaskKind = Literal["hash", "constant", "null"]
NOT_ASKED_FOR: Final = "the settings do not ask for it any more"
"""The reason of a table that `dl cdc apply` has taken out of the capture."""
_FINGERPRINTED: Final = b"deltalakedb mask key"


class TableTroubleError(CaptureError):
    """A problem of one table only: that table stops, the others continue."""

    def __init__(self, source: str, reason: str) -> None:
        super().__init__(f"{source} cannot be captured: {reason}")
        self.source, self.reason = source, reason

    def __reduce__(self) -> tuple[type[TableTroubleError], tuple[str, str]]:
        return TableTroubleError, (self.source, self.reason)  # tasks return it to the driver


OWN_TROUBLE: Final = (TableTroubleError, ValueNotHeld, CaptureSetupError)
"""Errors of a copy that concern its table alone and would occur again."""


@contextmanager
def tables_own_trouble(source: str) -> Iterator[None]:
    """Translate errors of a table's own tables in the lake, which somebody dropped or changed, to TableTroubleError."""
    try:
        yield
    except (TableNotFoundError, MissingFileError, SchemaMismatchError, InvalidCommitError, NotWritableError) as error:
        raise TableTroubleError(source, f"the lake's table does not take its changes any more: {error}") from error


@dataclass(frozen=True, slots=True)
class Mask:
    """What replaces the values of a column. Null stays null under every mask."""

    kind: MaskKind
    text: str | None = None
    """For a constant: its text, as Postgres would print it."""
    key_id: str | None = None
    """For a hash: the fingerprint of the key, so that a changed key is noticed. The key itself is stored nowhere."""

    def __str__(self) -> str:
        return f"constant {self.text!r}" if self.kind == "constant" else self.kind

    def to_value(self) -> dict[str, Any]:
        return {"kind": self.kind, "text": self.text, "keyId": self.key_id}

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> Mask:
        return cls(value["kind"], value.get("text"), value.get("keyId"))


def fingerprint(key: str) -> str:
    """Identifies a key without revealing it."""
    return hmac.digest(key.encode(), _FINGERPRINTED, "sha256").hex()[:16]


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """One column of a source table, and the Delta type of its values."""

    name: str
    type_oid: int
    type_modifier: int
    type: DataType
    number: int
    """`attnum`: stays the same when the column is renamed, and is never used for another one."""
    type_name: str = ""
    """As `format_type` prints it, for messages."""
    missing: str | None = None
    """The text of the constant default that older rows have in it, which no message sends; masked."""
    mask: Mask | None = None
    shape: DataType | None = None
    """For a composite type that becomes JSON: its struct, or an array of them."""
    ruled_as: str | None = None
    """The name under which the settings masked it or left it out, if the source has renamed it since."""

    def to_value(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "typeOid": self.type_oid,
            "typeModifier": self.type_modifier,
            "type": type_to_value(self.type),
            "number": self.number,
            "typeName": self.type_name,
            "missing": self.missing,
            "mask": None if self.mask is None else self.mask.to_value(),
            "shape": None if self.shape is None else type_to_value(self.shape),
            "ruledAs": self.ruled_as,
        }

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> SourceColumn:
        return cls(
            name=value["name"],
            type_oid=value["typeOid"],
            type_modifier=value["typeModifier"],
            type=type_from_value(value["type"]),
            number=value["number"],
            type_name=value.get("typeName", ""),
            missing=value.get("missing"),
            mask=None if value.get("mask") is None else Mask.from_value(value["mask"]),
            shape=None if value.get("shape") is None else type_from_value(value["shape"]),
            ruled_as=value.get("ruledAs"),
        )


@dataclass(frozen=True, slots=True)
class TableOptions:
    """How the lake's tables of a source table are created."""

    layers: Layers = "both"
    partition_by: tuple[str, ...] = ()
    """Of the table of current rows."""
    cluster_by: tuple[str, ...] = ()
    """Columns by which compaction sorts the table of current rows."""
    buckets: int = 0
    deletion_vectors: bool = True
    change_data_feed: bool = False
    column_mapping: bool = False

    def to_value(self) -> dict[str, Any]:
        return {**asdict(self), "partition_by": list(self.partition_by), "cluster_by": list(self.cluster_by)}

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> TableOptions:
        return cls(**{**value, "partition_by": tuple(value["partition_by"]), "cluster_by": tuple(value["cluster_by"])})


@dataclass(frozen=True, slots=True)
class CapturedTable:
    """A source table and its two tables in the lake."""

    source: str
    """`schema.name` in Postgres, each part in backticks if it needs them."""
    oid: int
    columns: tuple[SourceColumn, ...]
    """The captured columns."""
    key: tuple[str, ...]
    """The columns that identify a row; empty if the whole row does (REPLICA IDENTITY FULL without a primary key)."""
    current: str
    """The lake's table of current rows."""
    changes: str
    """The lake's append-only table of changes."""
    stage: Stage = "pending"
    start_lsn: int | None = None
    """The LSN of its last copy: the copy has what was committed before, the stream delivers the rest."""
    identity: str = "d"
    """`relreplident`: d (key), i (index), f (full)."""
    reason: str | None = None
    """Why it is stopped."""
    stopped_lsn: int | None = None
    """Since when it is stopped: changes of transactions whose commit begins here or later are not in the lake."""
    notes: tuple[str, ...] = field(default=())
    """What readers of the tables should know, such as a column that the source has dropped."""
    changed_lsn: int | None = None
    """The transaction that changed the columns to what they are now."""
    former: tuple[tuple[SourceColumn, ...], ...] = field(default=())
    """The columns of rows that the same transaction sent before its ALTER TABLE, matched by `number`."""
    filenode: int | None = None
    """`pg_relation_filenode` when the columns were read: another one means that the rows may have been rewritten."""
    newest: int = 0
    """The highest number of a column then, also of those that are not sent: a new column has a higher one."""
    membership: int | None = None
    """The oid of its entry in the publication: another one means that it was out of the publication in between."""
    publishing: str | None = None
    """The transaction that last set the publication's options, and a sum of those that do not say which kinds of
    changes are sent; None: a capture of an older release did not record it."""
    copy_id: str | None = None
    """The copy that is being made beside the stream (`copies.py`); changes from `start_lsn` on are kept for it."""
    left_out: tuple[SourceColumn, ...] = field(default=())
    """The columns that the source sends and the settings leave out: they are in no file of the lake."""
    options: TableOptions | None = None
    """The options that its tables in the lake were created with; None: a capture of an older release has no record."""

    @property
    def sent(self) -> tuple[SourceColumn, ...]:
        """All columns that the source sends, in their order."""
        if not self.left_out:
            return self.columns
        return tuple(sorted((*self.columns, *self.left_out), key=lambda column: column.number))

    @property
    def keeps_current(self) -> bool:
        """Whether the lake has a table of its current rows."""
        return self.options is None or self.options.layers != "changes"

    @property
    def keeps_changes(self) -> bool:
        """Whether the lake has a table of its changes."""
        return self.options is None or self.options.layers != "current"

    @property
    def lake_tables(self) -> tuple[str, ...]:
        """Its tables in the lake."""
        tables = ((self.current, self.keeps_current), (self.changes, self.keeps_changes))
        return tuple(name for name, is_kept in tables if is_kept)

    @property
    def is_taken_out(self) -> bool:
        """Whether it was taken out of the capture: it is stopped, and there is nothing to do about that."""
        return self.stage == "stopped" and self.reason == NOT_ASKED_FOR

    @property
    def is_keyed(self) -> bool:
        return bool(self.key)

    def to_copy_again(self) -> CapturedTable:
        """The table as one that waits for a copy."""
        return replace(self, stage="pending", reason=None, stopped_lsn=None, copy_id=None)

    def column(self, name: str) -> SourceColumn | None:
        return next((column for column in self.columns if column.name == name), None)

    def to_value(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "oid": self.oid,
            "columns": [column.to_value() for column in self.columns],
            "key": list(self.key),
            "current": self.current,
            "changes": self.changes,
            "stage": self.stage,
            "startLsn": self.start_lsn,
            "identity": self.identity,
            "reason": self.reason,
            "stoppedLsn": self.stopped_lsn,
            "notes": list(self.notes),
            "changedLsn": self.changed_lsn,
            "former": [[column.to_value() for column in columns] for columns in self.former],
            "filenode": self.filenode,
            "newest": self.newest,
            "membership": self.membership,
            "publishing": self.publishing,
            **({} if self.copy_id is None else {"copyId": self.copy_id}),
            "leftOut": [column.to_value() for column in self.left_out],
            "options": None if self.options is None else self.options.to_value(),
        }

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> CapturedTable:
        return cls(
            source=requote_source(value["source"]),
            oid=value["oid"],
            columns=tuple(map(SourceColumn.from_value, value["columns"])),
            key=tuple(value["key"]),
            current=requote_name(value["current"]),
            changes=requote_name(value["changes"]),
            stage=value["stage"],
            start_lsn=value["startLsn"],
            identity=value.get("identity", "d"),
            reason=value["reason"],
            stopped_lsn=value.get("stoppedLsn"),
            notes=tuple(value.get("notes", ())),
            changed_lsn=value.get("changedLsn"),
            former=tuple(tuple(map(SourceColumn.from_value, columns)) for columns in value.get("former", ())),
            filenode=value.get("filenode"),
            newest=value.get("newest", 0),
            membership=value.get("membership"),
            publishing=value.get("publishing"),
            copy_id=value.get("copyId"),
            left_out=tuple(map(SourceColumn.from_value, value.get("leftOut", ()))),
            options=None if value.get("options") is None else TableOptions.from_value(value["options"]),
        )
