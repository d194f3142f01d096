"""Jobs of Spark in the test's own process, one task after the other: for what a test wants to happen between two."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from deltalakedb.cdc.copy.incremental import SideCopier, begin_copies, resume_copies
from deltalakedb.cdc.run.following import ChangeFollower, Tally
from deltalakedb.cdc.run.opening import add_tables, open_capture
from deltalakedb.cdc.settings import CaptureSettings
from deltalakedb.cdc.source.postgres import connect
from tests.cdc import judging
from tests.cdc.conftest import Lake, Source

DOCUMENTS = (
    "create table documents (id int primary key, n int, pad text, body text)",
    "alter table documents alter body set storage external",
    "create publication shop for all tables",
)
"""A table with rows of some size and larger values, and its publication."""


class _Rows:
    def __init__(self, items: Iterable[Any]) -> None:
        self._items = items

    def map(self, function: Callable[[Any], Any]) -> "_Rows":
        return _Rows(map(function, self._items))

    def flatMap(self, function: Callable[[Any], Iterable[Any]]) -> "_Rows":  # noqa: N802  Spark's name
        return _Rows(one for item in self._items for one in function(item))

    def collect(self) -> list[Any]:
        return list(self._items)


class LocalJobs:
    """What `ChangeFollower` and `SideCopier` ask of a session and its context."""

    defaultParallelism = 1  # noqa: N815  Spark's name

    def __init__(self) -> None:
        self.before_part: Callable[[], None] = lambda: None
        """Called before each job of a copy."""
        self.jobs: list[str] = []

    @property
    def sparkContext(self) -> "LocalJobs":  # noqa: N802  Spark's names
        return self

    @property
    def dataSource(self) -> "LocalJobs":  # noqa: N802
        return self

    def register(self, _source: Any) -> None:
        pass

    def setJobGroup(self, _group: str, description: str, interruptOnCancel: bool = False) -> None:  # noqa: N802, N803, ARG002
        self.jobs.append(description)
        self.before_part()

    def cancelJobGroup(self, _group: str) -> None:  # noqa: N802
        pass

    def parallelize(self, items: Sequence[Any], _parts: int) -> _Rows:
        return _Rows(items)


@dataclass
class Beside:
    """A capture whose tables are copied beside its stream."""

    lake: Lake
    settings: CaptureSettings
    jobs: LocalJobs
    follower: ChangeFollower
    copier: SideCopier

    def begin(self) -> None:
        """Begin to copy what waits for it."""
        follower = self.follower
        waiting = [table.source for table in follower.capture.tables.values() if table.stage == "pending"]
        begun, copies = begin_copies(self.lake.catalog, follower.conn, follower.capture, self.settings, waiting)
        follower.use_copies(begun, {**follower.copies, **copies})

    def finish(self) -> list[str]:
        return self.copier.finish(self.follower, lambda: None)


@contextmanager
def beside(lake: Lake, source: Source, **settings: Any) -> Iterator[Beside]:
    """Open the capture, and take up the copies that somebody has begun."""
    given = {"namespace": "lake", "chunk_bytes": 8192, **settings}
    asked = CaptureSettings(source.dsn, "shop", **given)
    jobs: Any = LocalJobs()
    with connect(source.dsn) as conn:
        capture = add_tables(lake.catalog, conn, open_capture(lake.catalog, conn, asked), asked)
        follower = ChangeFollower(lake.catalog, asked, jobs, conn, capture, Tally())
        follower.use_copies(*resume_copies(lake.catalog, capture))
        with SideCopier(jobs, lake.catalog, asked) as copier:
            yield Beside(lake, asked, jobs, follower, copier)


def fill(source: Source, first: int, last: int) -> None:
    """Documents of these numbers."""
    source.run(
        "insert into documents select i, 0, repeat('p', 700), repeat(i::text, 2500) "
        f"from generate_series({first}, {last}) i"
    )


def copied(made: Beside, *names: str) -> None:
    """Each table is published once, by one version, and equals its source."""
    capture = made.follower.capture
    assert {table.stage for table in capture.tables.values()} == {"streaming"}
    judging.check_mirror(made.lake.catalog, capture)
    for name in names:
        assert made.lake.catalog.table(f"lake.{name}").version() == 0
