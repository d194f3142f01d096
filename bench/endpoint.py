"""The endpoint under many clients: `dl serve --bridge` in one process, and clients in others that ask as Spark does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from bench.crowd import percentile
from bench.lab import Lab
from bench.report import Row, below
from deltalakedb.exceptions import DeltaError, VersionTakenError
from deltalakedb.spark.endpoint import EndpointClient

T = TypeVar("T")

TOKEN_BYTES = 24
WORKER_PROCESSES = 4
START_SECONDS = 1.0
READY = b"ready"
KINDS = ("commit", "shared", "read")
TABLES = 8
"""Tables that the clients of the kinds `shared` and `read` share."""


@dataclass(frozen=True, slots=True)
class Clients:
    """What one process of clients is to do."""

    url: str
    token: str
    kind: str
    first: int
    count: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Load:
    """What came of a run: every request of every client, in milliseconds as the client waited."""

    kind: str
    clients: int
    seconds: float
    latencies_ms: dict[str, list[float]]
    taken: int
    """Commits that came second (409): these clients, as Spark does, list again and send them for the next version."""
    errors: list[str]

    @property
    def requests_per_second(self) -> float:
        return sum(map(len, self.latencies_ms.values())) / self.seconds

    @property
    def text(self) -> str:
        parts = [f"{self.requests_per_second:,.0f} requests/s"]
        for what, times in sorted(self.latencies_ms.items()):
            p50, p95, p99 = (percentile(times, rank) for rank in (50, 95, 99))
            parts.append(f"{what} {len(times) / self.seconds:,.0f}/s p50 {p50:.0f} p95 {p95:.0f} p99 {p99:.0f} ms")
        return ", ".join([*parts, f"{len(self.errors)} errors"])


def endpoint_rows(lab: Lab) -> list[Row]:
    """Clients that commit to a table each, that commit to few tables, and that only read; on Postgres."""
    each, shared, newest = "a table each", f"{TABLES} tables together", "log and newest commit"
    return [
        _row(lab, "commit", f"list and commit, {each}", "inline"),
        _row(lab, "commit", f"list and commit, {each}, mirror in the background", "background"),
        _row(lab, "shared", f"list and commit, {shared}, mirror in the background", "background"),
        _row(lab, "read", f"read {newest}", "inline"),
    ]


def _row(lab: Lab, kind: str, what: str, mirror: str) -> Row:
    name = f"endpoint_{kind}_{mirror}"
    catalog = lab.empty_catalog("postgres", name)
    with serving(str(catalog.uri), lab.folder / name, mirror=mirror) as (url, token):
        load = run_load(url, token, kind, clients=lab.sizes.clients, seconds=lab.sizes.seconds)
    for error in sorted(set(load.errors))[:5]:
        print(f"    {error}", file=sys.stderr)
    errors = float(len(load.errors))
    return Row(f"{load.clients} clients {what}", "postgres", load.text, "", errors, " errors", below(1, " errors"))


@contextmanager
def serving(catalog: str, warehouse: Path, *, mirror: str = "inline") -> Iterator[tuple[str, str]]:
    """`dl serve` in a process of its own: its URL and its token."""
    token = os.urandom(TOKEN_BYTES).hex()
    command = [sys.executable, "-c", "from deltalakedb.cli import main; main()", "serve", "--bridge", "--port", "0"]
    command += ["--catalog", catalog, "--warehouse", str(warehouse)]
    environ = os.environ | {"DL_SERVE_TOKEN": token, "DL_MIRROR_MODE": mirror}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        if not url:
            raise RuntimeError("dl serve did not start; its error is above")
        yield url, token
    finally:
        process.terminate()
        process.communicate(timeout=90)


def run_load(
    url: str, token: str, kind: str, *, clients: int, seconds: float, processes: int = WORKER_PROCESSES
) -> Load:
    """So many clients at once, for so long; each has a thread and a connection of its own."""
    if kind not in KINDS:
        raise ValueError(f"{kind!r} is none of {', '.join(KINDS)}")
    with EndpointClient(url, token) as client:
        for number in range(clients if kind == "commit" else TABLES):
            _make_table(client, number)
    share = [clients // processes + (number < clients % processes) for number in range(processes)]
    jobs = [
        Clients(url, token, kind, sum(share[:number]), count, seconds) for number, count in enumerate(share) if count
    ]
    workers = [
        subprocess.Popen([sys.executable, "-m", "bench.endpoint"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in jobs
    ]
    for worker, job in zip(workers, jobs, strict=True):
        _tell(worker, asdict(job))  # not as an argument, which others can see: the token is in it
    for worker in workers:
        assert worker.stdout is not None
        if worker.stdout.readline().strip() != READY:
            raise RuntimeError("a process of clients died before it was ready; its error is above")
    start = time.time() + START_SECONDS
    for worker in workers:
        _tell(worker, {"start": start})
    told = [json.loads(worker.communicate(timeout=seconds + 120)[0]) for worker in workers]
    latencies: dict[str, list[float]] = {}
    for one in told:
        for what, times in one["latencies_ms"].items():
            latencies.setdefault(what, []).extend(times)
    ended = max(one["ended"] for one in told)
    errors = [error for one in told for error in one["errors"]]
    return Load(kind, clients, ended - start, latencies, sum(one["taken"] for one in told), errors)


def _tell(worker: subprocess.Popen[bytes], what: dict[str, object]) -> None:
    assert worker.stdin is not None
    worker.stdin.write(json.dumps(what).encode() + b"\n")
    worker.stdin.flush()


class _Tally:
    """What the clients of one process have seen."""

    def __init__(self) -> None:
        self.latencies_ms: dict[str, list[float]] = {}
        self.taken = 0
        self.errors: list[str] = []
        self._lock = threading.Lock()

    def timed(self, what: str, call: Callable[[], T]) -> T | None:
        """What the call gave; None when it did not succeed."""
        began = time.perf_counter()
        try:
            return call()
        except VersionTakenError:
            what = "taken"
            with self._lock:
                self.taken += 1
        except DeltaError as error:
            with self._lock:
                self.errors.append(f"{what}: {type(error).__name__}: {error}")
        finally:
            spent_ms = (time.perf_counter() - began) * 1000
            with self._lock:
                self.latencies_ms.setdefault(what, []).append(spent_ms)
        return None


def _client(job: Clients, path: str, start: float, tally: _Tally) -> None:
    client = EndpointClient(job.url, job.token)
    head = 0
    time.sleep(max(0.0, start - time.time()))
    until = time.monotonic() + job.seconds
    while time.monotonic() < until:
        entries = tally.timed("log", partial(client.log, path, start=head))
        if entries:
            head = entries[-1].version
        if job.kind == "read":
            tally.timed("read", partial(client.read_commit, path, head))
        else:
            tally.timed("commit", partial(client.write_commit, path, head + 1, _append()))


def _path(client: EndpointClient, number: int) -> str:
    return client.name(f"bench.t{number}").path.removeprefix("dldb://")


def _make_table(client: EndpointClient, number: int) -> None:
    path = client.reserve(f"bench.t{number}").path.removeprefix("dldb://")
    column = {"type": "long", "nullable": True, "metadata": {}}
    fields = [column | {"name": name} for name in ("id", "amount")]
    metadata = {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "configuration": {},
    }
    protocol = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    client.write_commit(path, 0, [json.dumps(protocol), json.dumps({"metaData": metadata})])


def _append() -> Sequence[str]:
    """A commit as a small append of Spark's makes it."""
    stats = {"numRecords": 1000, "minValues": {"id": 1, "amount": 0}, "maxValues": {"id": 9, "amount": 8}}
    added = {"path": f"part-00000-{uuid.uuid4()}-c000.snappy.parquet", "partitionValues": {}, "size": 12345}
    added |= {"modificationTime": 1, "dataChange": True, "stats": json.dumps(stats)}
    info = {"timestamp": 1, "operation": "WRITE", "operationParameters": {"mode": "Append"}, "isBlindAppend": True}
    return [json.dumps({"commitInfo": info | {"txnId": str(uuid.uuid4())}}), json.dumps({"add": added})]


def main() -> None:
    """One process of clients: its job comes on stdin, what it saw goes to stdout."""
    job, tally = Clients(**json.loads(sys.stdin.readline())), _Tally()
    with EndpointClient(job.url, job.token) as client:
        numbers = range(job.first, job.first + job.count)
        paths = [_path(client, number if job.kind == "commit" else number % TABLES) for number in numbers]
    print(READY.decode(), flush=True)
    start = json.loads(sys.stdin.readline())["start"]
    threads = [threading.Thread(target=_client, args=(job, path, start, tally)) for path in paths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seen = {"latencies_ms": tally.latencies_ms, "taken": tally.taken, "errors": tally.errors, "ended": time.time()}
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
