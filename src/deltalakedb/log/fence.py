"""Owns the fence: a writer-only table feature that keeps writers other than this catalog out, and no reader."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from deltalakedb.log.actions import Protocol
from deltalakedb.log.features import MAX_WRITER_VERSION, legacy_writer_features

FEATURE: Final = "deltalakedb"


def fence(protocol: Protocol) -> Protocol:
    """The protocol as the mirror shows it: what a legacy writer version implies is spelled out, ours comes last."""
    version = max(protocol.min_writer_version, MAX_WRITER_VERSION)
    return replace(protocol, min_writer_version=version, writer_features=(*_others(protocol), FEATURE))


def unfence(protocol: Protocol, before: Protocol | None = None) -> tuple[Protocol, bool]:
    """The protocol without our feature, and whether it was there. What the fence spelled out stays spelled out.

    `before` is the protocol that was in force: where the fence is all that came, it still is, spelled as it was.
    """
    if FEATURE not in (protocol.writer_features or ()):
        return protocol, False
    if before is not None and fence(before) == protocol:
        return before, True
    return replace(protocol, writer_features=_others(protocol)), True


def _others(protocol: Protocol) -> tuple[str, ...]:
    if protocol.min_writer_version < MAX_WRITER_VERSION:
        return legacy_writer_features(protocol.min_writer_version)
    return tuple(name for name in protocol.writer_features or () if name != FEATURE)
