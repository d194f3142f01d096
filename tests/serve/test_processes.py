"""`dl serve --workers N`: any process answers any request, and one that dies is replaced."""

from __future__ import annotations

import os
import random
import signal
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from deltalakedb.spark.endpoint import EndpointClient
from tests.fixtures.served import Served
from tests.serve.wire import append, make_table, paths_in, versions

ServeProcess = Callable[..., Served]


def children(process: int) -> list[int]:
    """The server processes that `dl serve` has started."""
    return [int(pid) for pid in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def wait_until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() and "Z" not in _state(pid) for pid in pids):
        assert time.monotonic() < deadline, pids
        time.sleep(0.05)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def test_transactions_over_two_tables_are_made_once_while_processes_are_killed(
    serve_process: ServeProcess, catalog_uri: str
) -> None:
    served = serve_process(catalog_uri, "--workers", "3")
    assert len(children(served.process.pid)) == 3
    with EndpointClient(served.url, served.token) as client:
        paths = [make_table(client, name) for name in ("bank.left", "bank.right")]

    def work(number: int) -> list[str]:
        """Every call has a connection of its own, so that any process may get it."""
        made = []
        for turn in range(4):
            name, tokens = f"{number}-{turn}.parquet", [str(uuid.uuid4()) for _ in range(3)]

            def client() -> EndpointClient:
                return EndpointClient(served.url, served.token, retry_seconds=60)

            tx = client().begin(token=tokens[2]).txn
            for path, token in zip(paths, tokens, strict=False):
                head = versions(client(), path, txn=tx)[-1]
                assert client().write_commit(path, head + 1, append(name), txn=tx, token=token) == head + 1
            assert set(client().commit(tx).versions) == {"bank.left", "bank.right"}
            made.append(name)
        return made

    random_kills = random.Random(7)
    with ThreadPoolExecutor(6) as pool:
        working = [pool.submit(work, number) for number in range(6)]
        for _ in range(3):
            time.sleep(random_kills.uniform(0.3, 1.0))
            os.kill(random_kills.choice(children(served.process.pid)), signal.SIGKILL)
        made = sorted(name for future in working for name in future.result())
    with EndpointClient(served.url, served.token, retry_seconds=30) as client:
        for path in paths:
            seen = versions(client, path)
            assert sorted(name for version in seen for name in paths_in(client.read_commit(path, version))) == made
            assert seen == list(range(len(made) + 1))
    pids = children(served.process.pid)
    served.process.send_signal(signal.SIGTERM)
    code, errors = served.end()
    assert (code, "another one is started" in errors) == (0, True), errors
    wait_until_gone(pids)


def test_processes_end_with_the_one_that_started_them(serve_process: ServeProcess, tmp_path: Path) -> None:
    served = serve_process(str(tmp_path / "c.db"), "--workers", "2")
    pids = children(served.process.pid)
    os.kill(served.process.pid, signal.SIGKILL)
    wait_until_gone(pids)


def test_processes_that_die_again_and_again_end_the_command(serve_process: ServeProcess, tmp_path: Path) -> None:
    served = serve_process(str(tmp_path / "c.db"), "--workers", "2")
    deadline = time.monotonic() + 60
    while served.process.poll() is None and time.monotonic() < deadline:
        with suppress(ProcessLookupError, FileNotFoundError):  # it has ended, or the command has
            for pid in children(served.process.pid):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    code, errors = served.end()
    assert code == 1
    assert "server processes ended within 60 seconds, the last one killed by signal 9" in errors


def test_two_commands_do_not_share_a_port(serve_process: ServeProcess, tmp_path: Path) -> None:
    first = serve_process(str(tmp_path / "c.db"), "--workers", "2")
    port = first.url.rpartition(":")[2]
    with pytest.raises(AssertionError, match=rf"cannot listen at 127\.0\.0\.1:{port}"):
        serve_process(str(tmp_path / "d.db"), "--workers", "2", "--port", port)


def test_duckdb_takes_one_process(serve_process: ServeProcess, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="is for one process"):
        serve_process(f"deltasql://duckdb/{tmp_path}/c.duckdb", "--workers", "2")


def test_a_port_that_is_in_use_is_named(serve_process: ServeProcess, tmp_path: Path) -> None:
    first = serve_process(str(tmp_path / "c.db"))
    port = first.url.rpartition(":")[2]
    with pytest.raises(AssertionError, match=rf"cannot listen at 127\.0\.0\.1:{port}"):
        serve_process(str(tmp_path / "c.db"), "--workers", "2", "--port", port)
