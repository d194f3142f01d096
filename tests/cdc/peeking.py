"""A publication and a slot of a test's own, and the reading of ranges from it."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from deltalakedb.cdc.captured_table import CapturedTable
from deltalakedb.cdc.settings import CaptureSettings
from deltalakedb.cdc.source.peek import ChangeRows, RangeRead, RelationChanged, Stopped, read_changes
from deltalakedb.cdc.source.postgres import connect, flush_lsn
from deltalakedb.cdc.source.publication import published_tables
from deltalakedb.cdc.source.slots import create_slot
from tests.cdc.conftest import Source

Event = ChangeRows | RelationChanged | Stopped | RangeRead


@dataclass(frozen=True, slots=True)
class Peeked:
    """What is published when it begins, and its slot."""

    source: Source
    settings: CaptureSettings
    start: int

    @classmethod
    def begin(cls, source: Source, publication: str = "everything", **settings: Any) -> "Peeked":
        made = CaptureSettings(source.dsn, publication, slot=f"peeked_{source.database}", **settings)
        source.run(f'create publication "{publication}" for all tables')
        with connect(source.dsn) as connection:
            return cls(source, made, create_slot(connection, made.slot))

    def now(self) -> int:
        """The end of the log; all that is committed is before it."""
        with connect(self.source.dsn) as connection:
            return flush_lsn(connection)

    def tables(self) -> tuple[CapturedTable, ...]:
        with connect(self.source.dsn) as connection:
            return tuple(replace(table, stage="streaming") for table in published_tables(connection, self.settings))

    def read(
        self, tables: Iterable[CapturedTable] | None = None, *, start: int | None = None, end: int | None = None
    ) -> list[Event]:
        return list(
            read_changes(
                self.source.dsn,
                self.settings.slot,
                self.settings.publication,
                self.start if start is None else start,
                self.now() if end is None else end,
                tuple(self.tables() if tables is None else tables),
            )
        )

    def rows(self, name: str, **where: Any) -> list[dict[str, Any]]:
        return rows_of(self.read(**where), name)


def rows_of(events: Iterable[Event], name: str) -> list[dict[str, Any]]:
    """The changes of one table; nothing else than changes may have come."""
    rows: list[dict[str, Any]] = []
    for event in events:
        assert isinstance(event, ChangeRows | RangeRead), event
        if isinstance(event, ChangeRows) and event.source == name:
            event.rows.validate(full=True)
            rows += event.rows.to_pylist()
    return rows
