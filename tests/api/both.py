"""One call, both libraries: `deltalake` on a plain folder, `deltalakedb` on a table of a catalog (or on a path).

Fixtures (tests/api/conftest.py):

    both        ours is a table of a SQLite catalog, addressed by a deltasql:// URI; what most tests want
    on_paths    ours is a plain folder as well, file-backed
    anywhere    both of the above in turn
    kept_anywhere  the same, one pair for a whole file whose tests only read
    everywhere  a catalog on SQLite, DuckDB and Postgres in turn, and a path: for one smoke test a verb

A test says what to do once. `lib` is one of the two libraries at one table:

    def test_delete_keeps_the_other_rows(both: Both) -> None:
        both.seed({"id": [1, 2, 3]}, {"id": [4]}, partition_by=[], configuration={...})   # v0 create, v1, v2 appends
        both.same(lambda lib: lib.table().delete("id > 2"))       # error class, metrics keys, warnings are compared
        both.same_rows()                                          # and the rows, in any order, with their types
        both.same(lambda lib: lib.table().delete("nosuch = 1"))   # both fail, ours with the class theirs has

`seed` needs nothing but what the catalog can do: it does not go through `write_deltalake`. `both.write(data, mode=...)`
does: it is `write_deltalake` of each library. `both.create(schema, ...)` is `DeltaTable.create`.

`lib.module` is the imported package, so `lib.module.WriterProperties(...)` or `lib.find("table.TableMerger")` give each
library its own class; `lib.uri` is the table's address, `lib.folder` where its files lie, `lib.table(version=3)` opens
it.
`both.same(call, exactly=True)` compares numbers and texts too, except times and sizes (judging.MEASURED);
`warned=False` leaves warnings out. It returns the outcome of ours (`.value`, `.error`), and `both.fails(call)` does the
same where both must fail. `both.same_history()` compares what `history()` says operation by operation,
`both.mirror_agrees()` lets `deltalake` and DuckDB read our files. `both.other("name")` is a second table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, reduce
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from deltalakedb.catalog.uri import is_catalog_uri
from tests.api.judging import Outcome, attempt, check_same, check_same_rows, to_plain
from tests.fixtures.readers import Deltalake, DuckDB

Rows: TypeAlias = pa.Table | Mapping[str, Sequence[Any]]
HISTORY = ("version", "operation")
"""What history entries must agree on; times, sizes and names of engines are each writer's own."""


def to_table(rows: Rows) -> pa.Table:
    return rows if isinstance(rows, pa.Table) else pa.table(dict(rows))


@dataclass
class Library:
    """One of the two libraries, at one table."""

    name: str
    uri: str
    folder: Path
    catalog: Any = None
    """Ours, where the table is one of a catalog: an open `Catalog`."""
    _opened: list[Any] = field(default_factory=list)

    @property
    def module(self) -> Any:
        return import_module(self.name)

    @property
    def is_ours(self) -> bool:
        return self.name == "deltalakedb"

    def find(self, dotted: str) -> Any:
        """A name below the package: `transaction.AddAction`, `schema.Field`, `table.TableMerger`."""
        *parts, last = dotted.split(".")
        return getattr(import_module(".".join([self.name, *parts])), last)

    def table(self, **arguments: Any) -> Any:
        """A new DeltaTable; closed at the end of the test where it can be closed."""
        table = self.module.DeltaTable(self.uri, **arguments)
        if hasattr(table, "close"):
            self._opened.append(table)
        return table

    def write(self, data: Any, **arguments: Any) -> None:
        self.module.write_deltalake(self.uri, to_table(data) if isinstance(data, dict) else data, **arguments)

    def create(self, schema: Any, **arguments: Any) -> Any:
        table = self.module.DeltaTable.create(self.uri, schema, **arguments)
        if hasattr(table, "close"):
            self._opened.append(table)
        return table

    def rows(self, version: int | None = None) -> pa.Table:
        """The rows at a version: theirs by a scan, which reads more tables than PyArrow's datasets do."""
        table = self.table() if version is None else self.table(version=version)
        return to_plain(table.to_pyarrow_table() if self.is_ours else table.scan())

    def seed(self, tables: Sequence[pa.Table], partition_by: Sequence[str], configuration: Mapping[str, str]) -> None:
        """A table made at version 0, and one append a version after it."""
        if self.catalog is not None:
            name = self.uri.partition("table=")[2]
            self.catalog.create_table(name, tables[0].schema, list(partition_by), properties=dict(configuration))
            for rows in tables:
                with self.catalog.begin(tables=[name]) as tx:
                    tx.write(name, rows, mode="append")
            return
        import deltalake

        deltalake.DeltaTable.create(
            self.uri,
            deltalake.Schema.from_arrow(tables[0].schema),
            partition_by=list(partition_by),
            configuration=dict(configuration),
        )
        for rows in tables:
            deltalake.write_deltalake(self.uri, rows, mode="append")

    def close(self) -> None:
        for table in self._opened:
            table.close()
        self._opened.clear()


