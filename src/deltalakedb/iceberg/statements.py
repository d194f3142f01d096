"""Statements on Iceberg tables and views in a transaction: each adds a version to a draft."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from deltalakedb.exceptions import BadIcebergRequestError, TableExistsError, TableNotFoundError
from deltalakedb.iceberg.locations import from_iceberg, to_iceberg
from deltalakedb.iceberg.metadata.metadata_log import with_previous_file
from deltalakedb.iceberg.metadata.rendering import render_metadata
from deltalakedb.iceberg.metadata.requirements import check_requirements
from deltalakedb.iceberg.metadata.table_builder import apply_updates
from deltalakedb.iceberg.metadata.table_metadata import new_table_metadata, parse_table_metadata
from deltalakedb.iceberg.metadata.view_builder import apply_view_updates
from deltalakedb.iceberg.metadata.view_metadata import (
    check_view_requirements,
    new_view_metadata,
    parse_view_metadata,
    render_view_metadata,
)
from deltalakedb.iceberg.metadata_files import (
    check_location,
    make_folders,
    metadata_folder,
    read_metadata_file,
    remove_empty_folders,
    write_metadata_file,
)
from deltalakedb.log.protocol.proposal import WHOLE_TABLE
from deltalakedb.rights import current_access
from deltalakedb.storage.location import canonical_location
from deltalakedb.store.iceberg import VersionCache, read_iceberg_version, to_commit
from deltalakedb.store.locations import owner_around
from deltalakedb.store.names import TableName
from deltalakedb.store.registry import ICEBERG, VIEW
from deltalakedb.transactions.places import reserve_place

if TYPE_CHECKING:
    from deltalakedb.catalog.catalog import Catalog
    from deltalakedb.operations.target import WrittenFiles
    from deltalakedb.transactions.draft import TableDraft
    from deltalakedb.transactions.drafts import Drafts, IcebergFiles

Metadata: TypeAlias = Mapping[str, Any]
JsonObjects: TypeAlias = Sequence[Mapping[str, Any]]

FILE_PATHS = ("write.metadata.path", "write.data.path", "write.object-storage.path", "write.folder-storage.path")
"""Properties of a table that say where its files are put."""

ASSERT_CREATE = "assert-create"


@dataclass(frozen=True, slots=True)
class TableChange:
    """A client's commit to one table: what must hold, and what to change."""

    name: TableName
    requirements: JsonObjects
    updates: JsonObjects


@dataclass(frozen=True, slots=True)
class Step:
    """What a statement did to a table or view: its metadata now, and files that its metadata no longer names."""

    draft: TableDraft
    metadata: Metadata
    old_files: tuple[str, ...] = ()


# -- tables


def create_table(drafts: Drafts, written: WrittenFiles, name: TableName, request: Metadata) -> Step:
    """Create an Iceberg table as a client asks for it."""
    _refuse_taken(drafts, name)
    draft = _new_draft(drafts, name, request.get("location"), ICEBERG)
    metadata = first_metadata(request, location=_location_of(draft, request), table_uuid=draft.row.table_uuid)
    make_folders(metadata["location"])
    written.for_table(draft.row.table_uuid).remember_folder(partial(remove_empty_folders, metadata["location"]))
    drafts.add(draft)
    return _add_version(drafts, written, draft, metadata, "CREATE TABLE", {})


def stage_table(catalog: Catalog, files: IcebergFiles, name: TableName, request: Metadata) -> dict[str, Any]:
    """Return the metadata of a table that a later commit creates; its location is reserved for its uuid."""
    table_uuid = str(uuid.uuid4())
    given = request.get("location")
    if given is not None:
        given = check_location(given, files.limits, what=str(name))
    metadata = first_metadata(request, location=given or "file:/", table_uuid=table_uuid)
    place = None if given is None else from_iceberg(given)
    reserved = reserve_place(catalog, name, table_uuid, place, files.options, is_iceberg=True)
    metadata["location"] = given or to_iceberg(reserved)
    make_folders(metadata["location"])
    return metadata


