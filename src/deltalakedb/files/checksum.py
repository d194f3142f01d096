"""The version checksum of a commit, `N.crc`: a table's totals at a version (PROTOCOL.md, "Version Checksum File")."""

from __future__ import annotations

from dataclasses import dataclass

from deltalakedb.log.protocol.actions import Metadata, Protocol
from deltalakedb.log.protocol.codec import render_object
from deltalakedb.log.protocol.fields import METADATA, PROTOCOL


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
        members.append(_in_force(self.metadata, self.protocol))
        return ("{" + ",".join(members) + "}").encode()


_rendered: tuple[Metadata, Protocol, str] | None = None


def _in_force(metadata: Metadata, protocol: Protocol) -> str:
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
