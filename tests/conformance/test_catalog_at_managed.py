"""The catalog at one instant, over tables it manages: never half a transaction, and once read never changing."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import deltalake
import pytest

from deltalakedb import Catalog
from deltalakedb.exceptions import DeltaError, TableNotFoundError
from deltalakedb.log.protocol.actions import AppTransaction
from tests.conformance.transacting import ids_of, numbers, open_catalog
from tests.fixtures.sizes import sized

LOOKS = sized(12, 400)
"""How often two tables are looked at while others move them."""
PAUSE_SECONDS = sized(0.02, 0.0)
"""Between two moves of a writer."""


@pytest.fixture
def catalog(target: str, tmp_path: Path) -> Iterator[Catalog]:
    with open_catalog(target, tmp_path, mirror_mode="off") as opened:
        yield opened


def now_ms(catalog: Catalog) -> int:
    """An instant that has surely begun and ended before whatever comes next."""
    time.sleep(0.005)
    with catalog.store.read() as conn:
        at_ms = conn.now_ms()
    time.sleep(0.005)
    return at_ms


def times_of(catalog: Catalog, name: str) -> list[tuple[int, int]]:
    """Each version's transaction time and own time."""
    rows = catalog.sql(
        "select v.version, x.committed_at_ms as t, v.committed_at_ms as own from dl_table_versions v "
        "join dl_transactions x on x.txn_id = v.txn_id join dl_tables r on r.table_id = v.table_id "
        f"where r.name = '{name}' and r.until_ms = 9223372036854775807 order by v.version"
    ).to_pylist()
    return [(row["t"], row["own"]) for row in rows]


def test_every_version_of_a_transaction_belongs_to_its_instant(catalog: Catalog) -> None:
    """Several versions of one table get times of their own, one after the other; the transaction has one time."""
    with catalog.begin() as tx:
        for number in range(5):
            tx.write("t", numbers(number), mode="append")
    ((first, _), *_, (last, own)) = times_of(catalog, "t")
    assert first == last
    assert own == last + 4, "the fifth version's own time lies after the transaction"
    assert catalog.at(last).table("t").version() == 4
    assert catalog.at(tx.txn_id).table("t").version() == 4
    assert ids_of(catalog.at(last).table("t")) == [0, 1, 2, 3, 4]
    with pytest.raises(TableNotFoundError, match=r"there was no table default\.t"):
        catalog.at(last - 1).table("t")


def test_the_catalog_can_be_seen_after_each_of_its_transactions(catalog: Catalog) -> None:
    made = []
    for number in range(4):
        with catalog.begin() as tx:
            tx.write("a", numbers(number), mode="append")
            if number % 2:
                tx.write("b", numbers(number), mode="append")
        made.append(tx.txn_id)
    seen = []
    for txn_id in made:
        view = catalog.at(txn_id)
        seen.append({name: view.table(name).version() for name in view.tables()})
    assert seen == [
        {"default.a": 0},
        {"default.a": 1, "default.b": 0},
        {"default.a": 2, "default.b": 0},
        {"default.a": 3, "default.b": 1},
    ]


def test_names_and_drops_are_those_of_the_instant(catalog: Catalog) -> None:
    catalog.create_table("a", "id long")
    created = now_ms(catalog)
    catalog.rename_table("a", "b")
    renamed = now_ms(catalog)
    with catalog.begin() as tx:
        tx.drop_table("b")
        tx.create_table("a", "id long, note string")
    assert catalog.at(created).tables() == ["default.a"]
    assert catalog.at(created).table("a").schema().names == ("id",)
    assert catalog.at(renamed).tables() == ["default.b"]
    assert catalog.at(renamed).table("b").version() == 1
    assert catalog.at(tx.txn_id).tables() == ["default.a"]
    assert catalog.at(tx.txn_id).table("a").schema().names == ("id", "note")


