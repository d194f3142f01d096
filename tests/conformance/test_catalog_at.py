"""The catalog at one instant: names as they were, each table at the version it had."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

import deltalakedb
from deltalakedb import Catalog
from deltalakedb.exceptions import DeltaError, TableNotFoundError, VersionNotFoundError


@pytest.fixture
def catalog(target: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalog]:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nonexistent")
    with deltalakedb.connect(target) as opened:
        yield opened


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    path = tmp_path / "orders"
    deltalake.write_deltalake(path, pa.table({"id": [1]}))
    return path


def append(path: Path) -> None:
    deltalake.write_deltalake(path, pa.table({"id": [1]}), mode="append")


def now_ms(catalog: Catalog) -> int:
    """An instant that has surely begun and ended before whatever comes next."""
    time.sleep(0.005)
    with catalog.store.read() as conn:
        at_ms = conn.now_ms()
    time.sleep(0.005)
    return at_ms


def test_names_are_those_of_the_instant(catalog: Catalog, orders: Path) -> None:
    before = now_ms(catalog)
    catalog.attach_table(orders, "sales.orders")
    attached = now_ms(catalog)
    catalog.rename_table("sales.orders", "sales.bestellungen")
    renamed = now_ms(catalog)
    catalog.drop_table("sales.bestellungen")
    dropped = now_ms(catalog)
    assert catalog.at(before).tables() == []
    assert catalog.at(before).namespaces() == ["default"]
    assert catalog.at(attached).tables() == ["sales.orders"]
    assert catalog.at(attached).namespaces() == ["default", "sales"]
    assert catalog.at(renamed).tables() == ["sales.bestellungen"]
    assert catalog.at(dropped).tables() == []
    assert catalog.at(attached).table("Sales.Orders").version() == 0
    assert catalog.at(renamed).table("sales.bestellungen").count() == 1
    with pytest.raises(TableNotFoundError, match=r"there was no table sales\.orders at 20"):
        catalog.at(renamed).table("sales.orders")


def test_a_follower_is_at_the_version_its_own_timestamps_say(catalog: Catalog, orders: Path) -> None:
    catalog.attach_table(orders, "sales.orders")
    instants = [now_ms(catalog)]
    for _ in range(3):
        append(orders)
        instants.append(now_ms(catalog))
    catalog.follow()
    assert [catalog.at(instant).table("sales.orders").version() for instant in instants] == [0, 1, 2, 3]
    older = catalog.at(instants[1]).table("sales.orders")
    assert older.files().num_rows == 2
    assert [entry["version"] for entry in older.history()] == [1, 0]


def test_two_tables_are_seen_at_the_same_instant(catalog: Catalog, orders: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    deltalake.write_deltalake(other, pa.table({"id": [1]}))
    catalog.attach_table(orders, "a")
    catalog.attach_table(other, "b")
    append(orders)
    between = now_ms(catalog)
    append(other)
    catalog.follow()
    view = catalog.at(between)
    assert (view.table("a").version(), view.table("b").version()) == (1, 0)


def test_an_instant_may_be_a_datetime_or_a_text(catalog: Catalog, orders: Path) -> None:
    catalog.attach_table(orders, "sales.orders")
    moment = datetime.fromtimestamp(now_ms(catalog) / 1000, UTC)
    assert catalog.at(moment).tables() == ["sales.orders"]
    assert catalog.at(moment.replace(tzinfo=None)).tables() == ["sales.orders"], "UTC without a zone"
    assert catalog.at(moment.isoformat()).tables() == ["sales.orders"]
    assert catalog.at(moment.astimezone().isoformat()).tables() == ["sales.orders"]
    assert catalog.at(moment - timedelta(days=1)).tables() == []


def test_an_instant_may_be_a_transaction(catalog: Catalog, orders: Path) -> None:
    catalog.attach_table(orders, "sales.orders")
    committed = now_ms(catalog)
    with catalog.store.write() as conn:
        row = {"txn_id": "tx-1", "client_token": "token", "committed_at_ms": committed, "actor": "ann", "message": None}
        conn.insert("dl_transactions", pa.Table.from_pylist([row]))
    catalog.drop_table("sales.orders")
    view = catalog.at("tx-1")
    assert (view.at_ms, view.tables()) == (committed, ["sales.orders"])
    with pytest.raises(DeltaError, match="neither a transaction id"):
        catalog.at("tx-2")


def test_the_future_is_not_known_yet(catalog: Catalog) -> None:
    with pytest.raises(DeltaError, match="future"):
        catalog.at(datetime(2999, 1, 1, tzinfo=UTC))
    begun = time.monotonic()
    catalog.at(now_ms(catalog) + 300)
    assert time.monotonic() - begun >= 0.2, "an instant about to come is waited for"


def test_before_the_history_that_was_kept_it_says_so(catalog: Catalog, orders: Path) -> None:
    append(orders)
    deltalake.DeltaTable(orders).create_checkpoint()
    future = time.time() + 3600
    for file in (orders / "_delta_log").iterdir():
        os.utime(file, (future, future))
    catalog.attach_table(orders, "sales.orders", history="latest")
    with pytest.raises(VersionNotFoundError, match=r"sales\.orders"):
        catalog.at(now_ms(catalog)).table("sales.orders")
