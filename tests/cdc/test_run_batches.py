"""The commit of a batch: both layers of all tables in one transaction, once, or nothing at all."""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from deltalakedb.cdc.apply.batches import commit_progress, reload_capture
from deltalakedb.cdc.captured_table import TableTroubleError
from deltalakedb.cdc.decode.reading import FileWritten, PartRead, TaskFailed
from deltalakedb.cdc.source.peek import RelationChanged
from deltalakedb.cdc.source.postgres import flush_lsn
from deltalakedb.cdc.source.slots import advance_slot, drop_slot
from deltalakedb.exceptions import CaptureError
from deltalakedb.runtime import steps
from tests.cdc.conftest import Lake, Source
from tests.cdc.taking import Taking, create_shop, taking


@pytest.fixture
def shop(lake: Lake, source: Source) -> Iterator[Taking]:
    create_shop(source)
    with taking(lake, source) as capture:
        yield capture


def files_of(lake: Lake) -> set[Path]:
    return set(lake.warehouse.rglob("*.parquet")) - set(lake.warehouse.rglob("_delta_log/**/*.parquet"))


def test_both_layers_of_all_tables_and_the_progress_are_one_transaction(source: Source, shop: Taking) -> None:
    source.run(
        "insert into orders values (1, 'one', 1.5), (2, 'two', 2.5)",
        "insert into items values (1, 1, 'first')",
        "update orders set name = 'deux' where id = 2",
        "delete from orders where id = 1",
    )
    done = shop.take()
    assert shop.rows("lake.orders") == [{"id": 2, "name": "deux", "amount": Decimal("2.50")}]
    assert shop.rows("lake.items") == [{"id": 1, "order_id": 1, "note": "first"}]
    assert [row["_op"] for row in shop.rows("lake.orders_changes")] == ["insert", "insert", "update", "delete"]
    assert done.applied["public.items"].inserted == 1
    names = ("lake.orders", "lake.orders_changes", "lake.items", "lake.items_changes", done.capture.control)
    found = shop.lake.catalog.sql("select txn_id from dl_table_versions order by committed_at_ms desc limit 5")
    assert len(set(found["txn_id"].to_pylist())) == 1, "five versions of five tables, and one transaction"
    for name in names:
        assert shop.lake.catalog.table(name).transaction_version(done.capture.app_id) == done.capture.lsn


def test_a_batch_is_put_on_top_of_what_others_did_to_the_table_meanwhile(source: Source, shop: Taking) -> None:
    source.run("insert into orders select i, 'row', 1 from generate_series(1, 50) i")
    shop.take()
    source.run("insert into orders select i, 'row', 1 from generate_series(51, 100) i")
    shop.take()
    source.run("update orders set name = 'new' where id % 10 = 0", "delete from orders where id = 5")
    compacted: list[dict[str, Any]] = []

    def compact(step: str) -> None:
        if step == "cdc.applied" and not compacted:
            compacted.append(shop.lake.catalog.table("lake.orders").optimize.compact())

    steps.observe(compact)
    before = files_of(shop.lake)
    shop.take()
    assert compacted, "the compaction came between"
    assert compacted[0]["numFilesRemoved"] > 1
    rows = {row["id"]: row["name"] for row in shop.rows("lake.orders")}
    assert len(rows) == 99
    assert sorted(key for key, name in rows.items() if name == "new") == list(range(10, 101, 10))
    live = {Path(uri) for name in ("lake.orders", "lake.orders_changes") for uri in _uris(shop, name)}
    assert files_of(shop.lake) - before <= live, "nothing is left of the attempt that lost"


def _uris(shop: Taking, name: str) -> list[str]:
    return [uri.removeprefix("file://") for uri in shop.lake.catalog.table(name).file_uris()]


def test_a_batch_that_cannot_commit_leaves_no_file_and_no_progress(source: Source, shop: Taking) -> None:
    source.run("insert into orders values (1, 'one', 1)", "insert into items values (1, 1, 'first')")
    before, at = files_of(shop.lake), shop.capture.lsn
    end = flush_lsn(shop.conn)
    read = shop.read(end=end)
    assert len(files_of(shop.lake) - before) == 2
    shop.lake.catalog.drop_table("lake.items")
    with pytest.raises(TableTroubleError, match="lake.items is gone from the lake") as told:
        shop.commit(read, end)
    assert told.value.source == "public.items"
    assert files_of(shop.lake) == before
    assert reload_capture(shop.lake.catalog, shop.settings).lsn == at
    assert shop.rows("lake.orders") == []


