"""The landing of a copy: the definition of a source table's two tables in the lake, and the commit of the copy."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from deltalakedb.cdc.apply.batches import decided_batch
from deltalakedb.cdc.apply.buckets import BUCKET, COUNT_PROPERTY, buckets_for, with_bucket
from deltalakedb.cdc.apply.upkeep import CLUSTER_PROPERTY
from deltalakedb.cdc.captured_table import CapturedTable, TableOptions
from deltalakedb.cdc.control import Capture, note_progress, progress_of, save_tables
from deltalakedb.cdc.evolve.lake_columns import is_mapped
from deltalakedb.cdc.layers import changes_schema, current_schema
from deltalakedb.cdc.lsn import format_lsn
from deltalakedb.cdc.settings import CaptureSettings
from deltalakedb.cdc.source_names import requote_source
from deltalakedb.exceptions import CaptureError, CaptureSetupError, TableNotFoundError
from deltalakedb.log.protocol.actions import Action, AddFile, Metadata, Protocol
from deltalakedb.log.protocol.codec import to_json
from deltalakedb.log.protocol.features import is_enabled
from deltalakedb.log.protocol.proposal import ProposedCommit
from deltalakedb.log.schema.types import StructField, StructType, parse_schema
from deltalakedb.operations.definition import PropertyValue, new_table, with_properties, with_schema
from deltalakedb.operations.write import metrics_in_sparks_words
from deltalakedb.runtime.steps import reached
from deltalakedb.spark.jobs import WriteJob
from deltalakedb.spark.replacing import everything
from deltalakedb.storage.location import open_storage
from deltalakedb.store.names import TableName, parse_table_name
from deltalakedb.transactions.places import release_places, reserve_place

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deltalakedb.catalog.catalog import Catalog
    from deltalakedb.table import DeltaTable
    from deltalakedb.transactions.transaction import CatalogTransaction

SLOT_PROPERTY: Final = "deltalakedb.cdc.slot"
SOURCE_PROPERTY: Final = "deltalakedb.cdc.source"
"""The source of a table of the lake: a copy only replaces the rows of its own table."""
HIDDEN_PROPERTY: Final = "deltalakedb.cdc.hidden"
"""On a table of changes: the columns that are masked or left out in it."""
_OPERATION: Final = "CAPTURE"
_SWITCHES: Final = {
    "delta.enableDeletionVectors": "deletion_vectors",
    "delta.enableChangeDataFeed": "change_data_feed",
}
_MAPPING: Final = "delta.columnMapping.mode"


@dataclass(frozen=True, slots=True)
class Landing:
    """The planned table of current rows, and the folder for its files until they are committed."""

    table: CapturedTable
    location: str
    options: Mapping[str, str] | None
    metadata: Metadata
    """Has the column names that the files must use."""
    actions: tuple[Action, ...]
    """Protocol and metadata of a new table, or what changes in an existing one."""
    before: Metadata | None
    """None: the table does not exist yet."""
    job: WriteJob | None
    """None: the lake keeps no table of its current rows."""
    reserved_for: str = ""
    """The uuid of a table that does not exist yet, for which the location is reserved."""


def prepare_landing(catalog: Catalog, table: CapturedTable, settings: CaptureSettings) -> Landing:
    """Plan the table of current rows; nothing is committed."""
    if table.keeps_changes:
        _find_own(catalog, table.changes, table, settings)
    if not table.keeps_current:
        return Landing(table, "", None, _new_current(table, settings)[1], (), None, None)
    existing, table_uuid = _find_own(catalog, table.current, table, settings), ""
    if existing is None:
        table_uuid = str(uuid.uuid4())
        location, options = reserve_place(catalog, parse_table_name(table.current), table_uuid, None, None), None
        first = _new_current(table, settings)
        actions: tuple[Action, ...] = first
        metadata, before = first[1], None
    else:
        backing = existing._backing
        snapshot = backing.newest()
        location, options = backing.location, backing.storage_options()
        before = snapshot.metadata
        actions = _change_current(snapshot.protocol, before, table, settings)
        metadata = next((action for action in actions if isinstance(action, Metadata)), before)
    job = WriteJob(location, options, open_storage(location, options))
    return Landing(table, location, options, metadata, actions, before, job, table_uuid)


def reopen_landing(
    catalog: Catalog,
    table: CapturedTable,
    *,
    location: str,
    metadata: Metadata,
    actions: tuple[Action, ...],
    before: Metadata | None,
    reserved_for: str,
    folder: str,
) -> Landing:
    """Reopen a landing that was planned before, perhaps by another process."""
    options = None
    if before is not None:
        try:
            options = catalog.table(table.current)._backing.storage_options()
        except TableNotFoundError as error:
            raise _landing_changed(table) from error
    job = WriteJob(location, options, open_storage(location, options))
    job.folder = folder
    return Landing(table, location, options, metadata, actions, before, job, reserved_for)


def drop_landing(catalog: Catalog, landing: Landing) -> None:
    """Delete the files and the reservation of a landing that is not needed."""
    if landing.job is not None:
        landing.job.clean()
    if landing.reserved_for:
        release_places(catalog, [landing.reserved_for])


def commit_landing(
    catalog: Catalog, capture: Capture, landing: Landing, adds: Sequence[AddFile], settings: CaptureSettings
) -> Capture:
    """Commit the complete copy of a table at the capture's LSN: its rows, its table of changes, its new stage."""
    table, lsn = landing.table, capture.lsn
    with decided_batch(catalog, capture, f"copy of {table.source} at {format_lsn(lsn)}", lsn) as tx:
        propose_copy(tx, capture, landing, adds, settings)
        landed = note_progress(tx, save_tables(tx, capture, [copied_at(table, lsn)]), lsn)
        reached("cdc.copy_proposed")
    reached("cdc.copy_committed")
    return landed


