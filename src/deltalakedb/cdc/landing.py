"""The landing of a copy: what a source table's two tables become in the lake, and the commit that makes it true."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from deltalakedb.cdc.batches import decided_batch
from deltalakedb.cdc.buckets import BUCKET, COUNT_PROPERTY, buckets_for, with_bucket
from deltalakedb.cdc.control import Capture, note_progress, progress_of, save_tables
from deltalakedb.cdc.layers import changes_schema, current_schema
from deltalakedb.cdc.lsn import format_lsn
from deltalakedb.cdc.settings import CaptureSettings
from deltalakedb.cdc.tables import CapturedTable, requote_source
from deltalakedb.definitions.table import PropertyValue, new_table, with_schema
from deltalakedb.exceptions import CaptureError, CaptureSetupError, TableNotFoundError
from deltalakedb.log.actions import Action, AddFile, Metadata, Protocol
from deltalakedb.log.proposal import ProposedCommit
from deltalakedb.log.types import StructField, StructType, parse_schema
from deltalakedb.names import TableName, parse_table_name
from deltalakedb.operations.write import metrics_in_sparks_words
from deltalakedb.spark.jobs import WriteJob
from deltalakedb.spark.replacing import everything
from deltalakedb.steps import reached
from deltalakedb.storage import open_data_storage
from deltalakedb.transactions.places import reserve_place

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deltalakedb.catalog import Catalog
    from deltalakedb.table import DeltaTable
    from deltalakedb.transactions.transaction import CatalogTransaction

SLOT_PROPERTY: Final = "deltalakedb.cdc.slot"
SOURCE_PROPERTY: Final = "deltalakedb.cdc.source"
"""Whose copy a table of the lake is: a copy replaces the rows of no table but its own."""
_OPERATION: Final = "CAPTURE"


@dataclass(frozen=True, slots=True)
class Landing:
    """The table of current rows as it will be, and the folder that takes its files until then."""

    table: CapturedTable
    location: str
    options: Mapping[str, str] | None
    metadata: Metadata
    """With the names of columns that the files must have."""
    actions: tuple[Action, ...]
    """What makes the table so: protocol and metadata of a new one, or what changes."""
    before: Metadata | None
    """None: there is no such table yet."""
    job: WriteJob
    reserved_for: str = ""
    """The uuid of a table that does not exist yet: its location is reserved."""


def prepare_landing(catalog: Catalog, table: CapturedTable, settings: CaptureSettings) -> Landing:
    """Decide what the table of current rows will be; nothing of it is true yet."""
    found, table_uuid = _find_own(catalog, table.current, table, settings), ""
    _find_own(catalog, table.changes, table, settings)
    if found is None:
        table_uuid = str(uuid.uuid4())
        location, options = reserve_place(catalog, parse_table_name(table.current), table_uuid, None, None), None
        first = _new_current(table, settings)
        actions: tuple[Action, ...] = first
        metadata, before = first[1], None
    else:
        backing = found._backing
        snapshot = backing.newest()
        location, options = backing.location, backing.storage_options()
        before = snapshot.metadata
        actions = _changed_current(snapshot.protocol, before, table, settings)
        metadata = next((one for one in actions if isinstance(one, Metadata)), before)
    job = WriteJob(location, options, open_data_storage(location, options))
    return Landing(table, location, options, metadata, actions, before, job, table_uuid)


def commit_landing(
    catalog: Catalog, capture: Capture, landing: Landing, adds: Sequence[AddFile], settings: CaptureSettings
) -> Capture:
    """Commit the whole copy of a table, made at the capture's LSN: its rows, its table of changes, its new stage."""
    table, lsn = landing.table, capture.lsn
    streaming = replace(
        table,
        stage="streaming",
        start_lsn=lsn,
        reason=None,
        stopped_lsn=None,
        notes=(),
        changed_lsn=None,
        former=(),
    )
    with decided_batch(catalog, capture, f"copy of {table.source} at {format_lsn(lsn)}", lsn) as tx:
        _propose_current(tx, capture, landing, adds)
        _propose_changes(tx, capture, table, settings)
        landed = note_progress(tx, save_tables(tx, capture, [streaming]), lsn)
        reached("cdc.copy_proposed")
    reached("cdc.copy_committed")
    return landed


def _find_own(catalog: Catalog, name: str, table: CapturedTable, settings: CaptureSettings) -> DeltaTable | None:
    try:
        found = catalog.table(name)
    except TableNotFoundError:
        return None
    configuration = found.metadata().configuration
    source = requote_source(configuration.get(SOURCE_PROPERTY) or "")
    if (configuration.get(SLOT_PROPERTY), source) != (settings.slot, table.source):
        raise CaptureSetupError(
            f"{table.source} would become {name} in the lake, where a table of that name is already that is no copy of "
            f"it: rename that one (dl rename {name} ...), or give the capture a namespace of its own (--namespace)"
        )
    return found


def _properties(table: CapturedTable, settings: CaptureSettings) -> dict[str, PropertyValue]:
    properties: dict[str, PropertyValue] = {SLOT_PROPERTY: settings.slot, SOURCE_PROPERTY: table.source}
    if settings.column_mapping:
        properties["delta.columnMapping.mode"] = "name"
    return properties


