"""The control table of a capture: its progress and its tables, committed together with what it captures."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from deltalakedb.cdc.captured_table import CapturedTable
from deltalakedb.cdc.lsn import format_lsn
from deltalakedb.cdc.settings import CaptureSettings
from deltalakedb.cdc.source_names import source_parts
from deltalakedb.exceptions import CaptureError, TableNotFoundError
from deltalakedb.log.protocol.actions import Action, AppTransaction
from deltalakedb.log.protocol.codec import to_json

if TYPE_CHECKING:
    from deltalakedb.catalog.catalog import Catalog
    from deltalakedb.transactions.transaction import CatalogTransaction

_CAPTURE: Final = "deltalakedb.cdc.capture"
_TABLE: Final = "deltalakedb.cdc.table."


class CaptureChangedError(CaptureError):
    """Another process has changed the capture's record of a table, for example by requesting a new copy."""


@dataclass(frozen=True, slots=True)
class Server:
    """The Postgres server that a capture belongs to: an LSN is meaningful only on this server."""

    system_id: str
    timeline: int
    database: str

    def to_value(self) -> dict[str, Any]:
        return {"systemId": self.system_id, "timeline": self.timeline, "database": self.database}


@dataclass(frozen=True, slots=True)
class Capture:
    """A capture as recorded in its control table."""

    control: str
    """The name of the control table."""
    server: Server
    publication: str
    slot: str
    lsn: int
    """Transactions whose commit record begins before this LSN are in the lake; those at or after it are not."""
    tables: Mapping[str, CapturedTable]
    """By source table."""
    choice: Mapping[str, Any] = field(default_factory=dict)
    """Which tables and columns it captures, and how: `CaptureSettings.choice_value` of its start or last change."""

    @property
    def app_id(self) -> str:
        return app_id_of(self.server.system_id, self.slot)

    @property
    def streaming(self) -> tuple[CapturedTable, ...]:
        return tuple(table for table in self.tables.values() if table.stage == "streaming")

    @property
    def copying(self) -> tuple[CapturedTable, ...]:
        """The tables that are being copied beside the stream."""
        return tuple(table for table in self.tables.values() if table.stage == "copying")

    @property
    def pending(self) -> tuple[str, ...]:
        """The source tables that wait for a copy, sorted."""
        return tuple(sorted(table.source for table in self.tables.values() if table.stage == "pending"))

    @property
    def begun(self) -> frozenset[str]:
        """The source tables that were or are being copied, or were stopped."""
        tables = self.tables.items()
        return frozenset(source for source, table in tables if table.stage != "pending" or table.start_lsn is not None)


def app_id_of(system_id: str, slot: str) -> str:
    """The application id of the `txn` actions, whose version is the LSN up to which a table is captured."""
    return f"cdc/{system_id}/{slot}"


def load_capture(catalog: Catalog | CatalogTransaction, settings: CaptureSettings) -> Capture | None:
    """The capture from its control table, or None before its first start."""
    try:
        table = catalog.table(settings.control_table)
    except TableNotFoundError:
        return None
    configuration = {key: value for key, value in table.metadata().configuration.items() if value is not None}
    return _parse(settings.control_table, configuration, table.transaction_version)


def create_capture(catalog: Catalog, settings: CaptureSettings, server: Server, lsn: int) -> Capture:
    """Create the control table of a capture whose slot is at `lsn`."""
    capture = Capture(
        settings.control_table, server, settings.publication, settings.slot, lsn, {}, settings.choice_value()
    )
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
    """Begin a transaction of a capture; CaptureError if another process has advanced it since `capture` was loaded.

    The transaction must end with `note_progress`: the `txn` action of the control table is what prevents two runners
    of one capture from committing.
    """
    tx = catalog.begin(message=message)
    control = tx.table(capture.control)
    saved = control.transaction_version(capture.app_id)
    if saved == capture.lsn and _choice_of(control.metadata().configuration) != capture.choice:
        tx.rollback()
        raise CaptureChangedError(
            f"what {capture.slot} captures was changed by dl cdc apply: another try begins with that"
        )
    if saved != capture.lsn:
        tx.rollback()
        raise CaptureError(
            f"the capture {capture.slot} is at {format_lsn(saved or 0)} and not at {format_lsn(capture.lsn)} any more: "
            "another process runs it; stop one of them (dl cdc stop)"
        )
    return tx


