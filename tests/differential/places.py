"""Where calls run: `deltalake` on a folder, ours on a folder and on a table of a catalog, each at a copy of a start."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.dataset as pa_dataset
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
import pytest

from tests.differential.starts import STARTS, rows, typed_rows

Mode = Literal["deltalake", "path", "sql"]
MODULES = ("exceptions", "fs", "query", "schema", "table", "transaction", "warnings", "writer", "writer.properties")


def library(name: str) -> Any:
    for module in MODULES:
        import_module(f"{name}.{module}")
    return import_module(name)


@dataclass
class Place:
    """One library at one table."""

    mode: Mode
    root: Path
    opened: list[Any] = field(default_factory=list)

    @property
    def ours(self) -> bool:
        return self.mode != "deltalake"

    @property
    def dl(self) -> Any:
        return library("deltalakedb" if self.ours else "deltalake")

    @property
    def folder(self) -> Path:
        return self.root / "lake" / "space" / "t"

    @property
    def uri(self) -> str:
        return self.address("t")

    def address(self, name: str) -> str:
        """The address of a table beside this one."""
        if self.mode == "sql":
            return f"deltasql://sqlite/{self.root / 'catalog.db'}?table=space.{name}"
        return str(self.root / "lake" / "space" / name)

    @property
    def addresses(self) -> tuple[str, ...]:
        """What the table is called in messages, longest first."""
        places = (str(self.folder), str(self.root))
        bare = (place.removeprefix("/") for place in places)  # as the object store of `deltalake` names them
        own = (self.uri, *(f"file://{place}" for place in places), *places, *bare, "space.t")
        return tuple(sorted(own, key=len, reverse=True))

    def open(self, **arguments: Any) -> Any:
        table = self.dl.DeltaTable(self.uri, **arguments)
        if hasattr(table, "close"):
            self.opened.append(table)
        return table

    def close(self) -> None:
        for table in self.opened:
            table.close()
        self.opened.clear()

    @cached_property
    def last_version(self) -> int:
        """The version at the start; -1 without a table."""
        log = self.folder / "_delta_log"
        return max((int(path.stem) for path in log.glob("*.json") if path.stem.isdigit()), default=-1)

    def names(self) -> dict[str, Any]:
        """What a line may use."""
        return {
            "dl": self.dl,
            "uri": self.uri,
            "folder": self.folder,
            "address": self.address,
            "rows": rows,
            "typed_rows": typed_rows,
            "when": self.when,
            "footers": self.footers,
            "column": pa.array,
            "pa": pa,
            "pq": pq,
            "fs": pa_fs,
            "ds": pa_dataset,
            "pd": import_module("pandas"),
            "pl": import_module("polars"),
            "json": json,
            "os": os,
            "date": date,
            "datetime": datetime,
            "timedelta": timedelta,
            "UTC": UTC,
            "Decimal": Decimal,
            "Path": Path,
        }

    @contextmanager
    def warehouse(self) -> Iterator[None]:
        """Tables made by their names lie beside the catalog."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DL_WAREHOUSE", str(self.root / "lake"))
            yield

    def when(self, version: int, milliseconds: int = 0) -> str:
        """The time of a version, in ISO 8601, some milliseconds later."""
        for entry in self.open().history():
            if entry["version"] == version:
                instant = datetime.fromtimestamp(entry["timestamp"] / 1000, UTC)
                return (instant + timedelta(milliseconds=milliseconds)).isoformat()
        raise LookupError(version)

    def footers(self) -> list[Mapping[str, Any]]:
        """How the newest commit's files were written: codec, dictionaries, row groups and bounds of each column."""
        log = max((self.folder / "_delta_log").glob("*.json"), key=lambda path: path.name)
        adds = [json.loads(text).get("add") for text in log.read_text(encoding="utf-8").splitlines()]
        return [_footer(self.folder / add["path"]) for add in adds if add]


def _footer(path: Path) -> dict[str, Any]:
    found = pq.ParquetFile(path).metadata
    columns = [found.row_group(0).column(place) for place in range(found.num_columns)] if found.num_row_groups else []
    return {
        "row groups": [found.row_group(place).num_rows for place in range(found.num_row_groups)],
        "columns": {
            one.path_in_schema: [one.compression, one.has_dictionary_page, one.is_stats_set] for one in columns
        },
    }


class Starts:
    """Makes each start once a library, and copies it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = count()

    def place(self, mode: Mode, start: str) -> Place:
        """A new copy; on a path ours begins with what `deltalake` wrote."""
        made = self._made("sql" if mode == "sql" else "deltalake", start)
        copy = Place(mode, self._folder / f"{next(self._numbers)}-{mode}")
        shutil.copytree(made.root, copy.root, ignore=shutil.ignore_patterns("*.tmp"))
        if mode == "sql":
            _move(copy.root / "catalog.db", made.root, copy.root)
        return copy

    def _made(self, mode: Mode, start: str) -> Place:
        place = Place(mode, self._folder / f"{start}-{mode}")
        if not place.root.exists():
            place.root.mkdir(parents=True)
            with place.warehouse():
                if mode == "sql":
                    place.dl.connect(f"deltasql://sqlite/{place.root / 'catalog.db'}").close()
                else:
                    place.folder.parent.mkdir(parents=True)
                STARTS[start](place.dl, place.uri)
            if mode != "sql":
                _set_times(place.folder / "_delta_log")
        return place


def _set_times(log: Path) -> None:
    """Commits were written when they say: `deltalake` travels by one time here and by the other there."""
    for path in log.glob("*.json"):
        for text in path.read_text(encoding="utf-8").splitlines():
            info = json.loads(text).get("commitInfo")
            if info:
                os.utime(path, ns=(info["timestamp"] * 1_000_000,) * 2)


def _move(catalog: Path, old: Path, new: Path) -> None:
    """A copied catalog has its tables where their copies lie."""
    with sqlite3.connect(catalog) as database:
        for table in ("dl_tables", "dl_locations"):
            database.execute(f"update {table} set location = replace(location, ?, ?)", (str(old), str(new)))
    database.close()
