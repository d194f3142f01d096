"""`dl mirror`: what is behind is shown and brought level; the daemon goes on until a signal; a bad table is alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deltalakedb.store import Store, open_store
from tests.cli.conftest import Dl
from tests.conformance.mirrored import Managed, adds
from tests.fixtures.s3 import S3

DL = [sys.executable, "-c", "from deltalakedb.cli import main; main()"]


@pytest.fixture
def store(catalog: str) -> Iterator[Store]:
    with open_store("sqlite", catalog) as store:
        yield store


@pytest.fixture
def orders(store: Store, tmp_path: Path) -> Managed:
    """A table whose three versions are in SQL only."""
    table, _ = Managed.create(store, tmp_path / "lake" / "orders")
    table.append(2)
    return table


@pytest.fixture
def environment(catalog: str, tmp_path: Path) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("DL_")}
    return {**kept, "DL_CATALOG": catalog, "XDG_CONFIG_HOME": str(tmp_path / "no-config")}


class Daemon:
    """`dl mirror run` as a process of its own."""

    def __init__(self, environment: dict[str, str], *arguments: str) -> None:
        self.process = subprocess.Popen(
            [*DL, "mirror", "run", "--interval", "0.05", *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Daemon:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str, str]:
        self.process.send_signal(number)
        out, errors = self.process.communicate(timeout=60)
        return self.process.returncode, out, errors


def wait_until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def in_the_way(table: Managed) -> Path:
    """A file where the table's folder should be: nothing can be mirrored until it is gone."""
    folder = table.folder.parent
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.write_text("in the way")
    return folder


def status_of(dl: Dl, table: str = "sales.orders") -> dict[str, Any]:
    (row,) = json.loads(dl("mirror", "status", table, "--json").stdout)
    assert isinstance(row, dict)
    return row


# -- status and once


def test_status_says_how_far_behind_a_table_is(dl: Dl, orders: Managed) -> None:
    row = status_of(dl)
    assert (row["table"], row["state"], row["version"], row["mirrored_version"]) == ("sales.orders", "live", 2, -1)
    assert row["versions_behind"] == 3
    assert row["lag_seconds"] >= 0
    shown = dl("mirror", "status").stdout.splitlines()
    assert shown[0].split("\t")[:5] == ["table", "state", "version", "mirrored", "behind"]
    assert shown[1].split("\t")[:5] == ["sales.orders", "live", "2", "-1", "3"]
    assert not orders.folder.exists()


@pytest.mark.usefixtures("attached")
def test_followers_have_no_mirror(dl: Dl) -> None:
    assert json.loads(dl("mirror", "status", "--json").stdout) == []


def test_once_writes_what_is_missing_and_then_nothing(dl: Dl, orders: Managed) -> None:
    first = dl("mirror", "once", "--json")
    assert first.exit_code == 0, first.stderr
    assert json.loads(first.stdout) == [
        {"table": "sales.orders", "from_version": -1, "to_version": 2, "written": 3, "error": None}
    ]
    assert len(orders.commits_on_disk()) == 3
    assert json.loads(dl("mirror", "once", "--json").stdout) == []
    row = status_of(dl)
    assert (row["versions_behind"], row["lag_seconds"], row["mirrored_version"]) == (0, 0, 2)


def test_once_for_one_table_leaves_the_others(dl: Dl, orders: Managed, store: Store, tmp_path: Path) -> None:
    other, _ = Managed.create(store, tmp_path / "lake" / "other", "other")
    assert dl("mirror", "once", "sales.other").exit_code == 0
    assert other.folder.exists()
    assert not orders.folder.exists()


def test_a_table_that_fails_is_told_with_its_error_and_the_others_go_on(
    dl: Dl, orders: Managed, store: Store, tmp_path: Path
) -> None:
    other, _ = Managed.create(store, tmp_path / "lake" / "other", "other")
    blocked = in_the_way(orders)
    result = dl("mirror", "once", "--json")
    assert result.exit_code == 1
    errors = {row["table"]: row["error"] for row in json.loads(result.stdout)}
    assert errors["sales.other"] is None
    assert "sales.orders" in errors["sales.orders"]
    assert len(other.commits_on_disk()) == 1
    row = status_of(dl)
    assert row["attempts"] >= 1  # where the other table takes long, this one is tried again meanwhile
    assert row["versions_behind"] == 3
    assert "_delta_log" in row["error"]
    assert row["next_try_ms"] > 0
    blocked.unlink()
    assert dl("mirror", "once").exit_code == 0
    assert status_of(dl)["attempts"] == 0


def test_a_table_that_does_not_exist_is_an_error(dl: Dl) -> None:
    dl("init")
    for verb in ("status", "once"):
        result = dl("mirror", verb, "sales.nothing")
        assert result.exit_code == 1
        assert "sales.nothing" in result.stderr