def first_metadata(request: Metadata, *, location: str, table_uuid: str) -> dict[str, Any]:
    """Return the metadata of a table that a client wants to create."""
    return new_table_metadata(
        schema=request.get("schema", {}),
        partition_spec=request.get("partition-spec"),
        write_order=request.get("write-order"),
        properties=request.get("properties"),
        location=location,
        table_uuid=table_uuid,
        now_ms=_now_ms(),
    )


def change_table(drafts: Drafts, written: WrittenFiles, change: TableChange) -> Step:
    """Apply a client's commit to a table; with the requirement `assert-create` it creates the table."""
    draft = drafts.find(change.name)
    if draft is not None:
        return _change_existing(drafts, written, draft, change)
    if not any(requirement.get("type") == ASSERT_CREATE for requirement in change.requirements):
        raise no_such(change.name, "table")
    check_requirements(change.requirements, None)
    asked_location = _first(change.updates, "set-location", "location")
    draft = _new_draft(drafts, change.name, asked_location, ICEBERG, _first(change.updates, "assign-uuid", "uuid"))
    updates: JsonObjects = change.updates
    if asked_location is None:
        updates = [*updates, {"action": "set-location", "location": to_iceberg(draft.row.location)}]
    metadata = apply_updates(None, updates, now_ms=_now_ms(), table_uuid=draft.row.table_uuid)
    drafts.add(draft)
    return _add_version(drafts, written, draft, metadata, "CREATE TABLE", _described(updates))


def _change_existing(drafts: Drafts, written: WrittenFiles, draft: TableDraft, change: TableChange) -> Step:
    draft.use_options(drafts.iceberg_files.options)
    base = current_metadata(draft, "table", drafts.iceberg_files.cache)
    check_requirements(change.requirements, base)
    metadata = apply_updates(base, change.updates, now_ms=_now_ms(base))
    if metadata == base:
        draft.note_read(WHOLE_TABLE)
        return Step(draft, base)
    if metadata["location"] != base["location"]:
        _move(drafts, draft, metadata["location"])
    metadata, old_files = with_previous_file(
        metadata, previous_location=metadata_file(draft), previous_updated_ms=base["last-updated-ms"]
    )
    step = _add_version(drafts, written, draft, metadata, _operation(change.updates), _described(change.updates))
    own_places = (f"{metadata['location'].rstrip('/')}/", f"{metadata_folder(metadata)}/")
    return replace(step, old_files=tuple(file for file in old_files if file.startswith(own_places)))


def register_table(
    drafts: Drafts, name: TableName, metadata_location: str, *, overwrite: bool, load: Callable[[str], bytes]
) -> Step:
    """Register the table that a metadata file describes; the file becomes its first version in this catalog."""
    metadata = parse_table_metadata(load(metadata_location))
    existing = drafts.find(name)
    if existing is not None and overwrite and existing.row.mode == ICEBERG:
        return _replace_registered(drafts, existing, metadata, metadata_location)
    _refuse_taken(drafts, name)
    draft = _new_draft(drafts, name, metadata["location"], ICEBERG)
    _check_paths(drafts, draft, metadata)
    drafts.add(draft)
    return _add_file(draft, metadata, metadata_location, "REGISTER TABLE", {})


def _replace_registered(drafts: Drafts, draft: TableDraft, metadata: Metadata, metadata_location: str) -> Step:
    base = current_metadata(draft, "table")
    if metadata["location"] != base["location"]:
        _move(drafts, draft, metadata["location"])
    _check_paths(drafts, draft, metadata)
    return _add_file(draft, metadata, metadata_location, "REGISTER TABLE", {"overwrite": "true"})


# -- views


def create_view(drafts: Drafts, written: WrittenFiles, name: TableName, request: Metadata) -> Step:
    """Create a view as a client asks for it."""
    _refuse_taken(drafts, name)
    draft = _new_draft(drafts, name, request.get("location"), VIEW)
    metadata = new_view_metadata(
        request=request, location=_location_of(draft, request), view_uuid=draft.row.table_uuid, now_ms=_now_ms()
    )
    drafts.add(draft)
    return _add_version(drafts, written, draft, metadata, "CREATE VIEW", {})


