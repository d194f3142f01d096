"""DeltaTables: the Delta tables of a catalog as Iceberg clients see them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from deltalakedb.exceptions import NotSayableInIcebergError
from deltalakedb.iceberg.delta.delta_metadata import delta_metadata, in_force
from deltalakedb.iceberg.delta.delta_schema import problems_of
from deltalakedb.iceberg.delta.field_ids import (
    Path,
    assign_ids,
    changed_ids,
    column_with_parts_without_ids,
    path_from_text,
    stored_form,
)
from deltalakedb.iceberg.delta.file_ids import Fields, file_problems, read_file_ids, with_ids_of_files
from deltalakedb.iceberg.locations import to_iceberg
from deltalakedb.log.protocol.actions import Metadata
from deltalakedb.log.protocol.features import check_readable
from deltalakedb.log.protocol.paths import is_absolute, resolve
from deltalakedb.mirror.follow import follow
from deltalakedb.store import registry
from deltalakedb.store.connection import Connection, DuplicateRowError
from deltalakedb.store.delta_manifests import read_newest_listed_version
from deltalakedb.store.iceberg_delta import (
    NEWEST_FORMAT,
    TableHistory,
    read_added_files,
    read_field_ids,
    read_format,
    read_history,
    read_unusual_files,
    write_field_ids,
    write_format,
)
from deltalakedb.store.registry import OpenTable, TableRow

if TYPE_CHECKING:
    from deltalakedb.catalog.catalog import Catalog

FOLLOWER = "follower"

OptionsOf: TypeAlias = Callable[[TableRow], dict[str, str] | None]


@dataclass(frozen=True, slots=True)
class DeltaState:
    """A Delta table at its head, with the ids that Iceberg clients know its columns by."""

    opened: OpenTable
    ids: Mapping[Path, int]
    location: str
    """As Iceberg clients read it."""
    metadata: Mapping[str, Any]
    history: TableHistory
    metadata_location: str = ""
    """The metadata file, if one was written."""


class DeltaTables:
    """Makes Iceberg metadata of Delta tables. What it remembers of a table only saves work."""

    def __init__(self, catalog: Catalog, options_of: OptionsOf | None = None) -> None:
        """`options_of` returns the storage options of a table, by default those of the catalog."""
        self._options_of = options_of or catalog.storage_options_of
        self._store = catalog.store
        self._checked: dict[int, tuple[int, int]] = {}
        """The newest version of each table that was loaded here, and when it was committed."""

    def load(self, row: TableRow) -> DeltaState:
        """A table at its newest version; NotSayableInIcebergError if it has what Iceberg does not."""
        if row.mode == FOLLOWER:
            follow(self._store, row, storage_options=self._options_of(row))
        with self._store.read() as conn:
            opened = registry.open_table(conn, row.namespace, row.name)
            assert opened is not None, "a Delta table has a version"
            history = read_history(conn, opened)
            stored = read_field_ids(conn, row.table_id)
            format_version = read_format(conn, row.table_id)
            checked = self._checked_version(conn, row, history)
            has_vectors, absolute = _unusual(conn, row, history, checked, format_version)
            added = read_added_files(
                conn,
                row.table_id,
                after_version=checked,
                first_version=history.snapshots[0].version,
                # Our own writers give files no ids, and those of Iceberg clients are checked when they append.
                only_given=bool(stored) and row.mode != FOLLOWER,
            )
        check_readable(opened.protocol, row.full_name)
        location = to_iceberg(row.location)
        _refuse(
            row,
            [
                *_problems(history),
                *changed_ids(_parse_ids(stored), _updates(history)),
                *_files_elsewhere(row.location, absolute),
            ],
        )
        files = read_file_ids(row.location, self._options_of(row), added)
        known = with_ids_of_files(_parse_ids(stored), files)
        _refuse(row, file_problems(files, assign_ids(known, _updates(history))))
        if has_vectors and format_version < NEWEST_FORMAT:
            format_version = self._raise_format(row.table_id)
        ids = self._ids(row.table_id, stored, history, files)
        newest = history.snapshots[-1]
        self._checked[row.table_id] = newest.version, newest.committed_at_ms
        metadata = delta_metadata(opened, history, ids, location=location, format_version=format_version)
        return DeltaState(opened, ids, location, metadata, history)

    def _checked_version(self, conn: Connection, row: TableRow, history: TableHistory) -> int:
        """The version whose files, and those of versions before it, were looked at; -1 if there is none.

        Versions that `dl mirror resolve` replaced since were not: they have other commit times, and no lists.
        """
        version, committed_at_ms = self._checked.get(row.table_id, (-1, -1))
        then = next((item for item in reversed(history.snapshots) if item.version <= version), None)
        if then is not None and (then.version, then.committed_at_ms) == (version, committed_at_ms):
            return version
        listed = read_newest_listed_version(conn, row.table_id)
        return -1 if listed is None else listed

    def _raise_format(self, table_id: int) -> int:
        try:
            with self._store.write() as conn:
                write_format(conn, table_id)
        except DuplicateRowError:
            pass  # another process was faster
        return NEWEST_FORMAT

    def _ids(
        self, table_id: int, stored: Mapping[str, int], history: TableHistory, files: Iterable[Fields]
    ) -> dict[Path, int]:
        """The ids of all fields, stored when there are new ones. `files` are those that have ids."""
        updates = _updates(history)
        ids = assign_ids(with_ids_of_files(_parse_ids(stored), files), updates)
        while stored_form(ids) != stored:
            try:
                with self._store.write() as conn:
                    # Read again under the lock: another process may have given other ids meanwhile.
                    stored = read_field_ids(conn, table_id)
                    ids = assign_ids(with_ids_of_files(_parse_ids(stored), files), updates)
                    if stored_form(ids) != stored:
                        stored = stored_form(ids)
                        write_field_ids(conn, table_id, stored)
            except DuplicateRowError:
                continue
        return ids


def refuse_to_duckdb(state: DeltaState) -> None:
    """Raise NotSayableInIcebergError for a table of which DuckDB would read nulls where there are values."""
    column = column_with_parts_without_ids(_updates(state.history))
    if column is not None:
        raise NotSayableInIcebergError(
            f"{state.opened.table.full_name} is a Delta table that DuckDB cannot read as an Iceberg table: column "
            f"mapping gives field ids to columns, not to what is in the lists and maps of its column {column}, and "
            "DuckDB reads that as null. Read it with a Delta reader or another Iceberg client",
            [column],
        )


def _unusual(
    conn: Connection, row: TableRow, history: TableHistory, checked: int, format_version: int
) -> tuple[bool, list[str]]:
    """Whether a kept version has vectors, and the absolute paths of its files; only new files are looked at."""
    first_version = history.snapshots[0].version
    files = read_unusual_files(conn, row.table_id, after_version=checked, first_version=first_version)
    has_vectors = files.has_vectors or format_version == NEWEST_FORMAT
    return has_vectors, [path for path in files.absolute_paths if is_absolute(path)]


def _refuse(row: TableRow, problems: Sequence[str]) -> None:
    if problems:
        raise NotSayableInIcebergError(
            f"{row.full_name} is a Delta table that Iceberg clients cannot read: {'; '.join(problems)}. Read it with a "
            "Delta reader",
            problems,
        )


def _parse_ids(stored: Mapping[str, int]) -> dict[Path, int]:
    return {path_from_text(text): number for text, number in stored.items()}


def _updates(history: TableHistory) -> list[Metadata]:
    return [metadata for _, metadata in history.metadata]


def _problems(history: TableHistory) -> list[str]:
    """Why the columns of a kept version cannot be said in Iceberg."""
    return problems_of(list({version: metadata for _, (version, metadata) in in_force(history)}.values()))


def _files_elsewhere(location: str, paths: list[str]) -> Iterator[str]:
    folder = f"{location.rstrip('/')}/"
    elsewhere = [path for path in paths if not resolve(location, path).startswith(folder)]
    if elsewhere:
        yield f"its file {elsewhere[0]} is outside of the table's folder, as those of a shallow clone are"
