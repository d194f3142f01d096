"""The control table of a capture: its progress, and what it knows of its tables, committed with what it captures."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from deltalakedb.cdc.lsn import format_lsn
from deltalakedb.cdc.settings import CaptureSettings
from deltalakedb.cdc.tables import CapturedTable, source_parts
from deltalakedb.exceptions import CaptureError, TableNotFoundError
from deltalakedb.log.actions import AppTransaction
from deltalakedb.log.codec import to_json

if TYPE_CHECKING:
    from deltalakedb.catalog import Catalog
    from deltalakedb.transactions.transaction import CatalogTransaction

_CAPTURE: Final = "deltalakedb.cdc.capture"
_TABLE: Final = "deltalakedb.cdc.table."


class CaptureChangedError(CaptureError):
    """Somebody else has changed what is kept of a table, such as by asking for a new copy of it."""


@dataclass(frozen=True, slots=True)
class Server:
    """The Postgres that a capture belongs to: an LSN means something on this one alone."""

    system_id: str
    timeline: int
    database: str

    def to_value(self) -> dict[str, Any]:
        return {"systemId": self.system_id, "timeline": self.timeline, "database": self.database}


@dataclass(frozen=True, slots=True)
class Capture:
    """A capture as its control table has it."""

    control: str
    """The name of the control table."""
    server: Server
    publication: str
    slot: str
    lsn: int
    """Every transaction whose commit record begins before is in the lake; none that begins here or after."""
    tables: Mapping[str, CapturedTable]
    """By the source's name."""

    @property
    def app_id(self) -> str:
        return app_id_of(self.server.system_id, self.slot)

    @property
    def streaming(self) -> tuple[CapturedTable, ...]:
        return tuple(table for table in self.tables.values() if table.stage == "streaming")

    @property
    def begun(self) -> frozenset[str]:
        """The tables, by the source's name, that have been copied once, or were stopped before."""
        return frozenset(source for source, table in self.tables.items() if table.stage != "pending")


def app_id_of(system_id: str, slot: str) -> str:
    """The application of the `txn` actions, whose version is the LSN up to which a table is captured."""
    return f"cdc/{system_id}/{slot}"


def load_capture(catalog: Catalog | CatalogTransaction, settings: CaptureSettings) -> Capture | None:
    """The capture, or None before its first start."""
    try:
        table = catalog.table(settings.control_table)
    except TableNotFoundError:
        return None
    configuration = {key: value for key, value in table.metadata().configuration.items() if value is not None}
    return _parse(settings.control_table, configuration, table.transaction_version)


def create_capture(catalog: Catalog, settings: CaptureSettings, server: Server, lsn: int) -> Capture:
    """Begin a capture whose slot is at `lsn`."""
    capture = Capture(settings.control_table, server, settings.publication, settings.slot, lsn, {})
    with catalog.begin(message=f"capture {settings.slot} begins at {format_lsn(lsn)}") as tx:
        tx.create_table(
            settings.control_table,
            "source string",
            properties={_CAPTURE: _header_of(capture)},
            description=f"The progress of the capture {settings.slot}; it has no rows.",
        )
        note_progress(tx, replace(capture, lsn=-1), lsn)
    return capture


def begin_batch(catalog: Catalog, capture: Capture, message: str) -> CatalogTransaction:
    """A transaction of a capture, which fails if another process has moved the capture since `capture` was loaded.

    What it commits must end with `note_progress`: the application transaction of the control table is what makes two
    runners of one capture exclude each other.
    """
    tx = catalog.begin(message=message)
    found = tx.table(capture.control).transaction_version(capture.app_id)
    if found != capture.lsn:
        tx.rollback()
        raise CaptureError(
            f"the capture {capture.slot} is at {format_lsn(found or 0)} and not at {format_lsn(capture.lsn)} any more: "
            "another process runs it; stop one of them (dl cdc stop)"
        )
    return tx


def note_progress(tx: CatalogTransaction, capture: Capture, lsn: int, tables: Iterable[str] = ()) -> Capture:
    """Note in the control table, and in the lake's `tables`, that everything before `lsn` is captured."""
    if lsn == capture.lsn:  # progress only grows; that nobody else has moved it was read when the batch began
        return capture
    noted = progress_of(capture, lsn)
    for name in (capture.control, *tables):
        tx.commit_actions(name, [noted], operation="CAPTURE", operation_parameters={"lsn": format_lsn(lsn)})
    return replace(capture, lsn=lsn)


def progress_of(capture: Capture, lsn: int) -> AppTransaction:
    """The `txn` action that says so; commits of rows carry it along."""
    return AppTransaction(capture.app_id, lsn, time.time_ns() // 1_000_000)


def save_tables(tx: CatalogTransaction, capture: Capture, tables: Iterable[CapturedTable]) -> Capture:
    """Keep what has become of some tables, unless somebody else has asked for something else of them meanwhile."""
    changed = {table.source: table for table in tables}
    found = {table.source: table for table in _parse_tables(tx.table(capture.control).metadata().configuration)}
    for source in changed:
        if found.get(source) != capture.tables.get(source):
            raise CaptureChangedError(
                f"{source} of the capture {capture.slot} was changed by somebody else meanwhile, as by dl cdc "
                "resnapshot: another try begins with that"
            )
    tx.set_properties(
        capture.control, {_property_of(source): to_json(table.to_value()) for source, table in changed.items()}
    )
    return replace(capture, tables={**capture.tables, **changed})


def change_server(tx: CatalogTransaction, capture: Capture, server: Server) -> Capture:
    """Let the capture be one of another server, whose progress must then be noted: its LSNs are others."""
    changed = replace(capture, server=server, lsn=-1)
    tx.set_properties(capture.control, {_CAPTURE: _header_of(changed)})
    return changed


def _header_of(capture: Capture) -> str:
    return to_json({**capture.server.to_value(), "publication": capture.publication, "slot": capture.slot})


def _parse(control: str, configuration: Mapping[str, str], version_of: Any) -> Capture:
    if _CAPTURE not in configuration:
        raise CaptureError(f"{control} is a table of its own and no capture's: choose another slot or namespace")
    header = json.loads(configuration[_CAPTURE])
    server = Server(header["systemId"], header["timeline"], header["database"])
    lsn = version_of(app_id_of(server.system_id, header["slot"]))
    if lsn is None:
        raise CaptureError(f"the control table {control} has no progress; it was not made by a capture")
    tables = {table.source: table for table in _parse_tables(configuration)}
    return Capture(control, server, header["publication"], header["slot"], lsn, tables)


def _property_of(source: str) -> str:
    """Where what is known of a table is kept: without backticks, as older captures have it, unless it needs them."""
    parts = source_parts(source)
    return _TABLE + (source if any("." in part or "`" in part for part in parts) else ".".join(parts))


def _parse_tables(configuration: Mapping[str, str | None]) -> Iterator[CapturedTable]:
    for key, text in configuration.items():
        if key.startswith(_TABLE) and text is not None:
            yield CapturedTable.from_value(json.loads(text))
