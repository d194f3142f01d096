"""Makes the manifest list of a version from that of the version before it, and rewrites as few manifests as possible.

A manifest has the files of one content with ids in a range. A version that adds files gets one more manifest; of the
others only those are rewritten in whose ranges files were removed. When there are many small manifests, neighbours are
merged.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from deltalakedb.iceberg.delta.delta_files import FileShape
from deltalakedb.iceberg.delta.generated_files import GeneratedFiles
from deltalakedb.iceberg.delta.manifest_entries import FileEntry
from deltalakedb.iceberg.delta.manifest_writing import list_entry, write_list, write_manifest
from deltalakedb.store.delta_manifests import Content, ManifestRow

MANIFEST_FILES: Final = 1_000
"""Files in a manifest: the most that are rewritten when one of them is removed."""

SMALL_FILES: Final = MANIFEST_FILES // 2
MAX_SMALL: Final = 60
"""With more small manifests than this, neighbours are merged."""

HELD_ENTRIES: Final = 50_000
"""Entries kept in memory, so that they need not be read again for the next versions."""

CONTENTS: Final[tuple[Content, ...]] = ("data", "deletes")


@dataclass(frozen=True, slots=True)
class VersionEntries:
    """The entries of files, by content; `deletes` of those with vectors."""

    data: Sequence[FileEntry]
    deletes: Sequence[FileEntry]

    def of(self, content: Content) -> Sequence[FileEntry]:
        return self.data if content == "data" else self.deletes


@dataclass(frozen=True, slots=True)
class ListedVersion:
    """What a version's manifests and list are written with."""

    version: int
    snapshot: Mapping[str, Any]
    shape: FileShape
    schema: Mapping[str, Any]


@dataclass(slots=True)
class _Part:
    """A manifest of the list; `entries` if they are in memory."""

    row: ManifestRow
    encoded: bytes
    entries: Sequence[FileEntry] | None = None


ReadEntries = Callable[[FileShape, int, int], VersionEntries]
"""Reads the files with ids in a range that the newest list has, in the order of their ids."""


class ListBuilder:
    """Builds the lists of versions, one after another."""

    def __init__(
        self,
        files: GeneratedFiles,
        manifests: Sequence[ManifestRow],
        *,
        next_id: int,
        format_version: int,
        read: ReadEntries,
    ) -> None:
        """`manifests` are those of the list to begin with."""
        self._files = files
        self._format_version = format_version
        self._read = read
        self._next_id = next_id
        self._parts: dict[Content, list[_Part]] = {
            content: [self._part(row) for row in manifests if row.manifest_content == content] for content in CONTENTS
        }
        self._held = 0
        self.manifests: dict[int, ManifestRow] = {}
        """Manifests that were written, by their ids."""
        self.closed: dict[int, int] = {}
        """The version that is the first without it, of each manifest that was there before."""

    def start_with(self, listed: ListedVersion, pages: Iterator[VersionEntries]) -> str:
        """Write the list of a version from all its files; return its path."""
        parts: dict[Content, list[_Part]] = {content: [] for content in CONTENTS}
        waiting: dict[Content, list[FileEntry]] = {content: [] for content in CONTENTS}
        for page in pages:
            for content in CONTENTS:
                waiting[content] += page.of(content)
                while len(waiting[content]) >= MANIFEST_FILES:
                    parts[content].append(self._write(listed, content, waiting[content][:MANIFEST_FILES]))
                    del waiting[content][:MANIFEST_FILES]
        for content in CONTENTS:
            if waiting[content]:
                parts[content].append(self._write(listed, content, waiting[content]))
        return self._finish(listed, parts)

    def follow(self, listed: ListedVersion, added: VersionEntries, removed: Sequence[int], *, anew: bool) -> str:
        """Write the list of the next version, with the ids of the files that it removed; return its path.

        With `anew` all manifests are written again, because the version describes files in another way.
        """
        parts = {
            content: self._next_parts(listed, content, added.of(content), sorted(removed), anew=anew)
            for content in CONTENTS
        }
        return self._finish(listed, parts)

    def _next_parts(
        self, listed: ListedVersion, content: Content, added: Sequence[FileEntry], removed: list[int], *, anew: bool
    ) -> list[_Part]:
        merged = _to_merge(self._parts[content])
        parts: list[_Part] = []
        waiting: list[FileEntry] = []

        def write(entries: Sequence[FileEntry], at_least: int) -> None:
            """Write what waits, in manifests of full size; a rest that is smaller than `at_least` waits on."""
            waiting.extend(entries)
            while len(waiting) >= at_least:
                parts.append(self._write(listed, content, waiting[:MANIFEST_FILES]))
                del waiting[:MANIFEST_FILES]

        for place, part in enumerate(self._parts[content]):
            row = part.row
            ids = removed[bisect_left(removed, row.first_file_id) : bisect_right(removed, row.last_file_id)]
            if content == "data" and len(ids) == row.num_files:
                continue
            if not ids and not anew and place not in merged:
                write((), 1)
                parts.append(part)
                continue
            entries = self._entries(part, listed.shape, anew=anew)
            gone = set(ids)
            kept = [entry for entry in entries if entry.file_id not in gone]
            if len(kept) == len(entries) and not anew and place not in merged:
                write((), 1)
                parts.append(part)
            else:
                write(kept, MANIFEST_FILES)
        write((), 1)
        write(added, 1)
        return parts

    def _entries(self, part: _Part, shape: FileShape, *, anew: bool) -> Sequence[FileEntry]:
        if part.entries is not None and not anew:
            return part.entries
        read = self._read(shape, part.row.first_file_id, part.row.last_file_id)
        return read.of(part.row.manifest_content)

    def _write(self, listed: ListedVersion, content: Content, entries: Sequence[FileEntry]) -> _Part:
        row = write_manifest(
            self._files,
            listed.shape,
            listed.schema,
            entries,
            content=content,
            manifest_id=self._next_id,
            version=listed.version,
            snapshot_id=listed.snapshot["snapshot-id"],
            format_version=self._format_version,
        )
        self._next_id += 1
        part = self._part(row)
        if self._held + len(entries) <= HELD_ENTRIES:
            self._held += len(entries)
            part.entries = list(entries)
        return part

    def _part(self, row: ManifestRow) -> _Part:
        return _Part(row, list_entry(row, self._format_version))

    def _finish(self, listed: ListedVersion, parts: dict[Content, list[_Part]]) -> str:
        """Write the list of these manifests, which become those to go on from."""
        encoded = [part.encoded for content in CONTENTS for part in parts[content]]
        path = write_list(
            self._files, encoded, listed.snapshot, version=listed.version, format_version=self._format_version
        )
        before = {part.row.manifest_id: part for content in CONTENTS for part in self._parts[content]}
        after = {part.row.manifest_id: part for content in CONTENTS for part in parts[content]}
        for manifest_id in before.keys() - after.keys():
            self._held -= len(before[manifest_id].entries or ())
            if manifest_id in self.manifests:
                row = self.manifests[manifest_id]
                self.manifests[manifest_id] = replace(row, removed_version=listed.version)
            else:
                self.closed[manifest_id] = listed.version
        for manifest_id in after.keys() - before.keys():
            self.manifests[manifest_id] = after[manifest_id].row
        self._parts = parts
        return path


def _to_merge(parts: Sequence[_Part]) -> set[int]:
    """The places of small manifests beside other small ones, if there are many."""
    small = {place for place, part in enumerate(parts) if part.row.num_files < SMALL_FILES}
    beside = {place for place in small if place - 1 in small or place + 1 in small}
    return beside if len(beside) > MAX_SMALL else set()