def test_once_makes_the_checkpoint_that_is_due(dl: Dl, orders: Managed) -> None:
    orders.append(9)
    assert dl("mirror", "once").exit_code == 0
    assert (orders.folder / "00000000000000000010.checkpoint.parquet").exists()
    assert status_of(dl)["checkpoint_version"] == 10


def test_once_reaches_an_object_store_by_its_options(dl: Dl, store: Store, s3: S3) -> None:
    table, _ = Managed.create(store, s3.uri("lake/orders"), options=s3.storage_options)
    table.append(2)
    options = [
        argument for key, value in s3.storage_options.items() for argument in ("--storage-option", f"{key}={value}")
    ]
    result = dl("mirror", "once", *options)
    assert result.exit_code == 0, result.stderr
    assert [key for key in s3.list_keys() if key.endswith(".json")] == [
        f"lake/orders/_delta_log/{version:020d}.json" for version in range(3)
    ]


# -- run


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_daemon_mirrors_until_a_signal_and_ends_cleanly(
    environment: dict[str, str], orders: Managed, number: signal.Signals
) -> None:
    with Daemon(environment, "--json") as daemon:
        wait_until(lambda: orders.folder.exists() and len(orders.commits_on_disk()) == 3)
        orders.append(2)
        wait_until(lambda: len(orders.commits_on_disk()) == 5)
        code, out, errors = daemon.stop(number)
    assert code == 0, errors
    assert "Traceback" not in errors
    reported = [json.loads(line) for line in out.splitlines()]
    assert reported[-1]["to_version"] == 4
    assert orders.head.mirrored_version == 4


def test_the_daemon_ends_in_the_middle_of_a_long_pass_after_the_file_at_hand(
    environment: dict[str, str], orders: Managed
) -> None:
    for _ in range(4):
        orders.commit(*(adds(f"{orders.head.current_version}-{n}") for n in range(100)))
    with Daemon(environment) as daemon:
        wait_until(lambda: orders.folder.exists() and len(orders.commits_on_disk()) > 5)
        code, _, errors = daemon.stop()
    assert code == 0, errors
    names = sorted(orders.commits_on_disk())
    assert names == [f"{version:020d}.json" for version in range(len(names))]
    assert orders.head.mirrored_version == len(names) - 1
    assert orders.failures() == []


def test_a_bad_table_backs_off_and_does_not_stop_the_others(
    environment: dict[str, str], orders: Managed, store: Store, tmp_path: Path
) -> None:
    other, _ = Managed.create(store, tmp_path / "lake" / "other", "other")
    blocked = in_the_way(orders)
    with Daemon({**environment, "DL_MIRROR_RETRY_BACKOFF": "0.2"}, "--workers", "1") as daemon:
        wait_until(lambda: bool(orders.failures()) and orders.failures()[0]["attempts"] >= 2)
        other.append(3)
        wait_until(lambda: len(other.commits_on_disk()) == 4)
        blocked.unlink()
        wait_until(lambda: orders.folder.exists() and len(orders.commits_on_disk()) == 3)
        code, _, errors = daemon.stop()
    assert code == 0
    assert "warning: sales.orders: " in errors
    assert orders.failures() == []


def test_a_lag_past_the_threshold_runs_the_alert_command_once(
    environment: dict[str, str], orders: Managed, tmp_path: Path
) -> None:
    in_the_way(orders)
    told = tmp_path / "told"
    settings = {
        "DL_MIRROR_ALERT_AFTER": "0.3",
        "DL_MIRROR_ALERT_COMMAND": f'echo "$DL_ALERT_KIND $DL_ALERT_TABLE $DL_ALERT_VERSION $DL_ALERT_ERROR" >> {told}',
        "DL_MIRROR_RETRY_BACKOFF": "0.2",
    }
    with Daemon({**environment, **settings}) as daemon:
        wait_until(told.exists)
        time.sleep(0.6)
        code, _, errors = daemon.stop()
    assert code == 0, errors
    (line,) = told.read_text().splitlines()
    assert line.startswith("mirror_lag sales.orders 0 ")
    assert "_delta_log" in line


def test_the_daemon_makes_checkpoints_that_writers_left_undone(environment: dict[str, str], orders: Managed) -> None:
    orders.append(8)
    with orders.engine(mirror_checkpoint_interval=1_000) as engine:
        assert engine.mirror_table(orders.row).to_version == 10
    assert not list(orders.folder.glob("*.checkpoint.parquet"))
    with Daemon(environment) as daemon:
        wait_until(lambda: (orders.folder / "_last_checkpoint").exists())
        assert daemon.stop()[0] == 0
    assert (orders.folder / "00000000000000000010.checkpoint.parquet").exists()