def replace_view(drafts: Drafts, written: WrittenFiles, change: TableChange) -> Step:
    """Apply a client's commit to a view."""
    draft = drafts.find(change.name)
    if draft is None:
        raise no_such(change.name, "view")
    base = current_metadata(draft, "view")
    check_view_requirements(change.requirements, base)
    metadata = apply_view_updates(base, change.updates, now_ms=_now_ms())
    if metadata == base:
        draft.note_read(WHOLE_TABLE)
        return Step(draft, base)
    if metadata["location"] != base["location"]:
        _move(drafts, draft, metadata["location"])
    return _add_version(drafts, written, draft, metadata, "REPLACE VIEW", _described(change.updates))


def register_view(drafts: Drafts, name: TableName, metadata_location: str, *, load: Callable[[str], bytes]) -> Step:
    """Register the view that a metadata file describes."""
    _refuse_taken(drafts, name)
    metadata = parse_view_metadata(load(metadata_location))
    draft = _new_draft(drafts, name, metadata["location"], VIEW)
    drafts.add(draft)
    return _add_file(draft, metadata, metadata_location, "REGISTER VIEW", {})


# -- both


def loader(drafts: Drafts) -> Callable[[str], bytes]:
    """Return a function that reads a metadata file which a client names."""
    return lambda location: read_metadata_file(location, drafts.iceberg_files.limits)


def current_metadata(draft: TableDraft, kind: str, cache: VersionCache | None = None) -> Metadata:
    """Return the metadata of a table or view as the transaction sees it; `kind` is what the client takes it for.

    It is shared with other readers, and must not be changed.
    """
    if draft.row.mode != (VIEW if kind == "view" else ICEBERG):
        raise no_such(TableName(draft.row.namespace, draft.row.name), kind, is_delta=draft.row.is_delta)
    if draft.iceberg_metadata is None:
        assert draft.head is not None, "a new table has metadata in its draft"
        version = None if cache is None else cache.find(draft.pinned.table_uuid, draft.head)
        if version is None:
            with draft.store.read() as conn:
                version = read_iceberg_version(conn, draft.row.table_id, draft.head.current_version)
            if cache is not None:
                cache.keep(draft.pinned.table_uuid, draft.head.last_commit_ms, version)
        draft.iceberg_metadata, draft.iceberg_file = version.metadata, version.metadata_location
    return draft.iceberg_metadata


def no_such(name: TableName, kind: str, *, is_delta: bool = False) -> TableNotFoundError:
    """Return the error for a name that no Iceberg table or view has."""
    other = " is a Delta table, which Iceberg clients cannot open: read it with a Delta reader" if is_delta else ""
    return TableNotFoundError(f"{name}{other}" if other else f"{kind.capitalize()} does not exist: {name}")


def _refuse_taken(drafts: Drafts, name: TableName) -> None:
    existing = drafts.find(name)
    if existing is not None:
        what = {ICEBERG: "Table", VIEW: "View"}.get(existing.row.mode, "Delta table")
        raise TableExistsError(f"{what} already exists: {existing.row.full_name}")


def _new_draft(
    drafts: Drafts, name: TableName, location: object, mode: str, staged_uuid: str | None = None
) -> TableDraft:
    """Return a draft whose location is reserved: as the client wants it, or as the catalog chooses.

    `staged_uuid` is the uuid of a staged table, whose location is reserved already. It is not trusted: the uuid by
    which the registry knows a table is always one that this catalog made.
    """
    given = None if location is None else check_location(location, drafts.iceberg_files.limits, what=str(name))
    place = None if given is None else from_iceberg(given)
    return drafts.new_at(name, place, drafts.iceberg_files.options, mode=mode, staged_uuid=staged_uuid)


def _location_of(draft: TableDraft, request: Metadata) -> str:
    """Return the location in the client's spelling, which its metadata keeps."""
    return str(request.get("location") or to_iceberg(draft.row.location)).rstrip("/")


