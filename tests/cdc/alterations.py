"""Alterations of the columns of tables that a load writes meanwhile."""

import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence

import psycopg

from tests.cdc.conftest import Source


class Alterations:
    """Changes the columns of tables, one change at a time: names come back for other columns, and types change."""

    _STEPS: Sequence[str] = (
        "add extra int default 7",
        "rename extra to kept",
        "add extra text default 'again'",
        "drop kept",
        "drop extra",
        "add extra numeric(8, 2)",
        "add kept boolean default true",
        "drop extra",
        "rename kept to extra",
        "drop extra",
    )
    _COLUMNS = (
        "select attname::text from pg_attribute where attrelid = '{}'::regclass and attnum > 0 and not attisdropped "
        "and attgenerated = '' order by attnum"
    )
    TABLES = ("orders", "documents", "readings")

    def __init__(self, source: Source) -> None:
        self._source = source
        self._next = deque(self.TABLES)
        self.did: Counter[str] = Counter()
        """How often each table was altered."""

    def one(self, known: Mapping[str, Sequence[str]]) -> None:
        """The next change of the next table; of none if the capture has still to read of a change of each of them.

        `known` has the columns of the tables that a capture follows. Of two changes that it has not read, nobody could
        tell it which columns are which.
        """
        for table in list(self._next):
            if table not in known or self._columns(table) == list(known[table]):
                self._alter(table)
                self._next.remove(table)
                self._next.append(table)
                return

    def _columns(self, table: str) -> list[str]:
        return [name for (name,) in self._source.run(self._COLUMNS.format(table))]

    def _alter(self, table: str) -> None:
        step = self._STEPS[self.did[table] % len(self._STEPS)]
        while True:
            try:
                self._source.run("set deadlock_timeout = '5s'", f"alter table {table} {step}")
                break
            except psycopg.errors.DeadlockDetected:  # the load goes on meanwhile
                time.sleep(0.1)
        self.did[table] += 1
