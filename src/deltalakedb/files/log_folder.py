"""LogFolder: the `_delta_log` folder of one table, as its writer sees it; a failure names the table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

from deltalakedb.exceptions import MirrorError, StorageError, redact
from deltalakedb.files.listing import LOG_FOLDER
from deltalakedb.storage.interface import NO_LOCK, PUT_TIMEOUT_SECONDS, PutResult, Puts, Storage


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file of the log, as listed."""

    name: str
    modified_ms: int
    size: int


class LogFolder:
    """Names are relative to the folder. All failures are MirrorErrors."""

    def __init__(self, storage: Storage, *, table: str, folder: str = LOG_FOLDER, puts: Puts = NO_LOCK) -> None:
        self.storage = storage
        self.location = f"{storage.location}/{folder}"
        self._table, self._folder, self._puts = table, folder, puts

    def __repr__(self) -> str:
        return f"LogFolder({self.location!r})"

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
        """Write a file unless one with that name exists; see `Storage.put_if_absent`."""
        with self._failing():
            return self.storage.put_if_absent(
                self._path(name),
                data,
                modified_ms=modified_ms,
                timeout_seconds=timeout_seconds,
                step=step,
                lasting=lasting,
                decides=decides,
                creates_folder=creates_folder,
                puts=self._puts,
            )

    def sync(self) -> None:
        """Make the names of all files durable."""
        with self._failing():
            self.storage.sync_folder(self._folder)

    def replace(self, name: str, data: bytes) -> None:
        """Write a file, replacing one with that name; readers see the old or the new file."""
        with self._failing():
            self.storage.replace(self._path(name), data)

    @contextmanager
    def upload(self, name: str) -> Iterator[BinaryIO]:
        """A file to write to; it gets its name when the block ends, and is discarded if the block fails."""
        with self._failing(), self.storage.upload(self._path(name)) as file:
            yield file

    def read(self, name: str) -> bytes | None:
        """The file's content; None if it does not exist."""
        try:
            with self._failing():
                return self.storage.get(self._path(name))
        except FileNotFoundError:
            return None

    def exists(self, name: str) -> bool:
        try:
            with self._failing():
                self.storage.stat(self._path(name))
        except FileNotFoundError:
            return False
        return True

    def list(self, subfolder: str = "") -> list[LogFile]:
        """The files directly in the folder, or in a subfolder (which is then part of the names), in no order."""
        with self._failing():
            files = self.storage.list(self._path(subfolder) if subfolder else self._folder).files
        return [LogFile(file.path.removeprefix(self._path("")), file.modified_ms, file.size) for file in files]

    def delete(self, *names: str) -> None:
        """Delete files; a missing one is no error."""
        with self._failing():
            self.storage.delete(*map(self._path, names))

    def delete_temporary(self, before_ms: int) -> tuple[str, ...]:
        """Delete temporary files that dead writers left before then; return their names."""
        with self._failing():
            return self.storage.delete_temporary(self._folder, before_ms=before_ms)

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except StorageError as error:
            failure = MirrorError(f"table {redact(self._table)}: {error}")
            failure.uncertain = error.uncertain
            raise failure from error.__cause__
