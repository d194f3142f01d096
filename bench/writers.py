"""One writer, in a process of its own: says that it is ready, waits for the word, commits until its time is over.

`python -m bench.writers '{"kind": "ours", ...}'` speaks JSON lines on stdout; `bench/crowd.py` starts many of them.
"""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
import warnings
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa

ROWS_PER_COMMIT = 100
MAX_ERRORS = 20


@dataclass(frozen=True, slots=True)
class Job:
    """What a writer does. `pause_seconds` is the time from one beginning to the next; 0 is as fast as it can."""

    kind: str
    target: str
    table: str
    seconds: float
    data_path: str = ""
    mirror: str = "inline"
    pause_seconds: float = 0.0

    def to_json(self) -> str:
        return json.dumps(asdict(self))


class Writer:
    """Commits through one of the systems; everything that can be kept open from commit to commit is."""

    def commit(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Let go of everything; what runs in the background is finished."""


def sample(rows: int = ROWS_PER_COMMIT) -> pa.Table:
    """Rows with the columns of the generated tables."""
    start = datetime(2024, 1, 1, tzinfo=UTC)
    return pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "qty": pa.array([n % 50 for n in range(rows)], pa.int32()),
            "price": pa.array([n / 7 for n in range(rows)], pa.float64()),
            "name": pa.array([f"customer-{n:06}" for n in range(rows)]),
            "day": pa.array([date(2024, 1, 1) + timedelta(days=n) for n in range(rows)]),
            "ts": pa.array([start + timedelta(seconds=n) for n in range(rows)], pa.timestamp("us", "UTC")),
        }
    )


class Ours(Writer):
    """`tx.write`: a Parquet file of its own, the commit in SQL, the mirror as the job says."""

    def __init__(self, job: Job) -> None:
        import deltalakedb as dl

        self.catalog = dl.connect(job.target, mirror_mode=job.mirror)
        self.table = job.table
        self.data = sample()

    def commit(self) -> None:
        with self.catalog.begin(tables=[self.table]) as tx:
            tx.write(self.table, self.data, mode="append")

    def close(self) -> None:
        self.catalog.close()


class OursActions(Ours):
    """`tx.commit_actions` with an add of a file that needs not exist, its statistics included."""

    def __init__(self, job: Job) -> None:
        from deltalakedb.log.protocol.actions import AddFile

        super().__init__(job)
        self.add = AddFile
        low, high = ({"id": n, "qty": n, "price": float(n), "name": f"customer-{n}", "day": "2024-01-01",
                      "ts": "2024-01-01T00:00:00.000Z"} for n in (1, 9))  # fmt: skip
        nulls = dict.fromkeys(low, 0)
        self.stats = json.dumps({"numRecords": 100, "minValues": low, "maxValues": high, "nullCount": nulls})

    def commit(self) -> None:
        add = self.add(f"part-{uuid.uuid4()}.parquet", {}, 10_000, 1_700_000_000_000, True, self.stats)
        with self.catalog.begin(tables=[self.table]) as tx:
            tx.commit_actions(self.table, [add])


class DuckLakeInsert(Writer):
    """An insert of the same rows; inlining is off, so that each commit writes a Parquet file."""

    rows = ROWS_PER_COMMIT

    def __init__(self, job: Job) -> None:
        from bench.peers import DuckLake, DuckLakeSession

        engine, _, target = job.target.partition("|")
        self.session = DuckLakeSession(DuckLake(engine, target, job.data_path))
        self.connection = self.session.connection
        self.connection.execute(self.session.lake.attach_statement)
        self.connection.register("data", sample(self.rows))
        self.statement = f"insert into lake.{job.table} select * from data"

    def commit(self) -> None:
        self.connection.execute(self.statement)

    def close(self) -> None:
        self.session.close()


class DuckLakeInlined(DuckLakeInsert):
    """One row, which DuckLake keeps in its catalog: its commit without a data file."""

    rows = 1


class Deltalake(Writer):
    def __init__(self, job: Job) -> None:
        from deltalake import DeltaTable

        self.table = DeltaTable(job.target)
        self.data = sample()

    def commit(self) -> None:
        from deltalake import write_deltalake

        write_deltalake(self.table, self.data, mode="append")


class IcebergTransaction(Writer):
    """One request that sets a property of its own in two tables; `target` is the URL of the Iceberg endpoints.

    Properties are used again after so many commits: otherwise the tables' metadata would grow with every commit.
    """

    MARKS = 50

    def __init__(self, job: Job) -> None:
        from bench.iceberg_rest import NAMESPACE, RestCatalog

        self.catalog = RestCatalog(job.target)
        self.identifiers = [{"namespace": [NAMESPACE], "name": name} for name in job.table.split(",")]
        self._client, self._commits = uuid.uuid4().hex[:8], 0

    def commit(self) -> None:
        key = f"mark-{self._client}-{self._commits % self.MARKS}"
        updates = [{"action": "set-properties", "updates": {key: str(self._commits)}}]
        changes = [{"identifier": name, "requirements": [], "updates": updates} for name in self.identifiers]
        self.catalog.ask("POST", "/transactions/commit", {"table-changes": changes})
        self._commits += 1

    def close(self) -> None:
        self.catalog.close()


KINDS: dict[str, Callable[[Job], Writer]] = {
    "ours": Ours,
    "ours, actions": OursActions,
    "ducklake": DuckLakeInsert,
    "ducklake, inlined": DuckLakeInlined,
    "deltalake": Deltalake,
    "iceberg": IcebergTransaction,
}


def main() -> int:
    warnings.simplefilter("ignore")
    job = Job(**json.loads(sys.argv[1]))
    with closing(KINDS[job.kind](job)) as writer:
        writer.commit()  # what is imported, connected and looked up once is no part of a commit
        _tell({"ready": os.getpid()})
        start = float(sys.stdin.readline())  # on the clock that all processes of a machine share
        time.sleep(max(0.0, start - time.monotonic()))
        times, errors = _run(writer, job, start)
    _tell({"times": times, "errors": errors})
    return 0


def _run(writer: Writer, job: Job, start: float) -> tuple[list[tuple[float, float]], list[str]]:
    """Beginning and end of each commit that succeeded, and what others said."""
    times: list[tuple[float, float]] = []
    errors: list[str] = []
    due = start
    while (begin := time.monotonic()) < start + job.seconds:
        try:
            writer.commit()
            times.append((begin, time.monotonic()))
        except Exception as error:
            errors.append(f"{type(error).__name__}: {error}"[:300])
            if len(errors) > MAX_ERRORS and not times:
                break
        if job.pause_seconds:
            due += job.pause_seconds
            time.sleep(max(0.0, due - time.monotonic()))
    return times, errors


def _tell(message: dict[str, object]) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    sys.exit(main())
