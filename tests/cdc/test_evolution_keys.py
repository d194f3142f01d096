"""Source tables whose rows get another name: a new key, another replica identity, another table of the same name."""

from tests.cdc.conftest import Lake, Source
from tests.cdc.evolving import evolving

ORDERS = "create table orders (id bigint primary key, name text, code int not null unique)"
ITEMS = "create table items (id int primary key, note text)"
ROWS = "insert into orders select n, 'a' || n, n + 100 from generate_series(1, 5) n"


def test_a_new_primary_key_is_followed(lake: Lake, source: Source) -> None:
    with evolving(lake, source, ORDERS) as capture:
        source.run(ROWS)
        capture.catch_up()
        source.run("alter table orders drop constraint orders_pkey, add primary key (code, id)")
        source.run("insert into orders values (1, 'again', 200)", "update orders set name = 'x' where code = 101")
        source.run("delete from orders where code = 102", "update orders set code = 300 where code = 103")
        capture.catch_up()
        capture.check_equal(source)
        assert capture.table().key == ("id", "code")
        assert capture.table().notes == ("rows are named by id, code, no longer by id",)


def test_an_index_as_replica_identity_is_followed(lake: Lake, source: Source) -> None:
    with evolving(lake, source, ORDERS) as capture:
        source.run(ROWS)
        capture.catch_up()
        source.run("alter table orders replica identity using index orders_code_key")
        source.run("delete from orders where id = 1", "update orders set id = 20 where id = 2")
        source.run("update orders set code = 33 where id = 3")
        capture.catch_up()
        capture.check_equal(source)
        assert (capture.table().key, capture.table().identity) == (("code",), "i")


def test_replica_identity_full_keeps_the_key_and_then_needs_none(lake: Lake, source: Source) -> None:
    with evolving(lake, source, ORDERS) as capture:
        source.run(ROWS, "alter table orders replica identity full", "update orders set name = 'x' where id = 1")
        capture.catch_up()
        capture.check_equal(source)
        assert capture.table().key == ("id",)
        source.run("alter table orders add more int", "alter table orders drop constraint orders_pkey")
        source.run("insert into orders values (1, 'twice', 500, 1), (1, 'twice', 501, 1)")
        source.run("delete from orders where code = 500")
        capture.catch_up()
        capture.check_equal(source)
        assert capture.table().key == ()


def test_a_key_for_a_table_that_had_none_is_followed(lake: Lake, source: Source) -> None:
    full = "alter table orders replica identity full"
    with evolving(lake, source, "create table orders (id bigint, name text)", full) as capture:
        source.run("insert into orders values (1, 'a'), (1, 'a'), (2, 'b')", "delete from orders where id = 1")
        source.run("alter table orders add primary key (id)", "alter table orders replica identity default")
        source.run("update orders set name = 'B' where id = 2", "insert into orders values (3, 'c')")
        capture.catch_up()
        capture.check_equal(source)
        assert capture.table().key == ("id",)


def test_a_table_that_loses_its_key_stops_alone(lake: Lake, source: Source) -> None:
    with evolving(lake, source, ORDERS, ITEMS) as capture:
        source.run(ROWS)
        capture.catch_up()
        source.run("alter table orders drop constraint orders_pkey", "insert into orders values (1, 'x', 1)")
        source.run("insert into items values (1, 'x')")
        capture.catch_up()
        assert "nothing names its rows any more" in (capture.table().reason or "")
        assert "replica identity full" in (capture.table().reason or "")
        capture.check_equal(source, "public.items")


def test_a_key_that_changes_within_a_transaction_that_changes_rows(lake: Lake, source: Source) -> None:
    with evolving(lake, source, ORDERS, ITEMS) as capture:
        source.run(ROWS)
        capture.catch_up()
        source.run(
            "begin; update orders set id = 50 where id = 5; alter table orders drop constraint orders_pkey; "
            "alter table orders add primary key (code); delete from orders where id = 4; "
            "insert into items values (1, 'x'); commit"
        )
        capture.catch_up()
        assert "in the middle of a transaction" in (capture.table().reason or "")
        capture.check_equal(source, "public.items")


def test_a_table_that_was_dropped_and_made_anew_stops(lake: Lake, source: Source) -> None:
    with evolving(lake, source, ORDERS, ITEMS) as capture:
        source.run(ROWS)
        capture.catch_up()
        source.run("drop table orders", ORDERS, "insert into orders values (7, 'new', 7)")
        source.run("insert into items values (1, 'x')")
        capture.catch_up()
        assert "the table was dropped and made anew" in (capture.table().reason or "")
        assert len(capture.rows("lake.orders")) == 5
        capture.check_equal(source, "public.items")


def test_a_table_that_is_gone_or_called_otherwise_stops_when_its_rows_are_in(lake: Lake, source: Source) -> None:
    with evolving(lake, source, ORDERS, ITEMS) as capture:
        source.run(ROWS, "insert into items values (1, 'x')")
        source.run("drop table orders", "alter table items rename to things", "insert into things values (2, 'y')")
        capture.settle()
        assert (capture.table().reason or "").startswith("the table was dropped")
        assert (capture.table("public.items").reason or "").startswith("the table is called public.things now")
        assert len(capture.rows("lake.orders")) == 5
        assert [row["id"] for row in capture.rows("lake.items")] == [1, 2]


def test_a_primary_key_that_went_from_under_full_stops_the_table(lake: Lake, source: Source) -> None:
    with evolving(lake, source, ORDERS, "alter table orders replica identity full") as capture:
        source.run(ROWS)
        capture.catch_up()
        source.run("alter table orders drop constraint orders_pkey")
        capture.settle()
        assert (capture.table().reason or "").startswith("its primary key has changed")


def test_a_list_of_columns_that_grows_stops_the_table(lake: Lake, source: Source) -> None:
    with evolving(lake, source, ORDERS, ITEMS) as capture:
        source.run(
            "alter publication shop rename to other", "create publication shop for table orders (id, name), items"
        )
        source.run(ROWS)
        capture.catch_up()
        assert [column.name for column in capture.table().columns] == ["id", "name"]
        source.run("alter publication shop set table orders, items", "insert into orders values (9, 'i', 9)")
        capture.catch_up()
        assert "has not sent what older rows have in it" in (capture.table().reason or "")
