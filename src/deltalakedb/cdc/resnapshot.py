"""New copies of captured tables: how they are asked for, of whoever runs the capture now or next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from deltalakedb.cdc.batches import WORTH_ANOTHER_RUN, commit_until_won
from deltalakedb.cdc.control import Capture, Server, change_server, load_capture, note_progress, save_tables
from deltalakedb.cdc.presence import RunnerPresence
from deltalakedb.cdc.server import Connection, connect, identify
from deltalakedb.cdc.slots import create_slot, drop_slot, find_slot
from deltalakedb.cdc.tables import parse_source
from deltalakedb.exceptions import (
    CaptureError,
    CaptureRunningError,
    CaptureSetupError,
    ConcurrentTransactionError,
    WrongServerError,
)

if TYPE_CHECKING:
    from deltalakedb.catalog import Catalog
    from deltalakedb.cdc.settings import CaptureSettings
    from deltalakedb.transactions.transaction import CatalogTransaction


def resnapshot(catalog: Catalog, settings: CaptureSettings, tables: Iterable[str] = ()) -> tuple[Capture, bool]:
    """Have tables copied anew, all of them when none is named; the capture, and whether somebody runs it.

    A runner copies them as soon as it sees that, within seconds; otherwise the next start does.
    """
    try:
        # Nobody starts the capture while its slot is made anew.
        with RunnerPresence(settings.source, settings.slot):
            return request_resnapshot(catalog, settings, tables), False
    except CaptureRunningError:
        return request_resnapshot(catalog, settings, tables, is_running=True), True


def request_resnapshot(
    catalog: Catalog, settings: CaptureSettings, tables: Iterable[str] = (), *, is_running: bool = False
) -> Capture:
    """Mark the tables that are to be copied anew.

    A slot that is lost, or has gone on without us, is made anew; then every table needs another copy. Where the source
    is another server now, and no table is named, the capture is that server's from now on. Neither can be done while
    somebody runs the capture.
    """
    named = tuple(tables)
    with connect(settings.source) as conn:
        server = identify(conn)

        def request() -> Capture:
            with catalog.begin(message=f"capture {settings.slot}: new copies are asked for") as tx:
                capture = load_capture(tx, settings)
                if capture is None:
                    raise CaptureError(
                        f"there is no capture {settings.slot} in this lake ({settings.control_table}); start it"
                    )
                return _request(tx, conn, capture, server, named, is_running)

        told = f"the request for new copies of {settings.slot}"
        # A batch of the runner may be faster.
        return commit_until_won(request, told, (*WORTH_ANOTHER_RUN, ConcurrentTransactionError))


def _request(
    tx: CatalogTransaction,
    conn: Connection,
    capture: Capture,
    server: Server,
    named: Sequence[str],
    is_running: bool,
) -> Capture:
    wanted = choose_tables(capture, named)
    if server != capture.server and named:
        raise WrongServerError(
            f"the source is another server than the one that the capture {capture.slot} belongs to (system "
            f"identifier {server.system_id}, timeline {server.timeline}, database {server.database}): correct the "
            "DSN; if that server is meant, dl cdc resnapshot without names copies every table from it"
        )
    is_sound = _has_sound_slot(conn, capture, server) and server == capture.server
    if is_running and not is_sound:
        raise CaptureRunningError(
            f"the slot {capture.slot} is lost, or one of another server, and somebody still runs the capture: stop it "
            f"first (dl cdc stop --slot {capture.slot})"
        )
    lsn = capture.lsn
    if not is_sound:
        drop_slot(conn, capture.slot)
        lsn = create_slot(conn, capture.slot)
        wanted |= {source for source, table in capture.tables.items() if table.stage != "stopped"}
    again = [
        replace(capture.tables[source], stage="pending", reason=None, stopped_lsn=None) for source in sorted(wanted)
    ]
    asked = save_tables(tx, capture, again)
    if server != capture.server:
        asked = change_server(tx, asked, server)
    return note_progress(tx, asked, lsn)


def choose_tables(capture: Capture, tables: Iterable[str]) -> set[str]:
    """The captured tables that are named, or all; a name without a schema is one in `public`."""
    wanted = {parse_source(name) for name in tables} or set(capture.tables)
    unknown = wanted - set(capture.tables)
    if unknown:
        raise CaptureError(
            f"the capture {capture.slot} has no table {', '.join(sorted(unknown))}; it has "
            f"{', '.join(sorted(capture.tables)) or 'none'}"
        )
    return wanted


def _has_sound_slot(conn: Connection, capture: Capture, server: Server) -> bool:
    """Whether the slot that is there has all that is not yet in the lake."""
    found = find_slot(conn, capture.slot)
    if found is not None and found.database != server.database:
        raise CaptureSetupError(
            f"the slot {capture.slot} is one of the database {found.database}, and not of {server.database}: correct "
            "the DSN"
        )
    return found is not None and not found.is_lost and found.confirmed_lsn <= capture.lsn
