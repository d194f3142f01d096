"""Our side, through the public interface alone: connect, attach, open, plan, list."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import deltalakedb as dl
from bench.postgres import Postgres
from deltalakedb.catalog.uri import parse_catalog_uri
from deltalakedb.mirror.follow import attach
from deltalakedb.store import open_store

ENGINES = ("sqlite", "duckdb", "postgres")


@dataclass(frozen=True, slots=True)
class CatalogAt:
    """A catalog with one table, `bench.t`."""

    engine: str
    uri: str
    table: str = "bench.t"

    def attach(self, location: Path) -> None:
        with dl.connect(self.uri) as catalog:
            catalog.attach_table(str(location), self.table)

    def attach_without_bounds(self, location: Path) -> None:
        """The import alone: the one place where the harness looks behind the public interface."""
        parsed = parse_catalog_uri(self.uri)
        store = open_store(parsed.engine, parsed.target, schema="create_if_missing")
        try:
            attach(store, str(location), namespace="bench", name="t", with_bounds=False)
        finally:
            store.close()

    def follow(self) -> None:
        with dl.connect(self.uri) as catalog:
            catalog.follow(self.table)

    def open(self) -> tuple[int, int]:
        with dl.connect(self.uri) as catalog:
            table = catalog.table(self.table)
            return table.version(), len(table.schema().fields)

    def plan(self, predicate: str) -> int:
        with dl.connect(self.uri) as catalog:
            return int(catalog.table(self.table).plan(predicate).files.num_rows)

    def list_files(self) -> int:
        with dl.connect(self.uri) as catalog:
            return int(catalog.table(self.table).files().num_rows)

    def follow_in_another_process(self) -> None:
        """So that nothing kept in this process can be what makes the next open fast or fresh."""
        script = "import sys; from bench.ours import CatalogAt; CatalogAt(*sys.argv[1:]).follow()"
        subprocess.run([sys.executable, "-c", script, self.engine, self.uri, self.table], check=True)


def new_catalog(engine: str, folder: Path, name: str, postgres: Postgres | None) -> CatalogAt:
    """An empty catalog of its own."""
    if engine == "postgres":
        assert postgres is not None, "a Postgres catalog needs a server"
        postgres.create_database(name)
        return CatalogAt(engine, f"deltasql://postgres/{name}?host={postgres.socket_dir}&user=postgres")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.{engine}"
    for leftover in folder.glob(f"{path.name}*"):
        leftover.unlink()
    return CatalogAt(engine, f"deltasql://{engine}/{path}")
