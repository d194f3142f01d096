"""The start of a capture: its control table and its slot are found or made, and must belong to this server."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from deltalakedb.cdc.batches import commit_progress, commit_tables
from deltalakedb.cdc.control import Capture, Server, create_capture, load_capture
from deltalakedb.cdc.evolution import stop_table
from deltalakedb.cdc.lsn import format_lsn
from deltalakedb.cdc.publication import look_at_publication
from deltalakedb.cdc.server import Connection, check_source, identify
from deltalakedb.cdc.slots import Slot, check_slot, create_slot, drop_slot, find_slot
from deltalakedb.exceptions import CaptureSetupError, ConfigError, WrongServerError

if TYPE_CHECKING:
    from deltalakedb.catalog import Catalog
    from deltalakedb.cdc.settings import CaptureSettings
    from deltalakedb.cdc.tables import CapturedTable

_log = logging.getLogger(__name__)


def open_capture(catalog: Catalog, conn: Connection, settings: CaptureSettings) -> Capture:
    """The capture, with a slot that has all that is not yet in the lake; made when it is the first start."""
    check_source(conn, settings)
    server = identify(conn)
    capture = load_capture(catalog, settings)
    slot = _own_slot(find_slot(conn, settings.slot), server)
    if capture is None:
        # A slot of a start that was cut: nothing is captured of it yet. If it were another lake's, that one would say
        # so, loudly, at its next start.
        lsn = create_slot(conn, settings.slot) if slot is None or slot.is_lost else slot.confirmed_lsn
        return create_capture(catalog, settings, server, lsn)
    _check_same(capture, settings, server)
    if any(table.stage == "streaming" for table in capture.tables.values()):
        check_slot(conn, settings.slot, capture.lsn)
        return capture
    return _renew_slot(catalog, conn, capture, slot)


def _own_slot(slot: Slot | None, server: Server) -> Slot | None:
    if slot is not None and slot.database != server.database:
        raise CaptureSetupError(
            f"the slot {slot.name} belongs to the database {slot.database}, and not to {server.database}: choose "
            "another name with --slot"
        )
    return slot


def _check_same(capture: Capture, settings: CaptureSettings, server: Server) -> None:
    if capture.publication != settings.publication:
        raise ConfigError(
            f"the capture {capture.slot} is one of the publication {capture.publication}, and not of "
            f"{settings.publication}: choose another slot for another capture"
        )
    if capture.server == server:
        return
    was = capture.server
    what = (
        f"another server (system identifier {server.system_id} instead of {was.system_id})"
        if was.system_id != server.system_id
        else f"another database ({server.database} instead of {was.database})"
        if was.database != server.database
        else f"on timeline {server.timeline} instead of {was.timeline}: a standby was promoted, or a backup restored"
    )
    raise WrongServerError(
        f"the source of the capture {capture.slot} is {what}. Its log is not the one that was captured up to "
        f"{format_lsn(capture.lsn)}: correct the DSN; if this server is meant, dl cdc resnapshot has every table "
        "copied anew from it"
    )


def _renew_slot(catalog: Catalog, conn: Connection, capture: Capture, slot: Slot | None) -> Capture:
    """No table follows the stream, so nothing can be lost: a slot that is gone is made anew."""
    if slot is not None and slot.is_lost:
        drop_slot(conn, capture.slot)
        slot = None
    lsn = create_slot(conn, capture.slot) if slot is None else slot.confirmed_lsn
    return commit_progress(catalog, capture, lsn) if lsn > capture.lsn else capture


def add_tables(catalog: Catalog, conn: Connection, capture: Capture, settings: CaptureSettings) -> Capture:
    """Take in the tables that the publication has and the capture does not; what waits for a copy is looked at anew."""
    published = look_at_publication(conn, settings, capture)
    if not capture.begun:
        published.check()
    waiting = {source for source, table in capture.tables.items() if table.stage == "pending"}
    for source in waiting - published.sources:
        capture = stop_table(catalog, capture, source, published.why_not(source, settings), capture.lsn)
    found = [_stopped(table, capture) for table in published.refused if table.source not in capture.tables]
    for table in published.tables:
        known = capture.tables.get(table.source)
        if known is not None:
            if known.stage != "pending":
                continue
            table = replace(table, current=known.current, changes=known.changes, start_lsn=known.start_lsn)
        if table != known:
            found.append(table)
    if not found:
        return capture
    for table in found:
        if table.reason is None:
            _log.info("%s captures %s", capture.slot, table.source)
        else:
            _log.warning("%s does not capture %s: %s", capture.slot, table.source, table.reason)
    return commit_tables(catalog, capture, found, f"tables {', '.join(table.source for table in found)}")


def _stopped(table: CapturedTable, capture: Capture) -> CapturedTable:
    """A table that came and cannot be captured: it is known, so that whoever asks is told, and keeps nobody waiting."""
    told = f"{table.reason}; then dl cdc resnapshot {table.source} copies it"
    return replace(table, reason=told, stopped_lsn=capture.lsn)


def stop_departed(catalog: Catalog, conn: Connection, capture: Capture, settings: CaptureSettings) -> Capture:
    """Stop the tables that the publication, or whoever chose the tables, does not have any more.

    To be asked once all is captured that was written before: their last changes may still be in the log.
    """
    published = look_at_publication(conn, settings, capture)
    for source, table in capture.tables.items():
        if source not in published.sources and table.stage != "stopped":
            capture = stop_table(catalog, capture, source, published.why_not(source, settings), capture.lsn)
    return capture