def test_a_second_runner_is_refused_at_the_latest_by_the_commit(source: Source, shop: Taking) -> None:
    source.run("insert into orders values (1, 'one', 1)")
    before, end = files_of(shop.lake), flush_lsn(shop.conn)
    read = shop.read(end=end)
    commit_progress(shop.lake.catalog, shop.capture, end)  # by somebody else, who has captured the same
    with pytest.raises(CaptureError, match="another process runs it"):
        shop.commit(read, end)
    assert files_of(shop.lake) == before
    assert shop.rows("lake.orders") == []


def test_a_prepared_transaction_arrives_once_when_it_is_committed_for_good(source: Source, shop: Taking) -> None:
    source.run(
        "begin; insert into orders values (1, 'kept', 1); insert into items values (1, 1, 'kept'); "
        "prepare transaction 'kept'",
        "begin; insert into orders values (2, 'given up', 1); prepare transaction 'given up'",
        "insert into orders values (3, 'between', 1)",
    )
    shop.take()
    advance_slot(shop.conn, shop.settings.slot, shop.capture.lsn)
    assert [row["id"] for row in shop.rows("lake.orders")] == [3], "what is prepared may still be given up"
    source.run("rollback prepared 'given up'", "commit prepared 'kept'", "update orders set amount = 2 where id = 1")
    done = shop.take()
    assert {name: one.inserted for name, one in done.applied.items()} == {"public.orders": 1, "public.items": 1}
    assert shop.rows("lake.items") == [{"id": 1, "order_id": 1, "note": "kept"}]
    changes = sorted(shop.rows("lake.orders_changes"), key=lambda row: row["_lsn"])
    assert [(row["_op"], row["after"]["id"]) for row in changes] == [("insert", 3), ("insert", 1), ("update", 1)]
    (item,) = shop.rows("lake.items_changes")
    assert (item["_lsn"], item["_xid"]) == (changes[1]["_lsn"], changes[1]["_xid"]), "one transaction"


def test_a_range_without_changes_has_only_its_end_to_tell(source: Source, shop: Taking) -> None:
    source.run("create table aside (id int)", "select pg_logical_emit_message(true, 'x', 'y')")
    end = flush_lsn(shop.conn)
    told = shop.read(end=end)
    assert [type(one) for one in told] == [PartRead]
    assert (told[0].start, told[0].end) == (shop.capture.lsn, end)  # type: ignore[union-attr]  # the one description there is, of a part
    noted = commit_progress(shop.lake.catalog, shop.capture, end)
    assert reload_capture(shop.lake.catalog, shop.settings) == noted
    assert noted.lsn == end


def test_of_a_range_in_which_a_table_changes_no_file_is_left(source: Source, shop: Taking) -> None:
    source.run(
        "insert into orders values (1, 'one', 1)",
        "insert into items values (1, 1, 'first')",
        "alter table orders add column more int",
        "insert into orders values (2, 'two', 2, 2)",
    )
    before = files_of(shop.lake)
    told = shop.read()
    changed = [one for one in told if isinstance(one, RelationChanged)]
    assert [one.source for one in changed] == ["public.orders"]
    assert not [one for one in told if isinstance(one, FileWritten)]
    assert files_of(shop.lake) == before
    earlier = [one for one in shop.read(end=changed[0].lsn) if isinstance(one, FileWritten)]
    assert {one.source: dict(one.counts) for one in earlier} == {
        "public.orders": {"insert": 1},
        "public.items": {"insert": 1},
    }


def test_a_task_tells_why_it_failed(source: Source, shop: Taking) -> None:
    source.run("insert into orders values (1, 'one', 1)")
    drop_slot(shop.conn, shop.settings.slot)
    (told,) = shop.read()
    assert isinstance(told, TaskFailed)
    assert told.error == "SlotLostError"