def _new_current(table: CapturedTable, settings: CaptureSettings) -> tuple[Protocol, Metadata]:
    properties = _properties(table, settings)
    if settings.deletion_vectors:
        properties["delta.enableDeletionVectors"] = True
    if settings.change_data_feed:
        properties["delta.enableChangeDataFeed"] = True
    schema, partition_by, buckets = _layout(table, settings)
    return new_table(
        schema,
        partition_by,
        {**properties, **buckets},
        table=table.current,
        name=parse_table_name(table.current).name,
        description=f"The rows of {table.source} as they are now.",
        created_ms=time.time_ns() // 1_000_000,
    )


def _layout(table: CapturedTable, settings: CaptureSettings) -> tuple[StructType, tuple[str, ...], dict[str, str]]:
    """The columns of a table of current rows, those it is partitioned by, and the property that says how."""
    schema, count = current_schema(table), buckets_for(table, settings)
    return (with_bucket(schema), (BUCKET,), {COUNT_PROPERTY: str(count)}) if count else (schema, (), {})


def _changed_current(
    protocol: Protocol, before: Metadata, table: CapturedTable, settings: CaptureSettings
) -> tuple[Action, ...]:
    """What changes when the rows of a copy replace those of another one, made when the columns were others."""
    old = parse_schema(before.schema_string)
    new, partition_by, buckets = _layout(table, settings)
    others = {key: value for key, value in before.configuration.items() if key != COUNT_PROPERTY}
    base = replace(before, configuration={**others, **buckets})
    if _bare(old) == _bare(new) and base == before:
        return ()
    # Under column mapping whoever keeps a column keeps its field.
    kept = StructType(tuple(_same_field(old, item) or item for item in new.fields))
    actions = tuple(with_schema(protocol, base, kept, table=table.current, partition_by=partition_by))
    return actions if any(isinstance(one, Metadata) for one in actions) else (*actions, base)


def _same_field(old: StructType, item: StructField) -> StructField | None:
    found = old.field(item.name)
    return found if found is not None and (found.name, found.type) == (item.name, item.type) else None


def _bare(schema: StructType) -> list[tuple[str, str]]:
    return [(item.name, str(item.type)) for item in schema.fields]


def _propose_current(tx: CatalogTransaction, capture: Capture, landing: Landing, adds: Sequence[AddFile]) -> None:
    name = parse_table_name(landing.table.current)
    noted = progress_of(capture, capture.lsn)
    parameters = {"mode": "Copy", "lsn": format_lsn(capture.lsn)}
    with tx._statement():
        draft = tx._drafts.find(name)
        if landing.before is None:
            if draft is not None:
                raise _changed_meanwhile(landing)
            draft = tx._drafts.adopt(name, landing.location, landing.reserved_for, "catalog")
            tx._drafts.add(draft)
            metrics = metrics_in_sparks_words(adds, [])
            actions = (*landing.actions, noted, *adds)
            draft.propose(ProposedCommit(actions, _OPERATION, parameters, metrics, fenced=True))
            return
        if draft is None or draft.snapshot().metadata != landing.before:
            raise _changed_meanwhile(landing)
        draft.check_writable()
        replaced = everything(draft.snapshot())
        removes = replaced.removes()
        metrics = metrics_in_sparks_words(adds, removes)
        actions = (*landing.actions, noted, *removes, *adds)
        draft.propose(ProposedCommit(actions, _OPERATION, parameters, metrics, read=replaced.read))


def _changed_meanwhile(landing: Landing) -> CaptureError:
    name = landing.table.current
    return CaptureError(
        f"the table {name} was made, dropped or changed by somebody else while {landing.table.source} was copied: "
        "leave it to the capture; it is copied again at the next start"
    )


def _propose_changes(tx: CatalogTransaction, capture: Capture, table: CapturedTable, settings: CaptureSettings) -> None:
    """The table of changes is made, or gets the columns it does not have.

    One whose columns have other types now keeps what it has, under another name, and a new one takes its place.
    """
    schema = changes_schema(table)
    name = parse_table_name(table.changes)
    draft = tx._drafts.find(name)
    if draft is not None:
        snapshot = draft.snapshot()
        old = parse_schema(snapshot.metadata.schema_string)
        merged = _merge(old, schema)
        if merged is not None:
            actions = with_schema(snapshot.protocol, snapshot.metadata, merged, table=table.changes)
            if merged != old and actions:
                with tx._statement():
                    draft.check_writable()
                    draft.propose(ProposedCommit(tuple(actions), "ADD COLUMNS", {}))
            return
        tx.rename_table(table.changes, str(TableName(name.namespace, f"{name.name}_until_{capture.lsn:x}")))
    tx.create_table(
        table.changes,
        schema,
        properties=_properties(table, settings),
        description=f"What happened to the rows of {table.source}, in the order of (_lsn, _ordinal).",
    )


def _merge(old: StructType, new: StructType) -> StructType | None:
    """The old fields and those that only the new schema has; None where a field has another type now."""
    fields = list(old.fields)
    places = {item.name.casefold(): place for place, item in enumerate(fields)}
    for item in new.fields:
        place = places.get(item.name.casefold())
        if place is None:
            fields.append(item)
            continue
        mine = fields[place]
        if isinstance(mine.type, StructType) and isinstance(item.type, StructType):
            merged = _merge(mine.type, item.type)
            if merged is None:
                return None
            fields[place] = replace(mine, type=merged)
        elif mine.type != item.type or mine.name != item.name:
            return None
    return StructType(tuple(fields))
