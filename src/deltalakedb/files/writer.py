"""FileTxnLogWriter: writes the transaction log of one table as its `_delta_log` folder keeps it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from deltalakedb.files.listing import commit_name
from deltalakedb.files.put import PUT_TIMEOUT_SECONDS, PutResult, open_log_folder


class FileTxnLogWriter:
    """Writes `_delta_log` on local disk or in an object store. It never overwrites or deletes another's commit."""

    def __init__(
        self, location: str | os.PathLike[str], options: Mapping[str, str] | None = None, *, table: str
    ) -> None:
        self.table = table
        self._folder = open_log_folder(location, options, table=table)

    def __repr__(self) -> str:
        return f"FileTxnLogWriter({self._folder.location!r})"

    @property
    def location(self) -> str:
        """Where the log lies; carries no credentials."""
        return self._folder.location

    def put_commit(
        self, version: int, data: bytes, *, modified_ms: int, timeout_seconds: float = PUT_TIMEOUT_SECONDS
    ) -> PutResult:
        """Write a commit unless one is there; "exists" says nothing about what it holds.

        It is whole and durable when this returns. On local disk its file carries the time of the commit, by which
        readers travel; in an object store the time is when it was put. MirrorError when it cannot be written.
        """
        return self._folder.put(
            commit_name(version), data, modified_ms=modified_ms, timeout_seconds=timeout_seconds, step="mirror.json"
        )

    def read_commit(self, version: int) -> bytes | None:
        """The bytes of a commit; None when it is not there."""
        return self._folder.read(commit_name(version))

    def has_commit(self, version: int) -> bool:
        return self._folder.modified_ms(commit_name(version)) is not None
