"""What must be true of a table after Spark wrote it: SQL, the mirror and Spark's own view agree at every version."""

import json
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F  # noqa: N812

import deltalakedb as dl
from deltalakedb.catalog.entries import require_table
from deltalakedb.log.protocol.fence import FEATURE
from deltalakedb.store.names import parse_table_name
from tests.fixtures.readers import Deltalake, DuckDB, Reader, read_versions, sort_rows
from tests.fixtures.sizes import FULL
from tests.golden.state import State, states
from tests.spark.stage import Stage

OURS = re.compile(r"\d{20}\.(json|crc|checkpoint\.parquet)|_last_checkpoint")
"""All that the mirror ever writes. Spark's sidecars, compacted commits and checksums of checksums have other names."""
EVERY_VERSION = FULL
"""Whether Spark, which is slow, is asked for the rows of every version; in `make test` for the first and the last. SQL
and the files are compared at every version in any case."""


@dataclass(frozen=True, slots=True)
class Judge:
    """One catalog's tables, and the readers that know nothing of it."""

    catalog: dl.Catalog
    readers: Mapping[str, Reader]

    def check(
        self,
        name: str,
        stage: Stage,
        *,
        read_from: int = 0,
        seen_from: int = 0,
        fenced_from: int = 0,
        older: Container[str] = (),
    ) -> list[int]:
        """Everything below; returns the versions that were compared.

        Rows from before `read_from` are gone from the disk, those from before `seen_from` are not asked of Spark. A
        table that was promoted has versions from before the fence, and `older` files of others in its log.
        """
        root = Path(self.catalog.table(name).table_uri.removeprefix("file://"))
        self.check_mirror(name, root, fenced_from, older)
        known = states(root)
        there = [version for version in known if version >= max(read_from, seen_from)]
        seen = self._seen_by_spark(stage, there if EVERY_VERSION else sorted({there[0], there[-1]}))
        for version, state in known.items():
            self._check_files(name, version, state)
            if version >= read_from:
                self._check_rows(name, root, version, seen.get(version))
        return sorted(known)

    def check_mirror(self, name: str, root: Path, fenced_from: int = 0, older: Container[str] = ()) -> None:
        """The same actions as SQL's, fenced, and nothing beside them."""
        self._mirror_all(name)
        report = self.catalog.validate(name)
        assert report.drifts == (), report.drifts
        assert report.lag == 0
        log = root / "_delta_log"
        strangers = [path.name for path in log.iterdir() if not OURS.fullmatch(path.name) and path.name not in older]
        assert strangers == [], strangers
        protocols = {f"{version:020}.json": state.protocol for version, state in states(root).items()}
        protocols |= {path.name: json.loads(path.read_text())["protocol"] for path in log.glob("[0-9]*.crc")}
        for path in log.glob("*.checkpoint.parquet"):
            protocols[path.name] = next(filter(None, pq.read_table(path)["protocol"].to_pylist()))
        unfenced = [
            file for file, protocol in protocols.items() if FEATURE not in (protocol.get("writerFeatures") or ())
        ]
        strange = [file for file in unfenced if int(file[:20]) >= fenced_from]
        assert strange == [], f"not written by the mirror: {strange}"

    def _mirror_all(self, name: str) -> None:
        """What an endpoint of another process may not have mirrored yet."""
        with self.catalog.store.read() as conn:
            row = require_table(conn, parse_table_name(name))
        assert row.mode == "managed"
        self.catalog.mirror.mirror_table(row)
        assert self.catalog.mirror.flush(30)

    def _check_files(self, name: str, version: int, state: State) -> None:
        table = self.catalog.table(name)
        table.load_as_version(version)
        files = _names(table.files(["path"])["path"].to_pylist())
        assert files == _names(path for path, _ in state.files), version

    def _check_rows(self, name: str, root: Path, version: int, seen: pa.Table | None) -> None:
        table = self.catalog.table(name)
        table.load_as_version(version)
        rows = {reader: found.at_version(root, version) for reader, found in self.readers.items()}
        if seen is not None:
            rows["Spark"], opened = seen.drop_columns("opened file"), _names(seen["opened file"].to_pylist())
            assert opened <= _names(table.files(["path"])["path"].to_pylist()), version
        wanted = sort_rows(table.to_pyarrow_table())
        for reader, found in rows.items():
            assert sort_rows(found, wanted.schema).to_pylist() == wanted.to_pylist(), (reader, version)

    def _seen_by_spark(self, stage: Stage, versions: Sequence[int]) -> dict[int, pa.Table]:
        """The rows of versions, each with the file that it is in."""
        return read_versions(stage.spark, stage.path, versions, F.col("_metadata.file_path").alias("opened file"))


def plain_readers() -> dict[str, Reader]:
    return {"deltalake": Deltalake(), "duckdb": DuckDB()}


def commit_text(root: Path) -> str:
    """Every commit of the mirror, in order."""
    return "".join(path.read_text() for path in sorted((root / "_delta_log").glob("*.json")))


def assert_rows(found: pa.Table, wanted: Sequence[tuple[Any, ...]]) -> None:
    """The rows in any order; columns as the table has them."""
    rows = [tuple(row.values()) for row in found.to_pylist()]
    assert sorted(rows, key=repr) == sorted(wanted, key=repr), rows


def _names(paths: Iterable[str]) -> set[str]:
    """Data files by their names, which are unique: how a folder is spelled differs from reader to reader."""
    return {path.rpartition("/")[2] for path in paths}
