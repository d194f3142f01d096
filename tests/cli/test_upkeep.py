"""`dl optimize`, `dl vacuum` and `dl restore`: what they do, what they print, and that --dry-run does nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import deltalakedb
from tests.cli.conftest import Dl


@pytest.fixture
def items(catalog: str, dl: Dl, tmp_path: Path) -> Path:
    """The managed table sales.items of four small files in two partitions, at version 3; its folder."""
    assert dl is not None
    with deltalakedb.connect(catalog, warehouse=str(tmp_path / "warehouse")) as cat:
        cat.create_table("sales.items", "id long, day string", ["day"])
        for number in range(2):
            with cat.begin() as tx:
                rows = pa.table({"id": [number, 10 + number], "day": ["mo", "tu"]})
                tx.write("sales.items", rows, mode="append")
    return tmp_path / "warehouse" / "sales" / "items"


def data_files(table: Path) -> set[str]:
    return {str(path.relative_to(table)) for path in table.rglob("*.parquet") if "_delta_log" not in path.parts}


def newest(dl: Dl) -> int:
    version: int = json.loads(dl("show", "sales.items", "--json").stdout)["version"]
    return version


def test_optimize_puts_small_files_together(dl: Dl, items: Path) -> None:
    would = dl("optimize", "sales.items", "--dry-run", "--json")
    assert would.exit_code == 0, would.stderr
    assert (json.loads(would.stdout)["numFilesRemoved"], newest(dl)) == (4, 2)
    assert len(data_files(items)) == 4, "a dry run leaves no file behind"
    done = dl("optimize", "sales.items")
    assert done.exit_code == 0, done.stderr
    assert (done.stdout.strip(), newest(dl)) == ("sales.items: 4 files became 2", 3)


@pytest.mark.usefixtures("items")
def test_optimize_takes_partitions_and_columns(dl: Dl) -> None:
    done = json.loads(dl("optimize", "sales.items", "--partition", "day=mo", "--zorder", "id", "--json").stdout)
    assert (done["numFilesRemoved"], done["numFilesAdded"], done["plannerStrategy"]) == (2, 1, "zOrder")
    assert dl("optimize", "sales.items", "--partition", "day").exit_code == 2
    wrong = dl("optimize", "sales.items", "--zorder", "nosuch")
    assert wrong.exit_code == 1
    assert "not found in schema of table" in wrong.stderr


def test_vacuum_deletes_what_no_kept_version_needs(dl: Dl, items: Path) -> None:
    before = data_files(items)
    assert dl("optimize", "sales.items").exit_code == 0
    refused = dl("vacuum", "sales.items", "--retention-hours", "0")
    assert (refused.exit_code, "greater than 168 hours" in refused.stderr) == (1, True)
    free = ("--retention-hours", "0", "--no-retention-check")
    would = dl("vacuum", "sales.items", *free, "--dry-run", "--json")
    assert set(json.loads(would.stdout)["files"]) == before <= data_files(items)
    kept = dl("vacuum", "sales.items", *free, "--keep-version", "1", "--dry-run", "--json")
    assert len(json.loads(kept.stdout)["files"]) == 2
    done = dl("vacuum", "sales.items", *free)
    assert done.exit_code == 0, done.stderr
    assert "4 files of sales.items are deleted" in done.stderr
    assert not before & data_files(items)
    assert len(data_files(items)) == 2


def test_vacuum_full_takes_files_that_no_commit_names(dl: Dl, items: Path) -> None:
    (items / "left.parquet").write_bytes(b"half a file")
    free = ("--retention-hours", "0", "--no-retention-check", "--dry-run", "--json")
    assert json.loads(dl("vacuum", "sales.items", *free).stdout)["files"] == []
    assert json.loads(dl("vacuum", "sales.items", *free, "--full").stdout)["files"] == ["left.parquet"]


@pytest.mark.usefixtures("items")
def test_restore_goes_back_to_a_version(dl: Dl) -> None:
    would = json.loads(dl("restore", "sales.items", "--to", "1", "--dry-run", "--json").stdout)
    assert (would["numRemovedFile"], would["numRestoredFile"], newest(dl)) == (2, 0, 2)
    done = dl("restore", "sales.items", "--to", "1")
    assert done.exit_code == 0, done.stderr
    assert "is restored as version 3" in done.stdout
    assert newest(dl) == 3
    assert dl("restore", "sales.items", "--to", "yesterday").exit_code == 2
    assert dl("restore", "sales.items", "--to", "99").exit_code == 1
