"""What the rows share: tables, catalogs and lakes, each made once, on first use."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar, cast

from bench.ours import CatalogAt, new_catalog
from bench.peers import DuckLakeSession, fill_ducklake
from bench.postgres import Postgres
from bench.tables import Spec, write_checkpoint_table, write_many_commits_table, write_rewritten_table


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is generated; `huge_files` is zero unless asked for."""

    files: int = 100_000
    large_files: int = 1_000_000
    huge_files: int = 10_000_000
    commits: int = 50_000
    rewrite_files: int = 20_000
    rewrites: int = 10
    rounds: int = 9
    writers: int = 16
    seconds: float = 20
    single_commits: int = 100
    adds: int = 100_000
    clients: int = 200
    real_files: int = 2_000
    spark_rows: int = 2_000_000
    statement_rounds: int = 5
    api_rows: int = 500_000
    api_rounds: int = 5
    small_files: int = 1_000
    merge_rows: int = 1_000_000
    iceberg_tables: int = 10_000
    cdc_rows: int = 1_000_000
    cdc_table_rows: int = 10_000_000
    cdc_updates: int = 100_000
    cdc_rate: int = 1_000
    cdc_seconds: float = 60
    cdc_memory_seconds: float = 1_800


class Closeable(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=Closeable)


@dataclass(slots=True)
class Lab:
    folder: Path
    postgres: Postgres
    sizes: Sizes
    engines: tuple[str, ...]
    _tables: dict[str, Path] = field(default_factory=dict)
    _catalogs: dict[str, CatalogAt] = field(default_factory=dict)
    _lakes: dict[str, DuckLakeSession] = field(default_factory=dict)
    _kept: dict[str, Closeable] = field(default_factory=dict)

    def log_of(self, num_files: int) -> Path:
        """The table with one checkpoint of `num_files` files."""
        name = f"files_{num_files}"
        return self._table(name, lambda root: write_checkpoint_table(root, Spec(num_files)))

    def log_of_commits(self) -> Path:
        return self._table("commits", lambda root: write_many_commits_table(root, self.sizes.commits))

    def log_of_rewrites(self) -> Path:
        spec = Spec(self.sizes.rewrite_files)
        return self._table("rewrites", lambda root: write_rewritten_table(root, spec, self.sizes.rewrites))

    def catalog(self, engine: str, log: Path) -> CatalogAt:
        """The catalog that has this table attached, with its history and its bounds."""
        name = f"ours_{log.name}"
        key = f"{engine}/{name}"
        if key not in self._catalogs:
            catalog = self.empty_catalog(engine, name)
            say(f"attaching {log.name} on {engine}", lambda: catalog.attach(log))
            self._catalogs[key] = catalog
        return self._catalogs[key]

    def empty_catalog(self, engine: str, name: str) -> CatalogAt:
        return new_catalog(engine, self.folder / "catalogs", name, self.postgres)

    def lake(self, engine: str, num_files: int) -> DuckLakeSession:
        key = f"{engine}_{num_files}"
        if key not in self._lakes:
            spec, folder = Spec(num_files), self.folder / "lakes" / key
            lake = say(f"filling DuckLake on {engine}", lambda: fill_ducklake(engine, folder, spec, self.postgres))
            session = DuckLakeSession(lake)
            kept = session.files_read(spec.point_predicate()), session.files_read(spec.range_predicate())
            assert kept == (1, 100), f"DuckLake on {engine} keeps {kept} files instead of 1 and 100"
            self._lakes[key] = session
        return self._lakes[key]

    def keep(self, name: str, make: Callable[[], C]) -> C:
        """Something that several rows share: made on first use, closed at the end."""
        if name not in self._kept:
            self._kept[name] = make()
        return cast(C, self._kept[name])

    def close(self) -> None:
        for session in (*self._lakes.values(), *self._kept.values()):
            session.close()

    def _table(self, name: str, write: Callable[[Path], Path]) -> Path:
        if name not in self._tables:
            root = self.folder / "tables" / name
            self._tables[name] = say(f"generating {name}", lambda: write(root))
        return self._tables[name]


T = TypeVar("T")


def say(what: str, call: Callable[[], T]) -> T:
    """Runs the call and tells on stderr how long it took: talk is not result."""
    begin = time.perf_counter()
    result = call()
    print(f"  {what}: {time.perf_counter() - begin:.1f} s", file=sys.stderr, flush=True)
    return result
