"""Many processes write at once: nothing is lost, nothing is there twice, and every refusal has a name."""

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable as UnmodifiedTable

import deltalakedb as dl
from deltalakedb import exceptions
from deltalakedb.catalog.entries import require_table
from deltalakedb.exceptions import CommitFailedError
from deltalakedb.files.reader import FileTxnLogReader
from deltalakedb.log.protocol.snapshot import replay
from deltalakedb.store.names import parse_table_name
from deltalakedb.store.reader import SqlTxnLogReader
from tests.faults.conftest import Place
from tests.faults.processes import run, start, together, well
from tests.faults.reconcile import bring_level
from tests.faults.worker import ACCOUNTS
from tests.fixtures.sizes import sized

WRITERS = 8
TABLE = "busy.events"


def arguments(place: Place) -> dict[str, Any]:
    # DuckDB serves one process at a time: with many of them on a busy machine each waits for long.
    return {**asdict(place), "warehouse": str(place.warehouse), "config": {"sql_busy_timeout": 240.0}}


def commits_each(place: Place, each: int) -> int:
    # DuckDB opens its file anew for each commit of another process.
    return sized(min(each, 12), each) if place.engine == "duckdb" else each


def location(place: Place, table: str = TABLE) -> Path:
    namespace, _, name = table.partition(".")
    return place.warehouse / namespace / name


def test_blind_appends_of_many_processes_all_succeed(place: Place) -> None:
    run("create", place=arguments(place), table=TABLE)
    each = commits_each(place, 50)
    ended = together(
        [start("append", place=arguments(place), table=TABLE, writer=f"w{n}", count=each) for n in range(WRITERS)]
    )
    versions = sorted(version for one in well(ended) for version in one.all_of("version"))
    assert versions == list(range(1, WRITERS * each + 1))
    bring_level(place)
    unmodified = UnmodifiedTable(str(location(place)))
    assert unmodified.version() == WRITERS * each
    rows = pa.table(unmodified.to_pyarrow_table()).to_pylist()
    expected = {(f"w{n}", number, row) for n in range(WRITERS) for number in range(each) for row in range(3)}
    assert len(rows) == len(expected)
    assert {(row["writer"], row["number"], row["row"]) for row in rows} == expected
    with dl.connect(place.catalog) as catalog:
        assert catalog.validate(TABLE).drift is None


def test_mixed_writers_succeed_or_meet_one_named_conflict(place: Place) -> None:
    run("create", place=arguments(place), table=TABLE)
    each = commits_each(place, sized(10, 30))
    ended = together(
        [start("mix", place=arguments(place), table=TABLE, writer=f"w{n}", count=each, seed=n) for n in range(WRITERS)]
    )
    outcomes = [line for one in well(ended) for line in one.said if "operation" in line]
    assert len(outcomes) == WRITERS * each
    for line in outcomes:
        if "conflict" in line:
            assert issubclass(getattr(exceptions, line["conflict"]), CommitFailedError), line
    acknowledged = sorted(line["version"] for line in outcomes if "acknowledged" in line)
    assert acknowledged == list(range(1, len(acknowledged) + 1))
    bring_level(place)
    check_history(place)


def check_history(place: Place) -> None:
    """SQL's head, SQL's commits replayed, and the files' commits replayed are the same files with the same rows."""
    with dl.connect(place.catalog) as catalog:
        table = catalog.table(TABLE)
        with catalog.store.read() as conn:
            row = require_table(conn, parse_table_name(TABLE))
        head = {row["path"]: json.loads(row["stats"])["numRecords"] for row in table.files().to_pylist()}
        state = None
        for commit in SqlTxnLogReader(catalog.store, row).commits(0):
            state = replay(commit.actions, state)
    assert state is not None
    assert {path for path, _ in state.files} == head.keys()
    from_files = None
    for commit in FileTxnLogReader(location(place)).commits(0):
        from_files = replay(commit.actions, from_files)
    assert from_files is not None
    assert from_files.files.keys() == state.files.keys()
    compared = {path: json.loads(file.stats or "{}")["numRecords"] for (path, _), file in from_files.files.items()}
    assert compared == head


def test_of_many_creators_one_wins(place: Place) -> None:
    ended = together([start("create", place=arguments(place), table=TABLE) for _ in range(WRITERS)])
    said = [line for one in well(ended) for line in one.said]
    assert [line for line in said if "created" in line] == [{"created": TABLE}]
    assert [line for line in said if "exists" in line] == [{"exists": TABLE}] * (WRITERS - 1)
    with dl.connect(place.catalog) as catalog:
        assert catalog.tables() == [TABLE]
        assert catalog.table(TABLE).version() == 0
        folder = Path(catalog.table(TABLE).table_uri.removeprefix("file://"))
    assert [path.name for path in sorted(folder.glob("_delta_log/*.json"))] == [f"{0:020}.json"]
    logs = [path.parent for path in Path(place.warehouse).rglob("_delta_log")]
    assert logs == [folder], "those who lost have left nothing"


def test_a_sum_over_two_tables_never_changes_for_any_reader(place: Place) -> None:
    with dl.connect(place.catalog, warehouse=str(place.warehouse)) as catalog, catalog.begin() as tx:
        for name in ACCOUNTS:
            tx.write(name, pa.table({"amount": [500]}), mode="append")
    time.sleep(0.01)  # the readers' instants begin after the tables do
    moves = sized(8, 40)
    writers = [start("transfer", place=arguments(place), count=moves, seed=n) for n in range(2)]
    readers = [start("watch", place=arguments(place), looks=2 * moves, seed=n) for n in range(2)]
    for one in well(together(writers)):
        assert len(one.all_of("acknowledged")) == moves
    for one in well(together(readers)):
        sums = [(line["how"], line["sum"]) for line in one.said if "sum" in line]
        assert {how for how, _ in sums} == {"transaction", "at"}
        assert {total for _, total in sums} == {1000}
        assert one.all_of("unstable") == []