def _move(drafts: Drafts, draft: TableDraft, location: str) -> None:
    """Note a new location; the commit claims it."""
    text = check_location(location, drafts.iceberg_files.limits, what=draft.row.full_name)
    draft.row = replace(draft.row, location=canonical_location(from_iceberg(text)), files_owner="user")


def metadata_file(draft: TableDraft) -> str:
    """Return the current metadata file of a table or view, whose metadata the transaction has read or made."""
    return draft.iceberg[-1].metadata_location if draft.iceberg else draft.iceberg_file


def _add_version(
    drafts: Drafts,
    written: WrittenFiles,
    draft: TableDraft,
    metadata: Metadata,
    operation: str,
    parameters: Mapping[str, Any],
) -> Step:
    """Write the metadata file, and add the version to the draft."""
    _check_paths(drafts, draft, metadata)
    location = write_metadata_file(
        metadata,
        render(metadata),
        version=(-1 if draft.head is None else draft.head.current_version) + len(draft.iceberg) + 1,
        options=draft.options,
        config=drafts.iceberg_files.limits,
        written=written.for_table(draft.row.table_uuid),
        folders=draft.iceberg_folders,
    )
    return _add_file(draft, metadata, location, operation, parameters)


def _check_paths(drafts: Drafts, draft: TableDraft, metadata: Metadata) -> None:
    """Refuse properties that put the table's files into the folder of another table, which may delete them there."""
    before = (draft.iceberg_metadata or {}).get("properties", {})
    properties = metadata.get("properties", {})
    for key in FILE_PATHS:
        path = properties.get(key)
        if path is None or path == before.get(key):
            continue
        what = f"{draft.row.full_name}: the property {key}"
        place = canonical_location(from_iceberg(check_location(path, drafts.iceberg_files.limits, what=what)))
        with draft.store.read() as conn:
            owner = owner_around(conn, place, now_ms=conn.now_ms())
        if owner is not None and owner.table_uuid != draft.row.table_uuid:
            holder = owner.table_name if current_access().is_trusted else "another table"
            raise BadIcebergRequestError(f"{what} cannot be {path}: that is in the folder of {holder}")


def render(metadata: Metadata) -> bytes:
    """Return the bytes of the metadata file of a table or view."""
    return render_view_metadata(dict(metadata)) if "view-uuid" in metadata else render_metadata(dict(metadata))


def _add_file(
    draft: TableDraft, metadata: Metadata, metadata_location: str, operation: str, parameters: Mapping[str, Any]
) -> Step:
    base = None if draft.is_new and not draft.iceberg else draft.iceberg_metadata
    draft.iceberg.append(to_commit(base, metadata, metadata_location, operation=operation, parameters=parameters))
    draft.iceberg_metadata = metadata
    return Step(draft, metadata)


def _operation(updates: JsonObjects) -> str:
    """Name a commit for the history: the operation of the last snapshot it adds, or its first update."""
    summaries = [update["snapshot"].get("summary", {}) for update in updates if update.get("action") == "add-snapshot"]
    if summaries:
        return str(summaries[-1].get("operation", "append")).upper()
    return str(updates[0]["action"]).replace("-", " ").upper()


def _described(updates: JsonObjects) -> dict[str, Any]:
    """Return what the history says of the updates: their actions, and the summary of the last snapshot."""
    parameters: dict[str, Any] = {"updates": [update.get("action") for update in updates]}
    summaries = [update["snapshot"].get("summary") for update in updates if update.get("action") == "add-snapshot"]
    return {**parameters, "summary": summaries[-1]} if summaries and summaries[-1] else parameters


def _first(updates: JsonObjects, action: str, key: str) -> str | None:
    return next((update.get(key) for update in updates if update.get("action") == action), None)


def _now_ms(base: Metadata | None = None) -> int:
    """Return the time, never before the last update of the metadata that a commit is based on: clocks step back."""
    last_ms = 0 if base is None else int(base["last-updated-ms"])
    return max(time.time_ns() // 1_000_000, last_ms)
