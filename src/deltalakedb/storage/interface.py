"""Storage: the one interface to the bytes of a table, and the values that it takes and returns.

`local.py` implements it for local and mounted disks, `object_store.py` for S3, GCS, Azure and memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Final, Literal, NamedTuple, Protocol, TypeAlias

from deltalakedb.runtime.config import ConditionalPut

if TYPE_CHECKING:
    import pyarrow as pa

PutResult: TypeAlias = Literal["written", "exists"]
Method: TypeAlias = Literal["GET", "PUT", "HEAD", "DELETE"]

PUT_TIMEOUT_SECONDS: Final = 60.0
SIGNED_SECONDS: Final = 3_600


class PutLock(Protocol):
    """Excludes concurrent writers of one table if the store cannot."""

    def hold(self, timeout_seconds: float) -> AbstractContextManager[None]:
        """Let one writer at a time into the block; MirrorError on timeout."""
        ...


@dataclass(frozen=True, slots=True)
class Puts:
    """How files are put if the store may not refuse to overwrite; a local disk always refuses.

    `auto`: use the lock if the store does not refuse; `required`: raise an error in that case; `lock`: always use the
    lock. Without a lock nothing is put into such a store.
    """

    mode: ConditionalPut = "auto"
    lock: PutLock | None = None


NO_LOCK: Final = Puts()


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file by its decoded path."""

    path: str
    size: int
    modified_ns: int

    @property
    def modified_ms(self) -> int:
        return self.modified_ns // 1_000_000


@dataclass(frozen=True, slots=True)
class Folder:
    """The direct content of a folder, by paths below the storage's root."""

    files: tuple[ListedFile, ...]
    folders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FileStream:
    """A file that is read once, from its beginning."""

    size: int
    modified_ms: int
    chunks: Iterator[bytes]


class Written(NamedTuple):
    """A finished file."""

    size: int
    modified_ms: int


class NewFile(Protocol):
    """A file that is being written; it is valid only after `finish` returned."""

    @property
    def sink(self) -> pa.NativeFile: ...

    def finish(self) -> Written:
        """Close the file; it is durable after the storage's `sync`."""
        ...

    def abandon(self) -> None:
        """Discard the file, if possible."""
        ...


class Storage(Protocol):
    """The files below one location. Paths are decoded, relative to it and separated by `/`.

    A missing file raises FileNotFoundError, every other failure StorageError.
    """

    @property
    def location(self) -> str:
        """The canonical location, without credentials."""
        ...

    @property
    def options(self) -> Mapping[str, str]:
        """The storage options, which may hold credentials; empty on a disk."""
        ...

    @property
    def is_remote(self) -> bool:
        """Whether each call waits for a response, so that several should be made concurrently."""
        ...

    # -- reading

    def get(self, path: str) -> bytes:
        """The content of a small file."""
        ...

    def get_range(self, path: str, start: int, length: int) -> bytes: ...

    def open(self, path: str, size: int | None = None) -> pa.NativeFile:
        """A seekable file; its size, if given, saves a request."""
        ...

    def stream(self, path: str) -> FileStream: ...

    def stream_many(self, paths: Iterable[str]) -> Iterator[FileStream]:
        """The files in order; the next small ones are fetched ahead if requests are slow."""
        ...

    def stat(self, path: str) -> ListedFile: ...

    # -- listing; a folder that does not exist is empty

    def names(self, folder: str, *, start_after: str = "") -> Iterator[str]:
        """Names of the files in a folder greater than `start_after`, in no order."""
        ...

    def folders(self, folder: str) -> list[str]:
        """Names of the folders in a folder; none if it may not be read."""
        ...

    def list(self, folder: str) -> Folder: ...

    def walk(self, folder: str = "") -> Iterator[ListedFile]:
        """All files below a folder, in no order. A symbolic link on a disk is listed as itself, not followed."""
        ...

    def newest_ms(self, folder: str) -> int:
        """The latest modification time below a folder, in epoch milliseconds; 0 if it is empty."""
        ...

    # -- writing

    def put_if_absent(
        self,
        path: str,
        data: bytes,
        *,
        modified_ms: int | None = None,
        timeout_seconds: float = PUT_TIMEOUT_SECONDS,
        step: str = "",
        lasting: bool = True,
        decides: bool = True,
        creates_folder: bool = True,
        puts: Puts = NO_LOCK,
    ) -> PutResult:
        """Write a file unless one with that name exists, whatever its content.

        The file is durable when this returns; without `lasting` its content is, and its name only after `sync_folder`.
        On a disk it gets the time `modified_ms`; an object's time is when it was put. Without `decides` all writers
        would write the same, so that an overwrite loses nothing. Without `creates_folder` a folder that is gone,
        because its table was purged, is not created again; object stores have no folders.

        `step` is the prefix of the steps that are reached (see `deltalakedb.runtime.steps`).
        """
        ...

    def put(self, path: str, data: bytes) -> None:
        """Write a small file under a name that no other writer uses; it is durable after `sync`."""
        ...

    def replace(self, path: str, data: bytes) -> None:
        """Write a file, replacing one with that name; readers see the old or the new file."""
        ...

    def upload(self, path: str) -> AbstractContextManager[BinaryIO]:
        """A file to write to; it gets its name when the block ends, and is discarded if the block fails."""
        ...

    def create(self, path: str, *, part_bytes: int | None = None) -> NewFile:
        """A new data file; an object store gets it in parts of `part_bytes`."""
        ...

    def sync(self, paths: Sequence[str]) -> None:
        """Make finished files and their names durable."""
        ...

    def sync_folder(self, folder: str) -> None:
        """Make the names of all files in a folder durable."""
        ...

    def copy(self, source: str, target: str) -> None: ...

    def rename(self, source: str, target: str) -> None: ...

    # -- deleting; what is missing is no error

    def delete(self, *paths: str, with_checksums: bool = True) -> None:
        """Delete files, on a disk with the checksum files that Hadoop keeps beside them; missing ones are no error."""
        ...

    def delete_folder(self, folder: str, *, keep: str = "") -> None:
        """Delete a folder with all its content, except for the folder `keep` in it."""
        ...

    def delete_empty_folders(self) -> None:
        """Delete all folders below the location that are empty, and its own; object stores have none."""
        ...

    def delete_temporary(self, folder: str, *, before_ms: int) -> tuple[str, ...]:
        """Delete temporary files that dead writers left in a folder before then; return their names."""
        ...

    # -- giving access

    def sign(self, path: str, method: Method = "GET", *, expires_seconds: int = SIGNED_SECONDS) -> str:
        """A URL with which anyone may read (or write) this one file until it expires.

        Raises SigningNotSupportedError if the storage has no signed URLs: a disk, or an object store in memory.
        """
        ...
