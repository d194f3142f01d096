"""Ranges of a real Postgres' log are read: every change once, in its order, whatever was done to the tables."""

import threading
from dataclasses import replace
from itertools import pairwise

import pytest
from psycopg.conninfo import make_conninfo

from deltalakedb.cdc.decode.messages import RelationColumn
from deltalakedb.cdc.source.peek import ChangeRows, RangeRead, RelationChanged, Stopped, read_changes
from deltalakedb.cdc.source.postgres import connect
from deltalakedb.exceptions import CaptureSetupError, ConfigError, SlotLostError, SourceUnavailableError
from tests.cdc.conftest import Source
from tests.cdc.peeking import Peeked, rows_of

ORDERS = "create table orders (id bigint primary key, note text)"


def slots_of(source: Source) -> int:
    ((count,),) = source.run("select count(*) from pg_replication_slots where database = current_database()")
    return int(count)


def test_inserts_updates_deletes_and_key_changes_come_in_their_order(source: Source) -> None:
    source.run(ORDERS)
    peeked = Peeked.begin(source)
    source.run(
        "insert into orders values (1, 'a'), (2, null)",
        "update orders set note = 'b' where id = 1",
        "update orders set id = 3 where id = 1",
        "delete from orders where id = 2",
    )
    events = peeked.read()
    rows = rows_of(events, "public.orders")
    assert [(row["_op"], row["_ordinal"], row["before"], row["after"]) for row in rows] == [
        ("insert", 0, None, {"id": 1, "note": "a"}),
        ("insert", 1, None, {"id": 2, "note": None}),
        ("update", 0, None, {"id": 1, "note": "b"}),
        ("update", 0, {"id": 1, "note": None}, {"id": 3, "note": "b"}),
        ("delete", 0, {"id": 2, "note": None}, None),
    ]
    assert len({row["_lsn"] for row in rows}) == 4
    assert rows == sorted(rows, key=lambda row: (row["_lsn"], row["_ordinal"]))
    assert peeked.start <= rows[0]["_lsn"]
    assert rows[-1]["_lsn"] < peeked.now()
    read = events[-1]
    assert isinstance(read, RangeRead)
    assert (read.transactions, read.changes, read.last_committed_at) == (4, 5, rows[-1]["_committed_at"])
    assert slots_of(source) == 1


def test_rolled_back_work_is_not_there_and_savepoints_keep_the_rest(source: Source) -> None:
    source.run(ORDERS)
    peeked = Peeked.begin(source)
    with source.connect(autocommit=False) as connection:
        connection.execute("insert into orders values (1, 'kept')")
        with connection.transaction(force_rollback=True):
            connection.execute("insert into orders values (2, 'lost')")
        connection.execute("insert into orders values (3, 'kept')")
        connection.commit()
        connection.execute("insert into orders values (4, 'lost')")
        connection.rollback()
    rows = peeked.rows("public.orders")
    assert [(row["after"]["id"], row["_ordinal"]) for row in rows] == [(1, 0), (3, 1)]
    assert len({row["_xid"] for row in rows}) == 1


def test_transactions_come_in_the_order_of_their_commits_and_what_has_no_rows_says_nothing(source: Source) -> None:
    source.run(ORDERS)
    peeked = Peeked.begin(source)
    with source.connect(autocommit=False) as first, source.connect(autocommit=False) as second:
        first.execute("insert into orders values (1, 'began first')")
        second.execute("insert into orders values (2, 'committed first')")
        second.execute("select pg_logical_emit_message(true, 'note', 'I am no row')")
        first.execute("insert into orders values (3, 'began first')")
        second.commit()
        first.commit()
    source.run("select pg_logical_emit_message(true, 'note', 'alone')", "create table later (id int primary key)")
    events = peeked.read()
    rows = rows_of(events, "public.orders")
    assert [(row["after"]["id"], row["_ordinal"]) for row in rows] == [(2, 0), (1, 0), (3, 1)]
    assert rows[0]["_committed_at"] <= rows[1]["_committed_at"] == rows[2]["_committed_at"]
    read = events[-1]
    assert isinstance(read, RangeRead)
    assert (read.transactions, read.changes) == (2, 3)


