"""What must be true of a table after Spark wrote it: SQL, the mirror and Spark's own view agree at every version."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

import deltalakedb as dl
from deltalakedb.log.fence import FEATURE
from deltalakedb.names import parse_table_name
from deltalakedb.registered import require_table
from tests.fixtures.readers import Deltalake, DuckDB, Reader, sort_rows
from tests.golden.state import states
from tests.spark.stage import Stage

OURS = re.compile(r"\d{20}\.(json|crc|checkpoint\.parquet)|_last_checkpoint")
"""All that the mirror ever writes. Spark's sidecars, compacted commits and checksums of checksums have other names."""


@dataclass(frozen=True, slots=True)
class Judge:
    """One catalog's tables, and the readers that know nothing of it."""

    catalog: dl.Catalog
    readers: Mapping[str, Reader]

    def check(self, name: str, stage: Stage, *, read_from: int = 0) -> list[pa.Table | None]:
        """Everything below; returns the rows of each version (None where they are gone from the disk)."""
        assert self.catalog.mirror.flush(30)
        root = Path(self.catalog.table(name).table_uri.removeprefix("file://"))
        self.check_mirror(name, root)
        head = self.catalog.table(name).version()
        first = min(states(root))
        return [
            self._check_version(name, stage, root, version, with_rows=version >= read_from)
            for version in range(first, head + 1)
        ]

    def check_mirror(self, name: str, root: Path) -> None:
        """The same actions as SQL's, fenced, and nothing beside them."""
        self._mirror_all(name)
        report = self.catalog.validate(name)
        assert report.drifts == (), report.drifts
        assert report.lag == 0
        strangers = [path.name for path in (root / "_delta_log").iterdir() if not OURS.fullmatch(path.name)]
        assert strangers == []
        protocols = {f"{version}.json": state.protocol for version, state in states(root).items()}
        for path in (root / "_delta_log").glob("*.crc"):
            protocols[path.name] = json.loads(path.read_text())["protocol"]
        for path in (root / "_delta_log").glob("*.checkpoint.parquet"):
            protocols[path.name] = next(filter(None, pq.read_table(path)["protocol"].to_pylist()))
        unfenced = [
            file for file, protocol in protocols.items() if FEATURE not in (protocol.get("writerFeatures") or ())
        ]
        assert unfenced == [], "these were not written by the mirror"

    def _mirror_all(self, name: str) -> None:
        """What an endpoint of another process may not have mirrored yet."""
        table = self.catalog.table(name)
        with self.catalog.store.read() as conn:
            row = require_table(conn, parse_table_name(name))
        self.catalog.mirror.mirror_table(row)
        assert table.mode == "managed"

    def _check_version(self, name: str, stage: Stage, root: Path, version: int, *, with_rows: bool) -> pa.Table | None:
        table = self.catalog.table(name)
        table.load_as_version(version)
        seen = stage.spark.read.format("delta").option("versionAsOf", version).load(stage.path)
        files = {
            "SQL": {unquote(path) for path in table.files(["path"])["path"].to_pylist()},
            "mirror": {unquote(path) for path, _ in states(root)[version].files},
            "Spark": {_relative(path, root) for path in seen.inputFiles()},
        }
        assert files["SQL"] == files["mirror"] == files["Spark"], (version, files)
        if not with_rows:
            return None
        rows = {reader: found.at_version(root, version) for reader, found in self.readers.items()}
        rows["SQL"] = table.to_pyarrow_table()
        wanted = sort_rows(seen.toArrow())
        for reader, found in rows.items():
            assert sort_rows(found, wanted.schema).to_pylist() == wanted.to_pylist(), (reader, version)
        return wanted


def plain_readers() -> dict[str, Reader]:
    return {"deltalake": Deltalake(), "duckdb": DuckDB()}


def commit_text(root: Path) -> str:
    """Every commit of the mirror, in order."""
    return "".join(path.read_text() for path in sorted((root / "_delta_log").glob("*.json")))


def assert_rows(found: pa.Table, wanted: Sequence[tuple[Any, ...]]) -> None:
    """The rows in any order; columns as the table has them."""
    rows = [tuple(row.values()) for row in found.to_pylist()]
    assert sorted(rows, key=repr) == sorted(wanted, key=repr)


def _relative(uri: str, root: Path) -> str:
    """A data file as a commit names it: whatever the scheme is, the table's path is in it."""
    return unquote(uri).partition(f"{root}/")[2]