def propose_copy(
    tx: CatalogTransaction, capture: Capture, landing: Landing, adds: Sequence[AddFile], settings: CaptureSettings
) -> None:
    """Propose both tables: current rows from `adds`, and a table of changes with the right columns."""
    if landing.table.keeps_current:
        _propose_current(tx, capture, landing, adds)
    if landing.table.keeps_changes:
        _propose_changes(tx, capture, landing.table, settings)


def copied_at(table: CapturedTable, lsn: int) -> CapturedTable:
    """The table with its copy made at `lsn`, from where on it follows the stream."""
    return replace(
        table,
        stage="streaming",
        start_lsn=lsn,
        reason=None,
        stopped_lsn=None,
        changed_lsn=None,
        former=(),
        copy_id=None,
    )


def _find_own(catalog: Catalog, name: str, table: CapturedTable, settings: CaptureSettings) -> DeltaTable | None:
    try:
        existing = catalog.table(name)
    except TableNotFoundError:
        return None
    configuration = existing.metadata().configuration
    source = requote_source(configuration.get(SOURCE_PROPERTY) or "")
    if (configuration.get(SLOT_PROPERTY), source) != (settings.slot, table.source):
        raise CaptureSetupError(
            f"{table.source} would become {name} in the lake, where a table of that name is already that is no copy of "
            f"it: rename that one (dl rename {name} ...), or give the capture a namespace of its own (--namespace)"
        )
    return existing


def _properties(table: CapturedTable, settings: CaptureSettings) -> dict[str, PropertyValue]:
    properties: dict[str, PropertyValue] = {SLOT_PROPERTY: settings.slot, SOURCE_PROPERTY: table.source}
    if _options(table, settings).column_mapping:
        properties[_MAPPING] = "name"
    return properties


def _options(table: CapturedTable, settings: CaptureSettings) -> TableOptions:
    return table.options or settings.choose(table.source).options


def _new_current(table: CapturedTable, settings: CaptureSettings) -> tuple[Protocol, Metadata]:
    properties = _properties(table, settings)
    properties |= {key: True for key, is_on in _switches(_options(table, settings)).items() if is_on}
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
    """The columns of a table of current rows, its partition columns, and the properties that record them."""
    options, schema = _options(table, settings), current_schema(table)
    sorted_by = {CLUSTER_PROPERTY: to_json(list(options.cluster_by))} if options.cluster_by else {}
    count = buckets_for(table, options.buckets)
    if count:
        return with_bucket(schema), (BUCKET,), {COUNT_PROPERTY: str(count), **sorted_by}
    return schema, options.partition_by, sorted_by


def _switches(options: TableOptions) -> dict[str, bool]:
    return {key: bool(getattr(options, name)) for key, name in _SWITCHES.items()}


def _change_current(
    protocol: Protocol, before: Metadata, table: CapturedTable, settings: CaptureSettings
) -> tuple[Action, ...]:
    """The actions that change an existing table if a new copy has other columns or another layout."""
    new, partition_by, properties = _layout(table, settings)
    others = {
        key: value for key, value in before.configuration.items() if key not in (COUNT_PROPERTY, CLUSTER_PROPERTY)
    }
    raised, base = _switched(protocol, replace(before, configuration={**others, **properties}), table, settings)
    old = parse_schema(base.schema_string)
    same_layout = tuple(before.partition_columns) == tuple(partition_by)
    if _bare(old) == _bare(new) and base == before and same_layout:
        return ()
    # With column mapping, a column that stays keeps its field.
    merged = StructType(tuple(_same_field(old, item) or item for item in new.fields))
    actions = with_schema(raised, base, merged, table=table.current, partition_by=partition_by)
    metadata = next((action for action in actions if isinstance(action, Metadata)), base)
    last = next((action for action in actions if isinstance(action, Protocol)), raised)
    return (metadata,) if last == protocol else (last, metadata)


