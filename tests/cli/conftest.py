"""A small real table, a catalog that follows it, and `dl` run in this process."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake
from typer.testing import CliRunner, Result

import deltalakedb
from deltalakedb.cli import app

Dl = Callable[..., Result]
MIGRATIONS = {
    int(file.name[:4]): file.name[5:].removesuffix(".up.sql")
    for file in sorted(Path(deltalakedb.__file__).parent.glob("store/sql/migrations/*.up.sql"))
}
"""The name of each migration by its number."""


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither this machine's configuration file nor its variables may decide a test."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no-config"))
    for name in ("DL_CATALOG", "DL_CONFIG", "DL_JSON", "DL_DEBUG"):
        monkeypatch.delenv(name, raising=False)


def rows(first: int, last: int) -> pa.Table:
    ids = list(range(first, last + 1))
    return pa.table({"id": ids, "day": [f"2026-01-{1 + n % 3:02d}" for n in ids], "amount": [n * 1.5 for n in ids]})


@pytest.fixture(scope="session")
def _orders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    table = tmp_path_factory.mktemp("made") / "orders"
    write_deltalake(str(table), rows(1, 30), partition_by=["day"], description="what was ordered")
    progress = CommitProperties(app_transactions=[Transaction("loader", 7)])
    write_deltalake(str(table), rows(31, 60), mode="append", commit_properties=progress)
    write_deltalake(str(table), rows(61, 90), mode="append")
    return table


@pytest.fixture
def lake(_orders: Path, tmp_path: Path) -> Path:
    """A folder with a table of three versions, partitioned by day."""
    return Path(shutil.copytree(_orders, tmp_path / "lake" / "orders"))


@pytest.fixture
def catalog(tmp_path: Path) -> str:
    return str(tmp_path / "catalog.db")


@pytest.fixture
def dl(catalog: str, monkeypatch: pytest.MonkeyPatch) -> Dl:
    """Runs `dl` with arguments; stdout and stderr are kept apart."""
    monkeypatch.setenv("DL_CATALOG", catalog)

    def run(*arguments: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(app, [*arguments], input=stdin, prog_name="dl")

    return run


@pytest.fixture
def attached(dl: Dl, lake: Path) -> Path:
    """The table, followed as sales.orders."""
    result = dl("attach", str(lake), "--as", "sales.orders")
    assert result.exit_code == 0, result.stderr
    return lake
