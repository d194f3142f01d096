"""Owns the interface of a `_delta_log` folder that is written to: files appear whole, and never in place of another."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import BinaryIO, Literal, Protocol, TypeAlias

from deltalakedb.exceptions import MirrorError, redact
from deltalakedb.files.listing import LOG_FOLDER
from deltalakedb.files.location import parse_location

PutResult: TypeAlias = Literal["written", "exists"]
ConditionalPut: TypeAlias = Literal["auto", "required", "lock"]

PUT_TIMEOUT_SECONDS = 60.0


class PutLock(Protocol):
    """Keeps the writers of one table apart where the store itself cannot."""

    def hold(self, timeout_seconds: float) -> AbstractContextManager[None]:
        """Let one writer at a time into the block; MirrorError when its turn does not come in time."""
        ...


@dataclass(frozen=True, slots=True)
class Puts:
    """How commits are put where the store may not refuse to overwrite; a local disk always does.

    `auto`: by the lock if the store does not refuse; `required`: then not at all; `lock`: always by the lock. Without a
    lock nothing is put into such a store.
    """

    mode: ConditionalPut = "auto"
    lock: PutLock | None = None


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file of the log as a listing shows it."""

    name: str
    modified_ms: int
    size: int


class LogFolder(Protocol):
    """The `_delta_log` of one table; names are those of its files. Whatever fails is a MirrorError."""

    @property
    def location(self) -> str:
        """The folder's URI; carries no credentials."""
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
        """Write a file unless one of that name is there, whatever it holds. It is durable when this returns; without
        `lasting` what it holds is, and its name after `sync`. Without `decides` all writers would write the same, so
        that nothing is lost where two do. Without `creates_folder` a folder that is gone, because its table was purged,
        stays gone; object stores know no folders.

        `step` begins the names of the steps that are said to be reached (see `deltalakedb.steps`).
        """
        ...

    def sync(self) -> None:
        """Make the names of all files durable."""
        ...

    def replace(self, name: str, data: bytes) -> None:
        """Write a file in place of the one of that name, if any; readers see the old one or the new one."""
        ...

    def upload(self, name: str) -> AbstractContextManager[BinaryIO]:
        """A file to write to, which takes that name when the block ends, and vanishes when it fails."""
        ...

    def read(self, name: str) -> bytes | None:
        """What the file holds; None when there is none."""
        ...

    def modified_ms(self, name: str) -> int | None:
        """When the file was last modified; None when there is none."""
        ...

    def list(self, subfolder: str = "") -> Iterator[LogFile]:
        """The files directly in the folder, or in a folder below it (names then say so), in no order."""
        ...

    def delete(self, names: Sequence[str]) -> None:
        """Delete files; one that is not there is no error."""
        ...

    def sweep(self, before_ms: int) -> tuple[str, ...]:
        """Delete what writers that died before then have left half written; the names of what is gone."""
        ...


@dataclass(frozen=True, slots=True)
class Failures:
    """Words the errors of one log folder: what could not be done, to which table, and what to do next."""

    table: str
    location: str

    def error(self, verb: str, name: str, reason: str, advice: str = "") -> MirrorError:
        place = f"{self.location}/{name}" if name else self.location
        tail = f"; {advice}" if advice else ""
        return MirrorError(f"table {redact(self.table)}: cannot {verb} {place}: {reason}{tail}")


def open_log_folder(
    location: str | os.PathLike[str],
    options: Mapping[str, str] | None = None,
    *,
    table: str,
    folder: str = LOG_FOLDER,
    puts: Puts | None = None,
) -> LogFolder:
    """The log of the table at `location`, which need not exist yet. `options` are those of `deltalake`."""
    parsed = parse_location(location, options)
    if parsed.scheme == "file":
        from deltalakedb.files.local_folder import LocalFolder

        return LocalFolder(parsed, table=table, folder=folder)
    from deltalakedb.files.object_folder import ObjectFolder

    return ObjectFolder(parsed, options or {}, table=table, folder=folder, puts=puts or Puts())
