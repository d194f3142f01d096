"""Owns the fence: a writer-only table feature that stops all writers but this catalog, and no reader."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from deltalakedb.log.protocol.actions import Metadata, Protocol
from deltalakedb.log.protocol.features import MAX_WRITER_VERSION, legacy_writer_features

FEATURE: Final = "deltalakedb"
ICEBERG_TABLE: Final = "deltalakedb.icebergTable"
"""The property of a log that shows an Iceberg table to Delta readers: the uuid of that table, which decides."""

_COLUMN_MAPPING: Final = "columnMapping"
_MAPPING_READER_VERSION: Final = 2
"""The first reader version with column mapping."""


def fence(protocol: Protocol) -> Protocol:
    """The protocol as the mirror shows it: features implied by a legacy writer version are listed, ours comes last."""
    version = max(protocol.min_writer_version, MAX_WRITER_VERSION)
    return replace(protocol, min_writer_version=version, writer_features=(*_others(protocol), FEATURE))


def shows_iceberg(metadata: Metadata) -> bool:
    """Whether a log shows an Iceberg table, so that it can be the log of no table of its own."""
    return ICEBERG_TABLE in metadata.configuration


def unfence(protocol: Protocol, before: Protocol | None = None) -> tuple[Protocol, bool]:
    """Returns the protocol without our feature, and whether it had it. Features that the fence listed stay listed.

    `before` is the protocol in force: if only the fence was added to it, it is returned unchanged.
    """
    if FEATURE not in (protocol.writer_features or ()):
        return protocol, False
    if before is not None and fence(before) == protocol:
        return before, True
    return replace(protocol, writer_features=_others(protocol)), True


def _others(protocol: Protocol) -> tuple[str, ...]:
    if protocol.min_writer_version < MAX_WRITER_VERSION:
        implied = legacy_writer_features(protocol.min_writer_version)
        if protocol.min_reader_version >= _MAPPING_READER_VERSION:
            return implied
        # Readers refuse a protocol that lists it for writers only; such a table cannot have mapped columns.
        return tuple(name for name in implied if name != _COLUMN_MAPPING)
    return tuple(name for name in protocol.writer_features or () if name != FEATURE)
