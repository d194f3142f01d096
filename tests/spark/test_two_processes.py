"""Two Spark processes, each with an endpoint of its own, write the same tables at once: SQL decides between them."""

import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import deltalakedb as dl
from tests.fixtures.sizes import FULL
from tests.spark.lake import Lake, new_catalog_uri, new_lake
from tests.spark.peer import Peer, PeerError

EACH = 5 if FULL else 3

HOLD = """
from pathlib import Path
def hold(value):
    Path({started!r}).touch()
    deadline = time.monotonic() + 60
    while not Path({go!r}).exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return value
spark.udf.register("hold", hold, "double")
answer = [list(row) for row in spark.sql({statement!r}).collect()]
"""
"""A statement that has read its snapshot and then waits, so that somebody else surely commits in between."""


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    other = Peer(tmp_path_factory.mktemp("peer"))
    yield other
    other.close()


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def lake(
    request: pytest.FixtureRequest, spark: SparkSession, peer: Peer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lake]:
    assert spark.version
    folder = tmp_path_factory.mktemp(f"two_{request.param}")
    uri, warehouse = new_catalog_uri(str(request.param), folder, request), str(folder / "lake")
    with dl.connect(uri, warehouse=warehouse) as catalog:
        peer.ask(f"spark = sessions.bridged({uri!r}, {warehouse!r})")
        yield new_lake(catalog, str(request.param))


@pytest.fixture
def table(lake: Lake) -> str:
    """Two partitions of one file each, two rows a file."""
    name = lake.name(f"t{uuid.uuid4().hex[:8]}")
    lake.spark.sql(f"create table {name} (id bigint, city string, amount double) using delta partitioned by (city)")
    values = "(1, 'a', 1.0), (2, 'a', 2.0), (3, 'b', 3.0), (4, 'b', 4.0)"
    lake.spark.sql(f"insert into {name} select /*+ coalesce(1) */ * from values {values}").collect()
    return name


def rows(lake: Lake, table: str) -> list[tuple[int, str, float]]:
    return sorted(tuple(row) for row in lake.spark.sql(f"select * from {table}").collect())


def check(lake: Lake, table: str, *, commits: int) -> None:
    """So many commits after the first two, no version left out, and the mirror is the same."""
    assert [entry["version"] for entry in lake.catalog.history(table)] == list(range(commits + 1, -1, -1))
    short = table.partition(".")[2]
    lake.judge.check_mirror(table, lake.root(short))


def test_appends_at_once_are_all_there_once(lake: Lake, peer: Peer, table: str) -> None:
    theirs = [f"insert into {table} values ({100 + number}, 'p', 0.0)" for number in range(EACH)]
    peer.tell(f"answer = [spark.sql(text).collect() and None for text in {theirs!r}]")
    for number in range(EACH):
        lake.spark.sql(f"insert into {table} values ({200 + number}, 'm', 0.0)")
    peer.answer()
    found = [row[0] for row in rows(lake, table)]
    assert found == [1, 2, 3, 4, *range(100, 100 + EACH), *range(200, 200 + EACH)]
    assert peer.sql(f"select count(*) from {table}") == [[4 + 2 * EACH]]
    check(lake, table, commits=2 * EACH)


def test_updates_of_other_partitions_are_rebased_by_delta(lake: Lake, peer: Peer, table: str) -> None:
    """Whoever loses the version reads what came in between, finds no clash and writes the next one."""
    theirs = f"update {table} set amount = amount + 1 where city = 'b'"
    peer.tell(f"answer = [spark.sql({theirs!r}).collect() and None for _ in range(3)]")
    for _ in range(3):
        lake.spark.sql(f"update {table} set amount = amount + 10 where city = 'a'")
    peer.answer()
    assert rows(lake, table) == [(1, "a", 31.0), (2, "a", 32.0), (3, "b", 6.0), (4, "b", 7.0)]
    check(lake, table, commits=6)


CONFLICTS = {
    "ConcurrentDeleteRead": (
        "update {t} set amount = hold(amount) where city = 'a'", "delete from {t} where city = 'a'",
        [(3, "b", 3.0), (4, "b", 4.0)],
    ),
    "ConcurrentAppend": (
        "update {t} set amount = hold(amount) where city = 'a'", "insert into {t} select 9, 'a', amount from {t} "
        "where id = 3", [(1, "a", 1.0), (2, "a", 2.0), (3, "b", 3.0), (4, "b", 4.0), (9, "a", 3.0)],
    ),
    "MetadataChanged": (
        "update {t} set amount = hold(amount) where city = 'a'", "alter table {t} set tblproperties ('x' = 'y')",
        [(1, "a", 1.0), (2, "a", 2.0), (3, "b", 3.0), (4, "b", 4.0)],
    ),
}  # fmt: skip
"""What the other process is held at, what is committed meanwhile, and the rows after that alone."""
CASES = [("sqlite", conflict) for conflict in CONFLICTS] + [
    ("postgres", conflict) for conflict in CONFLICTS if FULL or conflict == "ConcurrentAppend"
]
"""Delta decides what is a clash, whatever the engine: on Postgres one of them, and all of them in `make soak`."""


@pytest.mark.parametrize(("lake", "conflict"), CASES, indirect=["lake"])
def test_a_real_clash_is_an_exception_of_deltas_own(
    lake: Lake, peer: Peer, table: str, conflict: str, tmp_path: Path
) -> None:
    held, meanwhile, after = CONFLICTS[conflict]
    started, go = tmp_path / "started", tmp_path / "go"
    peer.tell(HOLD.format(started=str(started), go=str(go), statement=held.format(t=table)))
    wait_for(started)
    lake.spark.sql(meanwhile.format(t=table)).collect()
    go.touch()
    with pytest.raises(PeerError, match=f"io.delta.exceptions.{conflict}Exception"):
        peer.answer()
    assert rows(lake, table) == after
    check(lake, table, commits=1)


def test_an_append_to_another_partition_in_between_clashes_with_nobody(
    lake: Lake, peer: Peer, table: str, tmp_path: Path
) -> None:
    started, go = tmp_path / "started", tmp_path / "go"
    statement = f"update {table} set amount = hold(amount) + 10 where city = 'a'"
    peer.tell(HOLD.format(started=str(started), go=str(go), statement=statement))
    wait_for(started)
    lake.spark.sql(f"insert into {table} values (9, 'b', 9.0)")
    go.touch()
    peer.answer()
    assert rows(lake, table) == [(1, "a", 11.0), (2, "a", 12.0), (3, "b", 3.0), (4, "b", 4.0), (9, "b", 9.0)]
    check(lake, table, commits=2)


def wait_for(path: Path, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < deadline, f"{path.name}: the other process did not come that far"
        time.sleep(0.02)