def test_versions_from_before_a_promotion_resolve_by_their_own_times(catalog: Catalog, tmp_path: Path) -> None:
    import os

    place = tmp_path / "old"
    for number in range(3):
        deltalake.write_deltalake(place, numbers(number), mode="append")
    past = datetime(2020, 1, 1, tzinfo=UTC)
    for number in range(3):
        file = place / "_delta_log" / f"{number:020}.json"
        moment = (past + timedelta(days=number)).timestamp()
        os.utime(file, (moment, moment))
    catalog.import_table(place, "t")
    with catalog.begin() as tx:
        tx.write("t", numbers(9), mode="append")
    table = catalog.at(tx.txn_id).table("t")
    assert table.version() == 4
    # The registry did not know the table in 2020: names are those of the instant.
    with pytest.raises(TableNotFoundError):
        catalog.at(past).table("t")


def test_times_in_the_future_of_one_table_do_not_hide_its_new_versions(catalog: Catalog, tmp_path: Path) -> None:
    """A table written by a machine whose clock was ahead: its own times run on from there, transactions' do not."""
    import os

    place = tmp_path / "ahead"
    deltalake.write_deltalake(place, numbers(1))
    ahead = time.time() + 3600
    os.utime(place / "_delta_log" / f"{0:020}.json", (ahead, ahead))
    catalog.import_table(place, "t")
    for number in range(2, 5):
        with catalog.begin() as tx:
            tx.write("t", numbers(number), mode="append")
    (promoted, own), *_ = times_of(catalog, "t")[-3:]
    assert own > promoted + 3_000_000
    assert ids_of(catalog.at(tx.txn_id).table("t")) == [1, 2, 3, 4]
    assert ids_of(catalog.at(promoted).table("t")) == [1, 2]


def test_the_future_is_not_known_yet(catalog: Catalog) -> None:
    with pytest.raises(DeltaError, match="future"):
        catalog.at(datetime.now(UTC) + timedelta(hours=1))


def test_tables_that_move_together_are_never_seen_apart(target: str, tmp_path: Path, catalog: Catalog) -> None:
    """Two writers raise both counters by the same; a transaction, and the catalog at any instant, see them equal."""
    with catalog.begin() as tx:
        for name in ("a", "b"):
            tx.create_table(name, "id long")
            tx.commit_actions(name, [AppTransaction("amount", 500)])
    stop = threading.Event()
    failures: list[str] = []
    moves = [0, 0]

    def move(number: int) -> None:
        chance = random.Random(number)
        with open_catalog(target, tmp_path, mirror_mode="off") as mine:
            while not stop.is_set():
                try:
                    with mine.begin() as tx:
                        step = chance.randint(1, 9)
                        for name in ("a", "b"):
                            now = tx.table(name).transaction_version("amount") or 0
                            tx.commit_actions(name, [AppTransaction("amount", now + step)])
                    moves[number] += 1
                    stop.wait(PAUSE_SECONDS)
                except DeltaError as error:
                    if "amount" not in str(error) and "locked" not in str(error):
                        failures.append(repr(error))

    def difference(view: object) -> int:
        a, b = (view.table(name).transaction_version("amount") for name in ("a", "b"))  # type: ignore[attr-defined]
        return int(a) - int(b)

    writers = [threading.Thread(target=move, args=(number,)) for number in range(2)]
    for writer in writers:
        writer.start()
    seen: dict[int, tuple[int, int]] = {}
    end = time.monotonic() + 120
    looks = 0
    while (looks < LOOKS or min(moves) < 3) and time.monotonic() < end:
        looks += 1
        with catalog.begin() as tx:
            assert difference(tx) == 0, "a transaction sees one cut"
        at_ms = time.time_ns() // 1_000_000 - random.randint(0, 300)
        view = catalog.at(at_ms)
        if len(view.tables()) == 2:
            assert difference(view) == 0, "an instant shows no half of a transaction"
            versions = view.table("a").version(), view.table("b").version()
            assert seen.setdefault(at_ms, versions) == versions
    stop.set()
    for writer in writers:
        writer.join(30)
    assert failures == []
    assert min(moves) >= 3, "both writers came to write"
    for at_ms, versions in seen.items():
        view = catalog.at(at_ms)
        assert (view.table("a").version(), view.table("b").version()) == versions, "an instant once read never changes"
