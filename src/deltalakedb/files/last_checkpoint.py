"""The pointer to the newest checkpoint, `_last_checkpoint`, and its checksum (PROTOCOL.md, "JSON checksum")."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

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
    leaves = [leaf for name, member in value.items() if name != CHECKSUM for leaf in _leaves(_quoted(name), member)]
    return ",".join(f"{path}={leaf}" for path, leaf in sorted(leaves, key=lambda leaf: leaf[0].encode()))


def _leaves(path: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, member in value.items():
            yield from _leaves(f"{path}+{_quoted(name)}", member)
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from _leaves(f"{path}+{index}", member)
    else:
        yield path, _quoted(value) if isinstance(value, str) else json.dumps(value)


def _quoted(text: str) -> str:
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