@dataclass
class Both:
    """The two libraries at tables that should be the same."""

    theirs: Library
    ours: Library
    make: Callable[[str], Both]
    """Another pair, for a table of another name."""

    @property
    def libraries(self) -> tuple[Library, Library]:
        return self.theirs, self.ours

    def other(self, name: str) -> Both:
        return self.make(name)

    # -- what both do

    def seed(
        self,
        *rows: Rows,
        partition_by: Sequence[str] = (),
        configuration: Mapping[str, str] | None = None,
        ours_only: Mapping[str, str] | None = None,
    ) -> None:
        """The same table on both sides: version 0 is empty, each of `rows` is one append.

        `ours_only` are properties of our table that `deltalake` would not write with.
        """
        tables, common = [to_table(one) for one in rows], dict(configuration or {})
        self.theirs.seed(tables, partition_by, common)
        self.ours.seed(tables, partition_by, common | dict(ours_only or {}))

    def write(self, data: Any, **arguments: Any) -> Outcome:
        return self.same(lambda lib: lib.write(data, **arguments))

    def create(self, schema: Any, **arguments: Any) -> Outcome:
        return self.same(lambda lib: lib.create(schema, **arguments))

    def same(self, call: Callable[[Library], Any], *, exactly: bool = False, warned: bool = True) -> Outcome:
        """Do it on both, compare what came of it, and return what ours came to."""
        theirs, ours = (attempt(lambda library=library: call(library)) for library in self.libraries)  # type: ignore[misc]  # a default binds the loop
        check_same(theirs, ours, self._where(), exactly=exactly, warned=warned)
        return ours

    def fails(self, call: Callable[[Library], Any], *, warned: bool = True) -> Exception:
        """Both must fail, ours with the class that theirs has; no version may come of it."""
        before = [self._version_of(library) for library in self.libraries]
        outcome = self.same(call, warned=warned)
        assert outcome.error is not None, f"{self._where()}: neither fails, but gives {outcome.value!r}"
        assert [self._version_of(library) for library in self.libraries] == before
        return outcome.error

    # -- what both are

    def same_rows(self, version: int | None = None, *, ordered: bool = True) -> pa.Table:
        """The same rows in any order; columns may be in any order too where not `ordered`."""
        theirs, ours = (library.rows(version) for library in self.libraries)
        check_same_rows(theirs, ours, self._where(), ordered=ordered)
        return ours

    def same_schema(self) -> None:
        self.same(lambda lib: lib.table().schema())

    def same_version(self) -> int:
        return int(self.same(lambda lib: lib.table().version(), exactly=True).value)

    def same_history(self, keys: Sequence[str] = HISTORY) -> list[dict[str, Any]]:
        """As many entries, newest first, that agree on some keys; what ours are."""
        theirs, ours = (library.table().history() for library in self.libraries)
        shown = [[{key: entry.get(key) for key in keys} for entry in entries] for entries in (theirs, ours)]
        assert shown[1] == shown[0]
        return list(ours)

    def mirror_agrees(self) -> None:
        """`deltalake` and DuckDB read our files, and find the rows that we do."""
        expected = self.ours.rows()
        for name, judge in (("deltalake", Deltalake()), ("duckdb", _duckdb())):
            found = judge.latest(self.ours.folder).rows.select(expected.column_names)
            check_same_rows(expected, found, f"our files, read by {name}")

    def close(self) -> None:
        for library in self.libraries:
            library.close()

    def _version_of(self, library: Library) -> int | None:
        outcome = attempt(lambda: library.table().version())
        return None if outcome.error is not None else int(outcome.value)

    def _where(self) -> str:
        return "a table of a catalog" if is_catalog_uri(self.ours.uri) else "a table at a path"


@cache
def _duckdb() -> DuckDB:
    return DuckDB()


def column(table: pa.Table, *path: str) -> Any:
    """Values of a column, or of a field inside it."""
    return reduce(lambda array, name: array.field(name), path[1:], table.column(path[0]).combine_chunks()).to_pylist()
