"""The sides of the API's rows: `deltalake` on a folder, we on a table of a catalog of each engine, on equal copies."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa

import deltalakedb as dl
from bench.api_tables import write_table
from bench.lab import Lab, say

DELTALAKE = "deltalake"


@dataclass
class Side:
    """A library and where its tables are; `catalog` is the URI of ours."""

    name: str
    folder: Path
    catalog: str | None = None

    @property
    def module(self) -> Any:
        return import_module("deltalake" if self.catalog is None else "deltalakedb")

    def empty(self, name: str) -> str:
        """The address of a table to be."""
        if self.catalog is None:
            return str(self.folder / name)
        return f"{self.catalog}{'&' if '?' in self.catalog else '?'}table=bench.{self.name}_{name}"

    def take(self, base: Path, name: str, *, managed: bool = True) -> str:
        """A copy of a table, its files linked; in a catalog where there is one."""
        copy = self.folder / name
        shutil.copytree(base, copy, copy_function=os.link)
        if self.catalog is not None:
            with dl.connect(self.catalog) as catalog:
                take_in = catalog.import_table if managed else catalog.attach_table
                take_in(str(copy), f"bench.{self.name}_{name}")
        return self.empty(name)

    def write(self, address: str, data: pa.Table) -> None:
        self.module.write_deltalake(address, data, mode="append")

    def on(self, address: str, call: Callable[[Any], Any]) -> Any:
        table = self.module.DeltaTable(address)
        try:
            return call(table)
        finally:
            if self.catalog is not None:
                table.close()

    def drop(self, address: str) -> None:
        if self.catalog is None:
            shutil.rmtree(address)
            return
        with dl.connect(self.catalog) as catalog:
            catalog.drop_table(address.rpartition("table=")[2], purge=True)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()


@dataclass
class ApiLab:
    folder: Path
    rows: int
    num_small_files: int
    sides: dict[str, Side]
    _made: dict[str, Path] = field(default_factory=dict)

    def base(self, *, rows: int | None = None, files: int = 10) -> Path:
        count = rows or self.rows
        return self._table(f"base_{count}_{files}", lambda root: write_table(root, count, files))

    def small_files(self) -> Path:
        count = self.num_small_files
        return self._table(f"small_{count}", lambda root: write_table(root, count * 100, count))

    def with_one_file(self, log: Path) -> Path:
        """A table of very many files of which one is there: the row with id -5."""

        def make(root: Path) -> Path:
            shutil.copytree(log, root)
            schema = deltalake.DeltaTable(str(root)).schema().to_arrow()
            row = {name: [-5] if name == "id" else [None] for name in schema.names}
            deltalake.write_deltalake(str(root), pa.table(row, schema=pa.schema(schema)), mode="append")
            return root

        return self._table("one_file", make)

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _table(self, name: str, make: Callable[[Path], Path]) -> Path:
        if name not in self._made:
            self._made[name] = say(f"generating {name}", lambda: make(self.folder / "tables" / name))
        return self._made[name]


def api_lab(lab: Lab) -> ApiLab:
    return lab.keep("api", lambda: _prepare(lab))


def _prepare(lab: Lab) -> ApiLab:
    folder = lab.folder / "api"
    os.environ["DL_WAREHOUSE"] = str(folder / "warehouse")  # where tables go that are made by their address
    sides = {DELTALAKE: Side(DELTALAKE, folder / DELTALAKE)}
    for engine in lab.engines:
        sides[engine] = Side(engine, folder / engine, lab.empty_catalog(engine, "api").uri)
    for side in sides.values():
        side.folder.mkdir(parents=True)
    return ApiLab(folder, lab.sizes.api_rows, lab.sizes.small_files, sides)


_MERGE = """
import json, sys, time
from pathlib import Path
import deltalakedb
from bench.api_tables import source_rows
address, count, wanted = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
source = source_rows(count, wanted)
Path("/proc/self/clear_refs").write_text("5")
begin = time.perf_counter()
table = deltalakedb.DeltaTable(address)
merger = table.merge(source, "t.id = s.id", source_alias="s", target_alias="t")
merger.when_matched_update_all().when_not_matched_insert_all().execute()
table.close()
seconds = time.perf_counter() - begin
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(json.dumps([int(peak.split()[1]) / 1024, seconds]))
"""


def merge_under_limit(address: str, count: int, wanted: int) -> tuple[float, float]:
    """Peak megabytes of a process that merges, and its seconds."""
    environment = {**os.environ, "DL_DATA_MEMORY_LIMIT": "1GB"}
    done = subprocess.run(
        [sys.executable, "-c", _MERGE, address, str(count), str(wanted)],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
    )
    peak_mb, seconds = json.loads(done.stdout.splitlines()[-1])
    return float(peak_mb), float(seconds)
