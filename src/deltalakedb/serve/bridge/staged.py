"""Staged: what a transaction has read and staged through the bridge, as calls that others can repeat."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from deltalakedb.log.protocol.paths import decode_path
from deltalakedb.serve.bridge.commits import Rendered
from deltalakedb.store.open_transactions import StagedCall

MOST_PLANNED = 1000
"""How many planned files of a table a transaction remembers: Spark asks for each of them when it opens it."""


@dataclass(slots=True)
class Staged:
    """The staged commits of one transaction by location, what it has opened and planned, and its calls."""

    commits: dict[str, list[tuple[str, Rendered]]] = field(default_factory=dict)
    """The texts as Spark wrote them, with their tokens."""
    opened: set[str] = field(default_factory=set)
    planned: dict[str, set[str]] = field(default_factory=dict)
    """By location, the files of the plans whose predicates count as read; few, so that others count as the table."""
    unrecorded: list[StagedCall] = field(default_factory=list)
    """Calls that are not in SQL yet."""
    _noted: set[tuple[Any, ...]] = field(default_factory=set)

    def note(self, kind: str, *arguments: Any, body: str | None = None) -> None:
        """Note a call on which the transaction depends; the same call again changes nothing."""
        if (kind, *arguments) not in self._noted:
            self._noted.add((kind, *arguments))
            self.unrecorded.append(StagedCall(kind, arguments, body))

    def plan(self, location: str, paths: Iterable[str]) -> None:
        """Remember the files of a plan."""
        files = self.planned.setdefault(location, set())
        files.update(decode_path(path) for path in islice(paths, max(MOST_PLANNED - len(files), 0)))

    def is_planned(self, location: str, file: str | None = None) -> bool:
        """Whether the reads of a table, or of one of its files, are those of recorded plans."""
        files = self.planned.get(location)
        if files is None or file is None:
            return files is not None
        return file in files or (file.rpartition("/")[2].startswith("deletion_vector_") and file.endswith(".bin"))

    @property
    def locations(self) -> set[str]:
        """The tables under which Spark may have left files of the transaction."""
        return self.opened | self.commits.keys() | self.planned.keys()
