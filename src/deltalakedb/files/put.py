"""The interface for writing a `_delta_log` folder: files appear whole and never replace another."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import BinaryIO, Literal, Protocol, TypeAlias

from deltalakedb.exceptions import MirrorError, redact
from deltalakedb.files.listing import LOG_FOLDER
from deltalakedb.storage.location import parse_location

PutResult: TypeAlias = Literal["written", "exists"]
ConditionalPut: TypeAlias = Literal["auto", "required", "lock"]

PUT_TIMEOUT_SECONDS = 60.0


class PutLock(Protocol):
    """Excludes concurrent writers of one table if the store cannot."""

    def hold(self, timeout_seconds: float) -> AbstractContextManager[None]:
        """Let one writer at a time into the block; MirrorError on timeout."""
        ...


@dataclass(frozen=True, slots=True)
class Puts:
    """How commits are put if the store may not refuse to overwrite; a local disk always refuses.

    `auto`: use the lock if the store does not refuse; `required`: raise an error in that case; `lock`: always use the
    lock. Without a lock nothing is put into such a store.
    """

    mode: ConditionalPut = "auto"
    lock: PutLock | None = None


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file of the log, as listed."""

    name: str
    modified_ms: int
    size: int


class LogFolder(Protocol):
    """The `_delta_log` of one table; names are relative to it. All failures are MirrorErrors."""

    @property
    def location(self) -> str:
        """The folder's URI, without credentials."""
        ...

    def put(
        self,
        name: str,
        data: bytes,
        *,
        modified_ms: int | None = None,
        timeout_seconds: float = PUT_TIMEOUT_SECONDS,
        step: str = "",
        lasting: bool = True,
        decides: bool = True,
        creates_folder: bool = True,
    ) -> PutResult:
        """Write a file unless one with that name exists, whatever its content.

        The file is durable when this returns; without `lasting` its content is, and its name only after `sync`. Without
        `decides` all writers would write the same, so that an overwrite loses nothing. Without `creates_folder` a
        folder that is gone, because its table was purged, is not created again; object stores have no folders.

        `step` is the prefix of the steps that are reached (see `deltalakedb.runtime.steps`).
        """
        ...

    def sync(self) -> None:
        """Make the names of all files durable."""
        ...

    def replace(self, name: str, data: bytes) -> None:
        """Write a file, replacing one with that name; readers see the old or the new file."""
        ...

    def upload(self, name: str) -> AbstractContextManager[BinaryIO]:
        """A file to write to; it gets its name when the block ends, and is discarded if the block fails."""
        ...

    def read(self, name: str) -> bytes | None:
        """The file's content; None if it does not exist."""
        ...

    def modified_ms(self, name: str) -> int | None:
        """When the file was last modified; None if it does not exist."""
        ...

    def list(self, subfolder: str = "") -> Iterator[LogFile]:
        """The files directly in the folder, or in a subfolder (which is then part of the names), in no order."""
        ...

    def delete(self, names: Sequence[str]) -> None:
        """Delete files; a missing one is no error."""
        ...

    def sweep(self, before_ms: int) -> tuple[str, ...]:
        """Delete temporary files that dead writers left before then; return their names."""
        ...


@dataclass(frozen=True, slots=True)
class Failures:
    """Words the errors of one log folder: what failed, for which table, and what to do next."""

    table: str
    location: str

    def error(self, verb: str, name: str, reason: str, advice: str = "") -> MirrorError:
        path = f"{self.location}/{name}" if name else self.location
        tail = f"; {advice}" if advice else ""
        return MirrorError(f"table {redact(self.table)}: cannot {verb} {path}: {reason}{tail}")


def open_log_folder(
    location: str | os.PathLike[str],
    options: Mapping[str, str] | None = None,
    *,
    table: str,
    folder: str = LOG_FOLDER,
    puts: Puts | None = None,
) -> LogFolder:
    """The log folder of the table at `location`, which need not exist yet. `options` are those of `deltalake`."""
    parsed = parse_location(location, options)
    if parsed.scheme == "file":
        from deltalakedb.files.local_folder import LocalFolder

        return LocalFolder(parsed, table=table, folder=folder)
    from deltalakedb.files.object_folder import ObjectFolder

    return ObjectFolder(parsed, options or {}, table=table, folder=folder, puts=puts or Puts())
