"""The Version Checksum of a commit, `N.crc`: what a table adds up to at a version (PROTOCOL.md of that name)."""

from __future__ import annotations

from dataclasses import dataclass

from deltalakedb.log.actions import Metadata, Protocol
from deltalakedb.log.codec import SPECS, render_object


@dataclass(frozen=True, slots=True)
class Checksum:
    """The fields every checksum must have, and the time of the commit where the table keeps it in its commits."""

    table_size_bytes: int
    num_files: int
    metadata: Metadata
    protocol: Protocol
    in_commit_timestamp: int | None = None

    def render(self) -> bytes:
        """One JSON object; its bytes depend on the values alone."""
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
    """What one version after the other has in common is rendered once."""
    global _rendered
    known = _rendered
    if known is not None and known[0] is metadata and known[1] is protocol:
        return known[2]
    shown = (
        f'"metadata":{render_object(SPECS["metaData"], metadata)}',
        f'"protocol":{render_object(SPECS["protocol"], protocol)}',
    )
    text = ",".join(shown)
    _rendered = (metadata, protocol, text)
    return text


def checksum_name(version: int) -> str:
    return f"{version:020d}.crc"
