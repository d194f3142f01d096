"""`dl` as a process of its own: signals, pipes, completion, and how long it takes to start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import deltalake
import pytest

from tests.cli.conftest import Dl, rows

DL = [sys.executable, "-c", "from deltalakedb.cli import main; main()"]


@pytest.fixture
def environment(catalog: str, tmp_path: Path) -> dict[str, str]:
    source = Path(__file__).parents[2] / "src"
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("DL_", "PYTHONUNBUFFERED"))}
    return {**kept, "DL_CATALOG": catalog, "PYTHONPATH": str(source), "XDG_CONFIG_HOME": str(tmp_path / "no-config")}


def _run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*DL, *arguments], env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_follow_goes_on_until_a_signal_and_then_ends_cleanly(
    environment: dict[str, str], attached: Path, number: signal.Signals
) -> None:
    command = [*DL, "follow", "--interval", "0.2", "--json"]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        deltalake.write_deltalake(str(attached), rows(91, 93), mode="append")
        assert process.stdout is not None
        line = process.stdout.readline()
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert '"to_version": 3' in line
    assert process.returncode == 0, errors
    assert "Traceback" not in errors


def test_a_follower_that_cannot_be_read_is_reported_and_tried_again(
    environment: dict[str, str], attached: Path
) -> None:
    log = attached / "_delta_log"
    log.rename(attached / "away")
    command = [*DL, "follow", "--interval", "0.2"]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        assert process.stderr.readline().startswith("error: ")
        (attached / "away").rename(log)
        deltalake.write_deltalake(str(attached), rows(91, 93), mode="append")
        assert "version 2 -> 3" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 0


@pytest.mark.usefixtures("attached")
def test_a_reader_that_leaves_early_is_no_error(environment: dict[str, str]) -> None:
    many = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 200000) select i from n"
    with subprocess.Popen(
        [*DL, "sql", many], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "i\n"
        process.stdout.close()
        errors = process.stderr.read()
    assert errors == ""
    assert process.returncode == 0


@pytest.mark.parametrize(("module", "engine", "extra"), [("psycopg", "postgres", "postgres")])
def test_a_missing_driver_says_what_to_install(
    environment: dict[str, str], module: str, engine: str, extra: str
) -> None:
    code = f"import sys; sys.modules[{module!r}] = None; from deltalakedb.cli import main; main()"
    command = [sys.executable, "-c", code, "tables", "--catalog", f"deltasql://{engine}/lake"]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert found.returncode == 1
    assert f"pip install 'deltalakedb[{extra}]'" in found.stderr
    assert found.stderr.count("\n") == 1


def test_completion_can_be_shown(environment: dict[str, str]) -> None:
    shown = _run({**environment, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}, "--show-completion", "bash")
    assert shown.returncode == 0
    assert "_DL_COMPLETE" in shown.stdout


def test_importing_the_package_loads_no_database_and_no_arrow(environment: dict[str, str]) -> None:
    heavy = "{'pyarrow', 'duckdb', 'sqlglot', 'numpy', 'psycopg', 'obstore', 'rich', 'typer'}"
    code = f"import sys, deltalakedb; print(sorted({heavy} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_help_loads_no_database_and_no_arrow(environment: dict[str, str]) -> None:
    heavy = "{'pyarrow', 'duckdb', 'sqlglot', 'numpy', 'psycopg', 'obstore'}"
    code = f"import sys, deltalakedb.cli; print(sorted({heavy} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_followers_at_once_take_every_commit_once(environment: dict[str, str], attached: Path, dl: Dl) -> None:
    for first in range(100, 110):
        deltalake.write_deltalake(str(attached), rows(first, first), mode="append")
    started = [subprocess.Popen([*DL, "follow"], env=environment, stdout=subprocess.DEVNULL) for _ in range(3)]
    deadline = time.monotonic() + 120
    assert [process.wait(timeout=max(1, deadline - time.monotonic())) for process in started] == [0, 0, 0]
    versions = dl("sql", "select count(*) as n, max(version) as v from dl_table_versions").stdout
    assert versions == "n\tv\n13\t12\n"
    assert dl("validate", "--all").exit_code == 0


def test_the_package_is_the_command(environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "deltalakedb.cli", "--version"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.split()[0]) == (0, "deltalakedb")