def note_progress(tx: CatalogTransaction, capture: Capture, lsn: int, beside: Sequence[Action] = ()) -> Capture:
    """Record in the control table that everything before `lsn` is captured; `beside` are further actions."""
    # Progress only grows; begin_batch has checked that nobody else has changed it.
    progress = [] if lsn == capture.lsn else [progress_of(capture, lsn)]
    if progress or beside:
        parameters = {"lsn": format_lsn(lsn)}
        tx.commit_actions(capture.control, [*progress, *beside], operation="CAPTURE", operation_parameters=parameters)
    return replace(capture, lsn=lsn)


def progress_of(capture: Capture, lsn: int) -> AppTransaction:
    """The `txn` action that records this progress; commits of rows carry it too."""
    return AppTransaction(capture.app_id, lsn, time.time_ns() // 1_000_000)


def save_tables(tx: CatalogTransaction, capture: Capture, tables: Iterable[CapturedTable]) -> Capture:
    """Record the new state of some tables; CaptureChangedError if another process has changed one of them."""
    changed = {table.source: table for table in tables}
    recorded = {table.source: table for table in _parse_tables(tx.table(capture.control).metadata().configuration)}
    for source in changed:
        if recorded.get(source) != capture.tables.get(source):
            raise CaptureChangedError(
                f"{source} of the capture {capture.slot} was changed by somebody else meanwhile, as by dl cdc "
                "resnapshot: another try begins with that"
            )
    tx.set_properties(
        capture.control, {_property_of(source): to_json(table.to_value()) for source, table in changed.items()}
    )
    return replace(capture, tables={**capture.tables, **changed})


def change_server(tx: CatalogTransaction, capture: Capture, server: Server) -> Capture:
    """Move the capture to another server; record progress afterwards, because LSNs of the old one do not apply."""
    changed = replace(capture, server=server, lsn=-1)
    tx.set_properties(capture.control, {_CAPTURE: _header_of(changed)})
    return changed


def change_choice(tx: CatalogTransaction, capture: Capture, choice: Mapping[str, Any]) -> Capture:
    """Change which tables, columns, masks or names are captured; a running capture restarts with the new choice."""
    changed = replace(capture, choice=dict(choice))
    tx.set_properties(capture.control, {_CAPTURE: _header_of(changed)})
    return changed


def _header_of(capture: Capture) -> str:
    value = {**capture.server.to_value(), "publication": capture.publication, "slot": capture.slot}
    return to_json({**value, "choice": dict(capture.choice)} if capture.choice else value)


def _parse(control: str, configuration: Mapping[str, str], version_of: Any) -> Capture:
    if _CAPTURE not in configuration:
        raise CaptureError(f"{control} is a table of its own and no capture's: choose another slot or namespace")
    header = json.loads(configuration[_CAPTURE])
    server = Server(header["systemId"], header["timeline"], header["database"])
    lsn = version_of(app_id_of(server.system_id, header["slot"]))
    if lsn is None:
        raise CaptureError(f"the control table {control} has no progress; it was not made by a capture")
    tables = {table.source: table for table in _parse_tables(configuration)}
    return Capture(control, server, header["publication"], header["slot"], lsn, tables, header.get("choice", {}))


def _choice_of(configuration: Mapping[str, str | None]) -> Mapping[str, Any]:
    choice: Mapping[str, Any] = json.loads(configuration.get(_CAPTURE) or "{}").get("choice", {})
    return choice


def _property_of(source: str) -> str:
    """The property that holds a table's record: without backticks, as in older captures, unless it needs them."""
    parts = source_parts(source)
    return _TABLE + (source if any("." in part or "`" in part for part in parts) else ".".join(parts))


def _parse_tables(configuration: Mapping[str, str | None]) -> Iterator[CapturedTable]:
    for key, text in configuration.items():
        if key.startswith(_TABLE) and text is not None:
            yield _parse_table(text)


@lru_cache(maxsize=4096)
def _parse_table(text: str) -> CapturedTable:
    """Cached, because most tables do not change between two reads."""
    return CapturedTable.from_value(json.loads(text))
