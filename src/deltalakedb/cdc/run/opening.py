"""The start of a capture: finds or creates its control table and its slot, which must belong to this server."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from deltalakedb.cdc.apply.batches import commit_progress, commit_tables, commit_until_won
from deltalakedb.cdc.apply.landing import SLOT_PROPERTY
from deltalakedb.cdc.control import (
    Capture,
    Server,
    begin_batch,
    change_choice,
    create_capture,
    load_capture,
    note_progress,
)
from deltalakedb.cdc.evolve.evolution import stop_table
from deltalakedb.cdc.lsn import format_lsn
from deltalakedb.cdc.source.postgres import Connection, check_source, identify
from deltalakedb.cdc.source.publication import look_at_publication
from deltalakedb.cdc.source.slots import Slot, check_slot, create_slot, drop_slot, find_slot
from deltalakedb.cdc.source_names import resnapshot_command
from deltalakedb.exceptions import (
    CaptureError,
    CaptureSetupError,
    ConfigError,
    OutcomeUnknownError,
    SlotLostError,
    WrongServerError,
)

if TYPE_CHECKING:
    from deltalakedb.catalog.catalog import Catalog
    from deltalakedb.cdc.captured_table import CapturedTable
    from deltalakedb.cdc.settings import CaptureSettings

_log = logging.getLogger(__name__)


def check_start(catalog: Catalog, conn: Connection, settings: CaptureSettings) -> None:
    """Raise what a start would be refused for. Changes nothing on either side, and does not need Spark."""
    try:
        _, capture, _ = _look(catalog, conn, settings)
    except SlotLostError:
        if settings.resnapshot != "slot":
            raise
        return  # the start copies every table again
    if capture is not None and capture.begun:
        look_at_publication(conn, settings, capture)  # a named table may be missing


def open_capture(catalog: Catalog, conn: Connection, settings: CaptureSettings) -> Capture:
    """Open the capture, with a slot that has everything not yet in the lake; the first start creates both."""
    server, capture, slot = _look(catalog, conn, settings)
    if capture is None:
        return _begin(catalog, conn, settings, server, slot)
    capture = _same_choice(catalog, capture, settings)
    if capture.streaming:
        return capture
    if capture.copying and (slot is None or slot.is_lost or slot.confirmed_lsn > capture.lsn):
        # The changes kept for the copies have a gap: they start again.
        restarted = [replace(table, stage="pending", copy_id=None) for table in capture.copying]
        capture = commit_tables(catalog, capture, restarted, "copies begin anew with another slot")
    elif capture.copying:
        return capture
    return _renew_slot(catalog, conn, capture, slot)


def _look(catalog: Catalog, conn: Connection, settings: CaptureSettings) -> tuple[Server, Capture | None, Slot | None]:
    """Read the server, the capture and its slot, and check that they fit together."""
    check_source(conn, settings)
    server = identify(conn)
    capture = load_capture(catalog, settings)
    slot = _own_slot(find_slot(conn, settings.slot), server)
    if capture is None:
        _check_unused(catalog, slot, settings)
    else:
        check_same(capture, settings, server)
        if capture.streaming:
            check_slot(conn, settings.slot, capture.lsn)
    if capture is None or not capture.begun:
        look_at_publication(conn, settings, capture).check_start(settings)
    return server, capture, slot


def _begin(catalog: Catalog, conn: Connection, settings: CaptureSettings, server: Server, slot: Slot | None) -> Capture:
    if slot is not None:  # it is lost, or the control table of this lake is: all tables are copied again
        drop_slot(conn, settings.slot)
    lsn = create_slot(conn, settings.slot)
    try:
        return create_capture(catalog, settings, server, lsn)
    except OutcomeUnknownError:
        raise
    except Exception:  # a slot without a reader keeps the source's log for ever
        with suppress(CaptureError):
            drop_slot(conn, settings.slot)
        raise


def _own_slot(slot: Slot | None, server: Server) -> Slot | None:
    if slot is not None and slot.database != server.database:
        raise CaptureSetupError(
            f"the slot {slot.name} belongs to the database {slot.database}, and not to {server.database}: choose "
            "another name with --slot"
        )
    return slot


def _check_unused(catalog: Catalog, slot: Slot | None, settings: CaptureSettings) -> None:
    """Refuse a slot that is not this lake's: dropping it would lose changes for the lake that owns it."""
    if slot is not None and not slot.is_lost and not _has_tables_of(catalog, slot):
        raise CaptureSetupError(
            f"the slot {slot.name} is there already, and this lake has no capture of it ({settings.control_table}): it "
            "may be that of another lake, which would lose changes. Look whether the catalog is the one that you mean; "
            "to capture into this lake, too, choose another name with --slot; if nobody needs the slot any more, run "
            f"select pg_drop_replication_slot('{slot.name}') in the source, and start again"
        )