def test_full_rows_and_truncates_of_several_tables(source: Source) -> None:
    source.run(
        "create table lines (a int, b text)",
        "alter table lines replica identity full",
        ORDERS,
        "create table kept (id int primary key)",
    )
    peeked = Peeked.begin(source)
    source.run(
        "do $$ begin insert into lines values (1, 'x'), (1, 'x'); update lines set b = 'y'; "
        "truncate orders, lines, kept; insert into lines values (2, null); delete from lines; end $$"
    )
    wanted = [table for table in peeked.tables() if table.source != "public.kept"]
    events = peeked.read(wanted)
    lines = [(row["_op"], row["_ordinal"], row["before"], row["after"]) for row in rows_of(events, "public.lines")]
    assert lines == [
        ("insert", 0, None, {"a": 1, "b": "x"}),
        ("insert", 1, None, {"a": 1, "b": "x"}),
        ("update", 2, {"a": 1, "b": "x"}, {"a": 1, "b": "y"}),
        ("update", 3, {"a": 1, "b": "x"}, {"a": 1, "b": "y"}),
        ("truncate", 4, None, None),
        ("insert", 5, None, {"a": 2, "b": None}),
        ("delete", 6, {"a": 2, "b": None}, None),
    ]
    assert [(row["_op"], row["_ordinal"]) for row in rows_of(events, "public.orders")] == [("truncate", 4)]
    assert rows_of(events, "public.kept") == []


def test_large_values_that_an_update_leaves_alone(source: Source) -> None:
    body = "a1b2c3d4-" * 20_000
    source.run(
        "create table docs (id int primary key, title text, body text)",
        "create table fulls (id int primary key, title text, body text)",
        "alter table docs alter body set storage external",
        "alter table fulls alter body set storage external",
        "alter table fulls replica identity full",
    )
    peeked = Peeked.begin(source)
    with source.connect() as connection:
        for name in ("docs", "fulls"):
            connection.execute(f"insert into {name} values (1, 'first', %s)".encode(), [body])
            connection.execute(f"update {name} set title = 'second'".encode())
            connection.execute(f"update {name} set id = 2".encode())
            connection.execute(f"update {name} set body = null".encode())
    events = peeked.read()
    docs = [(row["_unchanged"], row["after"]["body"]) for row in rows_of(events, "public.docs")]
    assert docs == [(None, body), (["body"], None), (["body"], None), (None, None)]
    fulls = [(row["_unchanged"], row["after"]["body"]) for row in rows_of(events, "public.fulls")]
    assert fulls == [(None, body), (None, body), (None, body), (None, None)]


def test_any_cut_of_a_range_gives_every_change_once(source: Source) -> None:
    source.run(ORDERS)
    peeked = Peeked.begin(source)
    places = [peeked.start]
    for number in range(6):
        source.run(f"insert into orders select {number} * 10 + n, 'x' from generate_series(1, {number + 1}) n")
        places.append(peeked.now())
    tables, end = peeked.tables(), peeked.now()
    whole = rows_of(peeked.read(tables, end=end), "public.orders")
    assert len(whole) == 21
    commits = sorted({row["_lsn"] for row in whole})
    middles = [lsn + shift for lsn in commits[::2] for shift in (-1, 1, 9)]
    for cuts in ([], places[1:-1], commits, middles):
        edges = sorted({peeked.start, *cuts, end})
        parts = [
            row
            for first, last in pairwise(edges)
            for row in rows_of(peeked.read(tables, start=first, end=last), "public.orders")
        ]
        assert parts == whole
    assert peeked.read(tables, start=end, end=end) == [RangeRead(0, 0, 0, None)]


