"""Describes every field of every action once: JSON name, attribute, SQL column, kind and place in a checkpoint.

All forms of an action follow this table: JSON (`codec`), rows of SQL and Arrow (`rows`, `txnlog`), and checkpoints
(`files.checkpoint_columns`). A new field needs a line here and in `actions`, and its column in schema.sql.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from deltalakedb.log.protocol.actions import (
    AddCDCFile,
    AddFile,
    AppTransaction,
    DeletionVector,
    DomainMetadata,
    Format,
    Metadata,
    Protocol,
    RemoveFile,
    Sidecar,
)

REQUIRED: Final = object()
"""The default of a field that an action must have."""
_NO_COLUMNS: Final = '{"type":"struct","fields":[]}'
"""Some engines begin a table before it has columns, and then leave out its schema."""


class Kind(Enum):
    """What a field holds. Maps, lists and objects are JSON text in SQL and in batches, and nested in checkpoints."""

    TEXT = "text"
    LONG = "long"
    INT = "int"
    FLAG = "flag"
    MAP = "map"
    LIST = "list"
    OBJECT = "object"


JSON_TYPES: Final[dict[Kind, type]] = {
    Kind.TEXT: str,
    Kind.LONG: int,
    Kind.INT: int,
    Kind.FLAG: bool,
    Kind.MAP: dict,
    Kind.LIST: list,
    Kind.OBJECT: dict,
}


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """One field: `name` in JSON and checkpoints, `attribute` of the dataclass, `column` in SQL and Arrow batches.

    `default` stands for an absent field; a field whose default is not None is never null in a checkpoint.
    """

    name: str
    attribute: str
    column: str
    kind: Kind
    type: type
    default: Any
    nested: Spec | None
    in_checkpoint: bool


@dataclass(frozen=True, slots=True, eq=False)
class Spec:
    """One kind of action, or an object inside of one; fields are in the order of the dataclass and of JSON.

    Checkpoints have the fields of `checkpoint_first` first, then the others in the same order.
    """

    name: str
    build: type[Any]
    fields: tuple[Field, ...]
    checkpoint_first: tuple[str, ...] = ()

    @property
    def checkpoint_fields(self) -> list[Field]:
        """The fields that every checkpoint has, in its order."""
        fields = [field for field in self.fields if field.in_checkpoint]
        first = self.checkpoint_first
        return sorted(fields, key=lambda field: first.index(field.name) if field.name in first else len(first))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the fields and of `extra`, in the order of the dataclass."""
        return (*(field.column for field in self.fields), "extra")


def _field(
    name: str,
    kind: Kind,
    default: object = None,
    *,
    column: str | None = None,
    nested: Spec | None = None,
    in_checkpoint: bool = True,
) -> Field:
    attribute = re.sub("[A-Z]", lambda match: f"_{match.group().lower()}", name)
    return Field(name, attribute, column or attribute, kind, JSON_TYPES[kind], default, nested, in_checkpoint)


DELETION_VECTOR: Final = Spec(
    "deletionVector",
    DeletionVector,
    (
        _field("storageType", Kind.TEXT, REQUIRED),
        _field("pathOrInlineDv", Kind.TEXT, REQUIRED),
        _field("sizeInBytes", Kind.INT, REQUIRED),
        _field("cardinality", Kind.LONG, REQUIRED),
        _field("offset", Kind.INT),
    ),
    checkpoint_first=("storageType", "pathOrInlineDv", "offset"),
)
FORMAT: Final = Spec("format", Format, (_field("provider", Kind.TEXT, "parquet"), _field("options", Kind.MAP, {})))
ADD: Final = Spec(
    "add",
    AddFile,
    (
        _field("path", Kind.TEXT, REQUIRED),
        _field("partitionValues", Kind.MAP, {}),
        _field("size", Kind.LONG, REQUIRED),
        _field("modificationTime", Kind.LONG, 0),
        _field("dataChange", Kind.FLAG, True),
        _field("stats", Kind.TEXT, in_checkpoint=False),  # only if the table's settings ask for it
        _field("tags", Kind.MAP),
        _field("deletionVector", Kind.OBJECT, nested=DELETION_VECTOR),
        _field("baseRowId", Kind.LONG),
        _field("defaultRowCommitVersion", Kind.LONG),
        _field("clusteringProvider", Kind.TEXT),
    ),
)
REMOVE: Final = Spec(
    "remove",
    RemoveFile,
    (
        _field("path", Kind.TEXT, REQUIRED),
        _field("dataChange", Kind.FLAG, True),
        _field("deletionTimestamp", Kind.LONG),
        _field("extendedFileMetadata", Kind.FLAG),
        _field("partitionValues", Kind.MAP),
        _field("size", Kind.LONG),
        _field("stats", Kind.TEXT, in_checkpoint=False),
        _field("tags", Kind.MAP, in_checkpoint=False),
        _field("deletionVector", Kind.OBJECT, nested=DELETION_VECTOR),
        _field("baseRowId", Kind.LONG),
        _field("defaultRowCommitVersion", Kind.LONG),
    ),
    checkpoint_first=("path", "deletionTimestamp"),
)
CDC: Final = Spec(
    "cdc",
    AddCDCFile,
    (
        _field("path", Kind.TEXT, REQUIRED),
        _field("partitionValues", Kind.MAP, {}),
        _field("size", Kind.LONG, REQUIRED),
        _field("dataChange", Kind.FLAG, False),
        _field("tags", Kind.MAP),
    ),
)
METADATA: Final = Spec(
    "metaData",
    Metadata,
    (
        _field("id", Kind.TEXT, REQUIRED, column="metadata_id"),
        _field("format", Kind.OBJECT, REQUIRED, nested=FORMAT),
        _field("schemaString", Kind.TEXT, _NO_COLUMNS, column="schema_json"),
        _field("partitionColumns", Kind.LIST, ()),
        _field("configuration", Kind.MAP, {}),
        _field("name", Kind.TEXT),
        _field("description", Kind.TEXT),
        _field("createdTime", Kind.LONG),
    ),
    checkpoint_first=("id", "name", "description"),
)
PROTOCOL: Final = Spec(
    "protocol",
    Protocol,
    (
        _field("minReaderVersion", Kind.INT, REQUIRED),
        _field("minWriterVersion", Kind.INT, REQUIRED),
        _field("readerFeatures", Kind.LIST),
        _field("writerFeatures", Kind.LIST),
    ),
)
TXN: Final = Spec(
    "txn",
    AppTransaction,
    (
        _field("appId", Kind.TEXT, REQUIRED),
        _field("version", Kind.LONG, REQUIRED, column="app_version"),
        _field("lastUpdated", Kind.LONG),
    ),
)
DOMAIN_METADATA: Final = Spec(
    "domainMetadata",
    DomainMetadata,
    (
        _field("domain", Kind.TEXT, REQUIRED),
        _field("configuration", Kind.TEXT, REQUIRED),
        _field("removed", Kind.FLAG, False),
    ),
)
SIDECAR: Final = Spec(
    "sidecar",
    Sidecar,
    (
        _field("path", Kind.TEXT, REQUIRED),
        _field("sizeInBytes", Kind.LONG, REQUIRED),
        _field("modificationTime", Kind.LONG, REQUIRED),
        _field("tags", Kind.MAP),
    ),
)
SPECS: Final[dict[str, Spec]] = {
    spec.name: spec for spec in (ADD, REMOVE, CDC, METADATA, PROTOCOL, TXN, DOMAIN_METADATA, SIDECAR)
}
SPEC_OF: Final[dict[type, Spec]] = {spec.build: spec for spec in SPECS.values()}
