"""Files of a log that readers can do without: the pointer `_last_checkpoint`, and the version checksums `N.crc`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from deltalakedb.log.protocol.actions import Metadata, Protocol
from deltalakedb.log.protocol.codec import render_object
from deltalakedb.log.protocol.fields import METADATA, PROTOCOL

CHECKSUM = "checksum"


@dataclass(frozen=True, slots=True)
class CheckpointWritten:
    """A checkpoint that is in the log."""

    version: int
    num_actions: int
    num_add_files: int
    size_bytes: int
    path: str


def render_last_checkpoint(written: CheckpointWritten) -> bytes:
    fields: dict[str, Any] = {
        "version": written.version,
        "size": written.num_actions,
        "sizeInBytes": written.size_bytes,
        "numOfAddFiles": written.num_add_files,
    }
    return json.dumps(fields | {CHECKSUM: json_checksum(fields)}, separators=(",", ":")).encode()


def json_checksum(value: dict[str, Any]) -> str:
    """The MD5 of the canonical form, without the value's own checksum."""
    return hashlib.md5(canonical_json(value).encode(), usedforsecurity=False).hexdigest()


def canonical_json(value: dict[str, Any]) -> str:
    """Every leaf with its path, sorted by the bytes of the paths."""
    leaves = [leaf for name, member in value.items() if name != CHECKSUM for leaf in _leaves(_quote(name), member)]
    return ",".join(f"{path}={leaf}" for path, leaf in sorted(leaves, key=lambda leaf: leaf[0].encode()))


def _leaves(path: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, member in value.items():
            yield from _leaves(f"{path}+{_quote(name)}", member)
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from _leaves(f"{path}+{index}", member)
    else:
        yield path, _quote(value) if isinstance(value, str) else json.dumps(value)


def _quote(text: str) -> str:
    return f'"{quote(text, safe="")}"'


def hinted_version(data: bytes | None) -> int | None:
    """The version that `_last_checkpoint` names; None if it is missing or its checksum is wrong."""
    try:
        value = json.loads(data or b"")
        version = value["version"]
        if value.get(CHECKSUM) not in (None, json_checksum(value)):
            return None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return version if isinstance(version, int) and not isinstance(version, bool) and version >= 0 else None


@dataclass(frozen=True, slots=True)
class Checksum:
    """The required fields of a checksum, and the in-commit timestamp if the table has them."""

    table_size_bytes: int
    num_files: int
    metadata: Metadata
    protocol: Protocol
    in_commit_timestamp: int | None = None

    def render(self) -> bytes:
        """The checksum as one JSON object; its bytes depend on the values alone."""
        members = [
            f'"tableSizeBytes":{int(self.table_size_bytes)}',
            f'"numFiles":{int(self.num_files)}',
            '"numMetadata":1',
            '"numProtocol":1',
        ]
        if self.in_commit_timestamp is not None:
            members.append(f'"inCommitTimestampOpt":{int(self.in_commit_timestamp)}')
        members.append(_render_in_force(self.metadata, self.protocol))
        return ("{" + ",".join(members) + "}").encode()


_rendered: tuple[Metadata, Protocol, str] | None = None


def _render_in_force(metadata: Metadata, protocol: Protocol) -> str:
    """Metadata and protocol as JSON members; cached, because consecutive versions mostly share them."""
    global _rendered
    cached = _rendered
    if cached is not None and cached[0] is metadata and cached[1] is protocol:
        return cached[2]
    members = (
        f'"metadata":{render_object(METADATA, metadata)}',
        f'"protocol":{render_object(PROTOCOL, protocol)}',
    )
    text = ",".join(members)
    _rendered = (metadata, protocol, text)
    return text


def checksum_name(version: int) -> str:
    return f"{version:020d}.crc"
