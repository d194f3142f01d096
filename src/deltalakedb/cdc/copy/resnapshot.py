"""Requests for new copies of captured tables, which the running capture or its next start makes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from deltalakedb.cdc.apply.batches import WORTH_ANOTHER_RUN, commit_until_won
from deltalakedb.cdc.control import Capture, Server, change_server, load_capture, note_progress, save_tables
from deltalakedb.cdc.run.presence import RunnerPresence
from deltalakedb.cdc.source.postgres import Connection, connect, identify
from deltalakedb.cdc.source.publication import look_at_publication
from deltalakedb.cdc.source.slots import create_slot, drop_slot, find_slot
from deltalakedb.cdc.source_names import parse_source
from deltalakedb.exceptions import (
    CaptureError,
    CaptureRunningError,
    CaptureSetupError,
    ConcurrentTransactionError,
    WrongServerError,
)

if TYPE_CHECKING:
    from deltalakedb.catalog.catalog import Catalog
    from deltalakedb.cdc.settings import CaptureSettings
    from deltalakedb.transactions.transaction import CatalogTransaction


def resnapshot(catalog: Catalog, settings: CaptureSettings, tables: Iterable[str] = ()) -> tuple[Capture, bool]:
    """Request new copies of tables, or of all; returns the capture, and whether it is running.

    A running capture makes them within seconds; otherwise the next start does.
    """
    try:
        # The lock keeps the capture from starting while its slot is recreated.
        with RunnerPresence(settings.source, settings.slot):
            return request_resnapshot(catalog, settings, tables), False
    except CaptureRunningError:
        return request_resnapshot(catalog, settings, tables, is_running=True), True


def request_resnapshot(
    catalog: Catalog, settings: CaptureSettings, tables: Iterable[str] = (), *, is_running: bool = False
) -> Capture:
    """Mark the tables that are to be copied again.

    A slot that is lost, or was advanced by somebody else, is recreated; then every table needs another copy. If the
    source is another server now, and no table is named, the capture moves to that server. Neither can be done while the
    capture is running.
    """
    names = tuple(tables)
    with connect(settings.source) as conn:
        server = identify(conn)

        def request() -> Capture:
            with catalog.begin(message=f"capture {settings.slot}: new copies are asked for") as tx:
                capture = load_capture(tx, settings)
                if capture is None:
                    raise CaptureError(
                        f"there is no capture {settings.slot} in this lake ({settings.control_table}); start it"
                    )
                return _request(tx, conn, settings, capture, server, names, is_running)

        description = f"the request for new copies of {settings.slot}"
        # A batch of the runner may commit first.
        return commit_until_won(request, description, (*WORTH_ANOTHER_RUN, ConcurrentTransactionError))


def _request(
    tx: CatalogTransaction,
    conn: Connection,
    settings: CaptureSettings,
    capture: Capture,
    server: Server,
    names: Sequence[str],
    is_running: bool,
) -> Capture:
    sources = choose_tables(capture, names)
    if server != capture.server and names:
        raise WrongServerError(
            f"the source is another server than the one that the capture {capture.slot} belongs to (system "
            f"identifier {server.system_id}, timeline {server.timeline}, database {server.database}): correct the "
            "DSN; if that server is meant, dl cdc resnapshot without names copies every table from it"
        )
    if names:
        _check_published(conn, settings, capture, sources)
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
        sources |= {source for source, table in capture.tables.items() if table.stage != "stopped"}
    requested = save_tables(tx, capture, [capture.tables[source].to_copy_again() for source in sorted(sources)])
    if server != capture.server:
        requested = change_server(tx, requested, server)
    return note_progress(tx, requested, lsn)


def choose_tables(capture: Capture, tables: Iterable[str]) -> set[str]:
    """The captured tables that are named, or all that were not taken out; a name without a schema is in `public`."""
    sources = {parse_source(name) for name in tables}
    sources = sources or {source for source, table in capture.tables.items() if not table.is_taken_out}
    unknown = sources - set(capture.tables)
    if unknown:
        raise CaptureError(
            f"the capture {capture.slot} has no table {', '.join(sorted(unknown))}; it has "
            f"{', '.join(sorted(capture.tables)) or 'none'}"
        )
    return sources


def _check_published(conn: Connection, settings: CaptureSettings, capture: Capture, sources: Iterable[str]) -> None:
    """CaptureSetupError if a named table cannot be copied, because it would only stop again."""
    choice = settings.without_key_of(capture.choice)
    published = look_at_publication(conn, choice, capture)
    missing = [source for source in sorted(sources) if source not in published.sources]
    if missing:
        reasons = "; ".join(f"{source}: {published.why_not(source, choice)}" for source in missing)
        raise CaptureSetupError(f"no new copy can be made of {reasons}")


def _has_sound_slot(conn: Connection, capture: Capture, server: Server) -> bool:
    """Whether the slot exists and has everything that is not yet in the lake."""
    slot = find_slot(conn, capture.slot)
    if slot is not None and slot.database != server.database:
        raise CaptureSetupError(
            f"the slot {capture.slot} is one of the database {slot.database}, and not of {server.database}: correct "
            "the DSN"
        )
    return slot is not None and not slot.is_lost and slot.confirmed_lsn <= capture.lsn
