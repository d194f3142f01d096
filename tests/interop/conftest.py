"""Tables of every kind, written once for the whole run and opened by every reader after each of their commits."""

import shutil
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

import deltalakedb as dl
from deltalakedb.catalog.entries import require_table
from deltalakedb.files.writer import FileTxnLogWriter
from deltalakedb.store.names import parse_table_name
from tests.fixtures.readers import Reader, Reading, Refused
from tests.fixtures.sizes import FULL, every
from tests.interop.kinds import KINDS
from tests.interop.maker import Maker

PHASES = ("commits", "checkpointed", "cleaned")
DAY_MS = 86_400_000
EVERY_VERSION = FULL
"""Whether Spark is asked for every version, as all others always are: a version costs it a hundred times what it costs
them. In `make test` it opens the first commit and the last, and travels to the first version and the checkpoint."""


@dataclass
class History:
    """A table's rows at each version, and what each reader that was asked saw when that version was the newest."""

    kind: str
    path: Path
    rows: list[pa.Table] = field(default_factory=list)
    opened: list[dict[str, Reading | Refused]] = field(default_factory=list)
    logs: dict[str, Path] = field(default_factory=dict)
    """A copy of the table for each phase: commits alone; with a checkpoint before the last one; cleaned up too."""
    first_versions: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PHASES, 0))

    @property
    def head(self) -> int:
        return len(self.rows) - 1

    @property
    def checkpoint(self) -> int:
        """The version before the newest, where there are three: a commit comes after the checkpoint then."""
        return max(self.head - 1, 1)


def open_all(readers: Mapping[str, Reader], path: Path) -> dict[str, Reading | Refused]:
    def ask(reader: Reader) -> Reading | Refused:
        try:
            return reader.latest(path)
        except Refused as refused:
            return refused

    with ThreadPoolExecutor(len(readers)) as pool:
        return dict(zip(readers, pool.map(ask, readers.values()), strict=True))


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dl.Catalog]]:
    """A folder, and a catalog in it that mirrors in line and writes no checkpoints of its own accord."""
    root = tmp_path_factory.mktemp("interop")
    with dl.connect(root / "catalog.db", mirror_checkpoint_interval=1000) as catalog:
        yield root, catalog


@pytest.fixture(scope="session", params=every(3, KINDS))
def history(request: pytest.FixtureRequest, lake: tuple[Path, dl.Catalog], readers: Mapping[str, Reader]) -> History:
    kind, (root, catalog) = str(request.param), lake
    table = Maker(catalog, kind, root / "lake" / kind)
    made = History(kind, table.path)
    quick = {name: reader for name, reader in readers.items() if EVERY_VERSION or name != "spark"}
    for rows in KINDS[kind](table):
        made.opened.append(open_all(quick if made.rows else readers, table.path))
        made.rows.append(rows)
    made.opened[-1] = open_all(readers, table.path)
    made.logs["commits"] = _copy(table.path, root / "commits" / kind)
    _checkpoint(root / "catalog.db", table, made.checkpoint)
    made.logs["checkpointed"] = _copy(table.path, root / "checkpointed" / kind)
    made.logs["cleaned"] = _copy(table.path, root / "cleaned" / kind)
    files = FileTxnLogWriter(str(made.logs["cleaned"]), table=kind)
    in_two_days = time.time_ns() // 1_000_000 + 2 * DAY_MS
    made.first_versions["cleaned"] = files.clean_up(cutoff_ms=in_two_days).first_version
    return made


def _copy(table: Path, to: Path) -> Path:
    """With the times of the files, which are those of the commits."""
    return Path(shutil.copytree(table, to))


def _checkpoint(uri: Path, table: Maker, version: int) -> None:
    """What the background writes when a checkpoint of this version is due."""
    with dl.connect(uri, mirror_checkpoint_interval=version) as catalog:
        with catalog.store.read() as conn:
            row = require_table(conn, parse_table_name(table.name))
        catalog.mirror.maintain_table(row)