def _switched(
    protocol: Protocol, metadata: Metadata, table: CapturedTable, settings: CaptureSettings
) -> tuple[Protocol, Metadata]:
    """An existing table with what the rules switch on or off; options that no rule sets stay as they are."""
    choice, options = settings.choose(table.source), _options(table, settings)
    changes: dict[str, PropertyValue] = {
        key: is_on
        for key, is_on in _switches(options).items()
        if choice.says(_SWITCHES[key]) and is_enabled(metadata.configuration, key) != is_on
    }
    if options.column_mapping and choice.says("column_mapping") and not is_mapped(metadata):
        changes[_MAPPING] = "name"
    if not changes:
        return protocol, metadata
    actions = with_properties(protocol, metadata, changes, table=table.current, has_files=True)
    return (
        next((action for action in actions if isinstance(action, Protocol)), protocol),
        next((action for action in actions if isinstance(action, Metadata)), metadata),
    )


def _same_field(old: StructType, item: StructField) -> StructField | None:
    field_before = old.field(item.name)
    return (
        field_before
        if field_before is not None and (field_before.name, field_before.type) == (item.name, item.type)
        else None
    )


def _bare(schema: StructType) -> list[tuple[str, str]]:
    return [(item.name, str(item.type)) for item in schema.fields]


def _propose_current(tx: CatalogTransaction, capture: Capture, landing: Landing, adds: Sequence[AddFile]) -> None:
    name = parse_table_name(landing.table.current)
    progress = progress_of(capture, capture.lsn)
    parameters = {"mode": "Copy", "lsn": format_lsn(capture.lsn)}
    with tx._statement():
        draft = tx._drafts.find(name)
        if landing.before is None:
            if draft is not None:
                raise _landing_changed(landing.table)
            draft = tx._drafts.adopt(name, landing.location, landing.reserved_for, "catalog")
            tx._drafts.add(draft)
            metrics = metrics_in_sparks_words(adds, [])
            actions = (*landing.actions, progress, *adds)
            draft.commits.append(ProposedCommit(actions, _OPERATION, parameters, metrics, fenced=True))
            return
        if draft is None or draft.snapshot().metadata != landing.before:
            raise _landing_changed(landing.table)
        draft.check_writable()
        replaced = everything(draft.snapshot())
        removes = replaced.removes()
        metrics = metrics_in_sparks_words(adds, removes)
        actions = (*landing.actions, progress, *removes, *adds)
        draft.commits.append(ProposedCommit(actions, _OPERATION, parameters, metrics, read=replaced.read))


class LandingChanged(CaptureError):  # noqa: N818  another copy is made
    """The table that a copy was made for has changed; another copy is made."""


def _landing_changed(table: CapturedTable) -> LandingChanged:
    return LandingChanged(
        f"the table {table.current} was made, dropped or changed by somebody else while {table.source} was copied: "
        "leave it to the capture; it is copied again at the next start"
    )


def _propose_changes(tx: CatalogTransaction, capture: Capture, table: CapturedTable, settings: CaptureSettings) -> None:
    """Create the table of changes, or add its missing columns.

    If columns have other types or masks now, the existing table is renamed, and a new one takes its place.
    """
    schema = changes_schema(table)
    name = parse_table_name(table.changes)
    draft = tx._drafts.find(name)
    hidden = _hidden(table)
    if draft is not None:
        snapshot = draft.snapshot()
        old = parse_schema(snapshot.metadata.schema_string)
        # It may contain what is masked or left out from now on.
        is_as_open = (snapshot.metadata.configuration.get(HIDDEN_PROPERTY) or "{}") == hidden
        may_rename = is_mapped(snapshot.metadata) or not settings.choose(table.source).maps_columns
        merged = _merge(old, schema) if is_as_open and may_rename else None
        if merged is not None:
            actions = with_schema(snapshot.protocol, snapshot.metadata, merged, table=table.changes)
            if merged != old and actions:
                with tx._statement():
                    draft.check_writable()
                    draft.commits.append(ProposedCommit(tuple(actions), "ADD COLUMNS", {}))
            return
        tx.rename_table(table.changes, str(TableName(name.namespace, f"{name.name}_until_{capture.lsn:x}")))
    tx.create_table(
        table.changes,
        schema,
        properties={**_properties(table, settings), **({} if hidden == "{}" else {HIDDEN_PROPERTY: hidden})},
        description=f"What happened to the rows of {table.source}, in the order of (_lsn, _ordinal).",
    )


def _hidden(table: CapturedTable) -> str:
    """The columns whose source values are not in the lake, and what replaces them, as JSON."""
    masked = {column.name: column.mask.to_value() for column in table.columns if column.mask is not None}
    return to_json({**masked, **dict.fromkeys((column.name for column in table.left_out), None)})


def _merge(old: StructType, new: StructType) -> StructType | None:
    """The old fields and those that only the new schema has; None if a field has another type now."""
    fields = list(old.fields)
    places = {item.name.casefold(): place for place, item in enumerate(fields)}
    for item in new.fields:
        place = places.get(item.name.casefold())
        if place is None:
            fields.append(item)
            continue
        existing = fields[place]
        if isinstance(existing.type, StructType) and isinstance(item.type, StructType):
            merged = _merge(existing.type, item.type)
            if merged is None:
                return None
            fields[place] = replace(existing, type=merged)
        elif existing.type != item.type or existing.name != item.name:
            return None
    return StructType(tuple(fields))