def test_ranges_are_read_side_by_side_while_the_slot_stays_where_it_is(source: Source) -> None:
    source.run(ORDERS)
    peeked = Peeked.begin(source)
    source.run("insert into orders select n, repeat('x', 100) from generate_series(1, 20000) n")
    middle = peeked.now()
    source.run("insert into orders select n, repeat('x', 100) from generate_series(20001, 40000) n")
    tables, end = peeked.tables(), peeked.now()
    found: dict[int, int] = {}

    def read(first: int, last: int) -> None:
        found[first] = len(rows_of(peeked.read(tables, start=first, end=last), "public.orders"))

    threads = [threading.Thread(target=read, args=part) for part in ((peeked.start, middle), (middle, end))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {peeked.start: 20000, middle: 20000}
    assert slots_of(source) == 1
    ((confirmed,),) = source.run("select confirmed_flush_lsn - '0/0' from pg_replication_slots")
    assert confirmed == peeked.start


def test_a_transaction_larger_than_a_batch_of_arrow_keeps_its_order(source: Source) -> None:
    source.run(ORDERS)
    peeked = Peeked.begin(source)
    source.run("insert into orders select n, repeat(md5(n::text), 30) from generate_series(1, 40000) n")
    events = peeked.read()
    assert sum(isinstance(event, ChangeRows) for event in events) > 1
    rows = rows_of(events, "public.orders")
    assert [row["_ordinal"] for row in rows] == list(range(40000))
    assert [row["after"]["id"] for row in rows] == list(range(1, 40001))


def test_a_reader_that_is_left_early_leaves_nothing_behind(source: Source) -> None:
    source.run(ORDERS)
    peeked = Peeked.begin(source)
    source.run("insert into orders select n, repeat(md5(n::text), 30) from generate_series(1, 40000) n")
    settings = peeked.settings
    reader = read_changes(source.dsn, settings.slot, settings.publication, peeked.start, peeked.now(), peeked.tables())
    assert isinstance(next(reader), ChangeRows)
    assert slots_of(source) == 2
    reader.close()  # type: ignore[attr-defined]  # a generator
    source.run("select pg_sleep(0.1)")
    assert slots_of(source) == 1


def test_a_connection_that_breaks_in_the_middle_is_told_as_such(source: Source) -> None:
    source.run(ORDERS)
    peeked = Peeked.begin(source)
    source.run("insert into orders select n, repeat(md5(n::text), 30) from generate_series(1, 60000) n")
    settings = peeked.settings
    reader = read_changes(source.dsn, settings.slot, settings.publication, peeked.start, peeked.now(), peeked.tables())
    assert isinstance(next(reader), ChangeRows)
    source.run("select pg_terminate_backend(active_pid, 5000) from pg_replication_slots where temporary")
    with pytest.raises(SourceUnavailableError):
        list(reader)
    assert slots_of(source) == 1


def test_a_role_that_may_replicate_and_no_more_can_read(source: Source) -> None:
    source.run(ORDERS, "drop role if exists reader", "create role reader login replication")
    peeked = Peeked.begin(source)
    source.run("insert into orders values (1, 'a')")
    settings, end = peeked.settings, peeked.now()
    dsn = make_conninfo(source.dsn, user="reader")
    events = list(read_changes(dsn, settings.slot, settings.publication, peeked.start, end, peeked.tables()))
    assert len(rows_of(events, "public.orders")) == 1
    source.run("drop role reader")


def test_texts_of_a_database_in_another_encoding_arrive_whole(source: Source) -> None:
    name = f"{source.database}_latin"
    source.run(f"create database {name} encoding 'LATIN1' locale 'C' template template0")
    latin = Source(source.cluster, name)
    try:
        with connect(latin.dsn) as connection:
            connection.execute('create table public."Größen" (id int primary key, "Maß" text)')
            peeked = Peeked.begin(latin)
            connection.execute("""insert into public."Größen" values (1, 'äöü')""")
        assert [row["after"] for row in peeked.rows("public.`Größen`")] == [{"id": 1, "Maß": "äöü"}]
    finally:
        latin.drop_slots()
        source.run(f"drop database {name} with (force)")


def test_many_tables_of_one_transaction_keep_their_places_in_it(source: Source) -> None:
    names = [f"t{number}" for number in range(40)]
    source.run(*(f"create table {name} (id int primary key)" for name in names))
    peeked = Peeked.begin(source)
    with source.connect(autocommit=False) as connection:
        for number in range(120):
            connection.execute(f"insert into {names[number * 7 % 40]} values ({number})".encode())
        connection.commit()
    events = peeked.read()
    for place, name in enumerate(names):
        rows = rows_of(events, f"public.{name}")
        assert [row["after"]["id"] for row in rows] == [row["_ordinal"] for row in rows]
        assert [row["_ordinal"] * 7 % 40 for row in rows] == [place] * 3


def test_a_changed_table_is_told_and_can_be_read_up_to_there(source: Source) -> None:
    source.run(ORDERS, "create table other (id int primary key)")
    peeked = Peeked.begin(source)
    tables = peeked.tables()
    source.run(
        "insert into orders values (1, 'a')",
        "alter table orders add column more numeric(7,2)",
        "insert into other values (1)",
        "insert into orders values (2, 'b', 1.5)",
        "insert into other values (2)",
    )
    events = peeked.read(tables)
    (changed,) = [event for event in events if isinstance(event, RelationChanged)]
    assert changed.source == "public.orders"
    assert changed.relation.columns[2] == RelationColumn("more", 1700, (7 << 16 | 2) + 4, False)
    assert [row["after"]["id"] for row in peeked.rows("public.orders", tables=tables, end=changed.lsn)] == [1]
    after = peeked.read(start=changed.lsn)
    assert [row["after"]["id"] for row in rows_of(after, "public.orders")] == [2]
    assert [row["after"]["id"] for row in rows_of(after, "public.other")] == [2]


def test_rows_of_the_transaction_that_alters_a_table_are_read_by_what_the_table_was(source: Source) -> None:
    source.run(ORDERS)
    peeked = Peeked.begin(source)
    (was,) = peeked.tables()
    source.run(
        "do $$ begin insert into orders values (1, 'a'); alter table orders rename note to remark; "
        "alter table orders add more int; insert into orders values (2, 'b', 3); end $$"
    )
    (changed,) = [event for event in peeked.read([was]) if isinstance(event, RelationChanged)]
    (now,) = peeked.tables()
    followed = replace(now, former=(was.columns,), changed_lsn=changed.lsn)
    rows = peeked.rows("public.orders", tables=[followed], start=changed.lsn)
    assert [row["after"] for row in rows] == [
        {"id": 1, "remark": "a", "more": None},
        {"id": 2, "remark": "b", "more": 3},
    ]


def test_a_value_that_cannot_be_held_stops_its_table_and_text_columns_hold_it(source: Source) -> None:
    source.run("create table prices (id int primary key, price numeric(6,2))", ORDERS)
    peeked = Peeked.begin(source)
    source.run(
        "insert into prices values (1, 1.5)",
        "insert into prices values (2, 'NaN')",
        "insert into orders values (1, 'a')",
    )
    events = peeked.read()
    (stopped,) = [event for event in events if isinstance(event, Stopped)]
    assert stopped.source == "public.prices"
    assert "public.prices.price has a value that decimal(6,2) cannot hold: 'NaN'" in stopped.reason
    lsns = [event.rows.column("_lsn")[0].as_py() for event in events if isinstance(event, ChangeRows)]
    assert stopped.lsn < lsns[-1]
    assert len(lsns) == 1
    as_text = replace(peeked, settings=replace(peeked.settings, text_columns=("public.prices.price",)))
    assert [row["after"]["price"] for row in as_text.rows("public.prices")] == ["1.50", "NaN"]


def test_lists_of_columns_generated_columns_and_names_of_any_case_are_followed(source: Source) -> None:
    source.run(
        'create table "Orders Of Ü" ("Id" int primary key, hidden text, "Größe" int, '
        'double int generated always as ("Id" * 2) stored)',
        'create publication "My Pub" for table "Orders Of Ü" ("Id", "Größe")',
    )
    peeked = Peeked.begin(source, "everything")
    source.run("insert into \"Orders Of Ü\" values (1, 'secret', 5)")
    mine = replace(peeked, settings=replace(peeked.settings, publication="My Pub"))
    assert [row["after"] for row in mine.rows("public.`Orders Of Ü`")] == [{"Id": 1, "Größe": 5}]
    assert [row["after"] for row in peeked.rows("public.`Orders Of Ü`")] == [{"Id": 1, "hidden": "secret", "Größe": 5}]


def test_partitions_are_read_as_their_table_when_the_publication_says_so(source: Source) -> None:
    source.run(
        "create table events (id int primary key, note text) partition by range (id)",
        "create table events_low partition of events for values from (0) to (10)",
        "create table events_high (note text, id int not null)",
        "alter table events attach partition events_high for values from (10) to (20)",
        "create publication roots for table events with (publish_via_partition_root = true)",
    )
    peeked = Peeked.begin(source)
    mine = replace(peeked, settings=replace(peeked.settings, publication="roots"))
    source.run("insert into events values (1, 'low'), (11, 'high')", "update events set id = 12 where id = 1")
    rows = mine.rows("public.events")
    assert [(row["_op"], row["after"] or row["before"]) for row in rows] == [
        ("insert", {"id": 1, "note": "low"}),
        ("insert", {"id": 11, "note": "high"}),
        ("delete", {"id": 1, "note": None}),
        ("insert", {"id": 12, "note": "low"}),
    ]


def test_a_slot_that_is_gone_or_past_the_range_is_lost(source: Source) -> None:
    source.run(ORDERS)
    peeked = Peeked.begin(source)
    tables = peeked.tables()
    source.run("insert into orders values (1, 'a')")
    end = peeked.now()
    source.run(f"select pg_replication_slot_advance('{peeked.settings.slot}', pg_current_wal_flush_lsn())")
    with pytest.raises(SlotLostError, match=r"cannot be read from .*resnapshot"):
        peeked.read(tables, end=end)
    source.run(f"select pg_drop_replication_slot('{peeked.settings.slot}')")
    with pytest.raises(SlotLostError, match="does not exist"):
        peeked.read(tables, end=end)


def test_a_missing_publication_and_a_missing_server_are_told(source: Source) -> None:
    source.run(ORDERS)
    peeked = Peeked.begin(source)
    source.run("insert into orders values (1, 'a')")
    tables, end = peeked.tables(), peeked.now()
    away = replace(peeked, settings=replace(peeked.settings, publication="nobody"))
    with pytest.raises(CaptureSetupError, match="has no publication nobody: create publication nobody"):
        away.read(tables, end=end)
    for dsn, kind in (("host=/nowhere dbname=x", SourceUnavailableError), ("no such thing", ConfigError)):
        with pytest.raises(kind):
            list(read_changes(dsn, "s", "p", 1, 2, tables))
