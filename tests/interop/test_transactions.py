"""A transaction over several tables, seen by readers who look at one table at a time."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

import deltalakedb as dl
from tests.fixtures.readers import Reader, Reading, sort_rows
from tests.interop.conftest import open_all
from tests.interop.maker import numbers

pytestmark = pytest.mark.spark


def test_all_tables_of_a_transaction_are_there_when_it_returns(
    lake: tuple[Path, dl.Catalog], readers: Mapping[str, Reader]
) -> None:
    root, catalog = lake
    paths = {name: root / "lake" / name for name in ("orders", "customers")}
    with catalog.begin() as tx:
        tx.write("orders", numbers(1), location=paths["orders"])
        tx.write("customers", numbers(10), location=paths["customers"])
    with catalog.begin(message="both") as tx:
        tx.write("orders", numbers(2), mode="append")
        tx.write("customers", numbers(11), mode="overwrite")
        tx.write("orders", numbers(3), mode="append")
    assert tx.result == {"default.orders": 2, "default.customers": 1}
    expected = {"orders": (2, numbers(1, 2, 3)), "customers": (1, numbers(11))}
    for table, (version, rows) in expected.items():
        for name, seen in open_all(readers, paths[table]).items():
            assert isinstance(seen, Reading), f"{name}: {seen}"
            assert seen.version in (version, None)
            assert sort_rows(seen.rows, rows.schema).equals(sort_rows(rows)), name
        assert _participants(paths[table], version) == {("orders", 1), ("orders", 2), ("customers", 1)}


def _participants(path: Path, version: int) -> set[tuple[str, int]]:
    """What a reader of the files can learn of the transaction, the tables by the ends of their locations."""
    lines = (path / "_delta_log" / f"{version:020}.json").read_text().splitlines()
    info = next(json.loads(line)["commitInfo"] for line in lines if "commitInfo" in line)
    names = {_own_id(path.parent / name): name for name in ("orders", "customers")}
    return {(names[member["tableId"]], member["version"]) for member in info["deltalakedb"]["participants"]}


def _own_id(path: Path) -> int:
    first = (path / "_delta_log" / f"{0:020}.json").read_text().splitlines()
    info = next(json.loads(line)["commitInfo"] for line in first if "commitInfo" in line)
    return int(info["deltalakedb"]["tableId"])