def _has_tables_of(catalog: Catalog, slot: Slot) -> bool:
    """Tell whether the catalog has tables that a capture with this slot filled: then only its control table is lost."""
    configurations = (
        catalog.table(info.full_name).metadata().configuration
        for info in catalog.table_infos()
        if info.format == "delta"
    )
    return any(configuration.get(SLOT_PROPERTY) == slot.name for configuration in configurations)


def check_same(capture: Capture, settings: CaptureSettings, server: Server) -> None:
    """Refuse another publication, or another server than the captured one."""
    if capture.publication != settings.publication:
        raise ConfigError(
            f"the capture {capture.slot} is one of the publication {capture.publication}, and not of "
            f"{settings.publication}: choose another slot for another capture"
        )
    if capture.server == server:
        return
    before = capture.server
    difference = (
        f"another server (system identifier {server.system_id} instead of {before.system_id})"
        if before.system_id != server.system_id
        else f"another database ({server.database} instead of {before.database})"
        if before.database != server.database
        else f"on timeline {server.timeline} instead of {before.timeline}: a standby was promoted, or a backup restored"
    )
    raise WrongServerError(
        f"the source of the capture {capture.slot} is {difference}. Its log is not the one that was captured up to "
        f"{format_lsn(capture.lsn)}: correct the DSN; if this server is meant, dl cdc resnapshot has every table "
        "copied anew from it"
    )


def _same_choice(catalog: Catalog, capture: Capture, settings: CaptureSettings) -> Capture:
    """Refuse settings that choose otherwise than the capture was started with; before the first copy, save them."""
    chosen = settings.choice_value()
    if capture.choice == chosen:
        return capture
    if capture.begun:
        settings.check_same_choice(capture.choice)

    def commit() -> Capture:
        with begin_batch(catalog, capture, f"capture {capture.slot}: what is captured") as tx:
            return note_progress(tx, change_choice(tx, capture, chosen), capture.lsn)

    return commit_until_won(commit, f"{capture.slot}: what is captured")


def _renew_slot(catalog: Catalog, conn: Connection, capture: Capture, slot: Slot | None) -> Capture:
    """Recreate a lost slot. No table follows the stream, so nothing is missed."""
    if slot is not None and slot.is_lost:
        drop_slot(conn, capture.slot)
        slot = None
    lsn = create_slot(conn, capture.slot) if slot is None else slot.confirmed_lsn
    return commit_progress(catalog, capture, lsn) if lsn > capture.lsn else capture


def add_tables(catalog: Catalog, conn: Connection, capture: Capture, settings: CaptureSettings) -> Capture:
    """Add the tables that the publication has and the capture does not; tables that wait for a copy are read again."""
    published = look_at_publication(conn, settings, capture)
    if not capture.begun:
        published.check_start(settings)
    waiting = {source for source, table in capture.tables.items() if table.stage == "pending"}
    for source in waiting - published.sources:
        capture = stop_table(catalog, capture, source, published.why_not(source, settings), capture.lsn)
    changed = [_to_stopped(table, capture) for table in published.refused if table.source not in capture.tables]
    for table in published.tables:
        captured = capture.tables.get(table.source)
        if captured is not None:
            if captured.stage != "pending":
                continue
            table = replace(table, current=captured.current, changes=captured.changes, start_lsn=captured.start_lsn)
        if table != captured:
            changed.append(table)
    if not changed:
        return capture
    for table in changed:
        if table.reason is None:
            _log.info("%s captures %s", capture.slot, table.source)
        else:
            _log.warning("%s does not capture %s: %s", capture.slot, table.source, table.reason)
    return commit_tables(catalog, capture, changed, f"tables {', '.join(table.source for table in changed)}")


def _to_stopped(table: CapturedTable, capture: Capture) -> CapturedTable:
    """A new table that cannot be captured: it is recorded as stopped, so that status reports it and nothing waits."""
    reason = f"{table.reason}; then {resnapshot_command(table.source)} copies it"
    return replace(table, reason=reason, stopped_lsn=capture.lsn)


def stop_departed(catalog: Catalog, conn: Connection, capture: Capture, settings: CaptureSettings) -> Capture:
    """Stop the tables that are no longer in the publication or in the settings.

    Call it once everything written before is captured: their last changes may still be in the log.
    """
    published = look_at_publication(conn, settings, capture)
    for source, table in capture.tables.items():
        if source not in published.sources and table.stage != "stopped":
            capture = stop_table(catalog, capture, source, published.why_not(source, settings), capture.lsn)
    return capture
