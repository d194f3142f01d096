"""The registry: names, namespaces, heads, and what was called what when."""

from dataclasses import replace
from typing import Any

import pytest

from deltalakedb.exceptions import StoreError, TableExistsError, TableNotFoundError
from deltalakedb.store import Connection, Store
from deltalakedb.store import namespaces as spaces
from deltalakedb.store import registry as reg
from deltalakedb.store.audit import read_audit, write_audit
from tests.conformance.conftest import OpenStore
from tests.conformance.proposing import drop


def register(conn: Connection, name: str = "orders", at_ms: int = 1000, **values: Any) -> reg.TableRow:
    options: dict[str, Any] = {"namespace": "sales", "location": f"/lake/{name}", "mode": "follower", **values}
    return reg.register_table(conn, name=name, at_ms=at_ms, **options)


def head_of(table_id: int, **values: int) -> reg.Head:
    fields = dict.fromkeys(reg.Head.__dataclass_fields__, 0) | values
    return reg.Head(**(fields | {"table_id": table_id}))


def test_a_table_is_found_by_its_name_whatever_the_case(store: Store) -> None:
    with store.write() as conn:
        table = register(conn, "Straße Ü", properties={"owner": "Zoë"})
    with store.read() as conn:
        assert reg.resolve_table(conn, "SALES", "STRAẞE ü") == table
        assert reg.resolve_table(conn, "sales", "STRASSE Ü") is None
        assert reg.table_by_id(conn, table.table_id) == table
        assert reg.table_by_location(conn, "/lake/Straße Ü") == table
        assert table.full_name == "sales.`Straße Ü`"


def test_ids_are_handed_out_once(store: Store) -> None:
    with store.write() as conn:
        ids = [register(conn, f"t{number}").table_id for number in range(3)]
    with store.write() as conn:
        ids.append(register(conn, "t3").table_id)
    assert ids == [1, 2, 3, 4]


def test_a_taken_name_is_refused_and_the_owner_named(store: Store) -> None:
    with store.write() as conn:
        register(conn, "Orders")
    with pytest.raises(TableExistsError, match=r"sales\.Orders exists"), store.write() as conn:
        register(conn, "ORDERS", location="/elsewhere")
    with pytest.raises(TableExistsError, match=r"belongs to the table sales\.Orders"), store.write() as conn:
        register(conn, "other", location="/lake/Orders")


def test_an_exception_leaves_nothing_behind(store: Store) -> None:
    def fail_halfway() -> None:
        with store.write() as conn:
            register(conn)
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        fail_halfway()
    with store.read() as conn:
        assert reg.list_tables(conn) == []
        assert [namespace.namespace for namespace in spaces.list_namespaces(conn)] == ["default"]


def test_a_renamed_table_keeps_its_old_name_in_the_past(store: Store) -> None:
    with store.write() as conn:
        table = register(conn, at_ms=1000)
    with store.write() as conn:
        renamed = replace(table, namespace="archive", name="old_orders")
        spaces.ensure_namespace(conn, "archive", at_ms=2000)
        reg.change_table(conn, table.table_id, at_ms=2000, namespace="archive", name="old_orders")
    with store.read() as conn:
        assert reg.list_tables(conn) == [renamed]
        assert reg.list_tables(conn, at_ms=999) == []
        assert reg.list_tables(conn, at_ms=1999) == [table]
        assert reg.list_tables(conn, at_ms=2000) == [renamed]
        assert reg.resolve_table(conn, "sales", "orders") is None
        assert reg.resolve_table(conn, "sales", "orders", at_ms=1500) == table
        assert "archive" in [namespace.namespace for namespace in spaces.list_namespaces(conn)]


def test_a_clock_that_steps_back_does_not_turn_the_past_around(store: Store) -> None:
    with store.write() as conn:
        table = register(conn, at_ms=5000)
        for number in range(3):
            reg.change_table(conn, table.table_id, at_ms=100, name=f"n{number}")
    with store.read() as conn:
        assert [reg.list_tables(conn, at_ms=5000 + i)[0].name for i in range(4)] == ["orders", "n0", "n1", "n2"]


def test_a_dropped_name_can_be_taken_again_in_the_same_transaction(store: Store) -> None:
    with store.write() as conn:
        first = register(conn, at_ms=1000)
    with store.write() as conn:
        for at_ms in (2000, 3000):
            current = reg.resolve_table(conn, "sales", "orders")
            assert current is not None
            drop(conn, current, at_ms=at_ms)
            again = register(conn, at_ms=at_ms)
        with pytest.raises(TableNotFoundError, match="not registered any more"):
            reg.end_row(conn, first.table_id, at_ms=4000)
    with store.read() as conn:
        assert reg.list_tables(conn) == [again]
        assert again.table_id != first.table_id
        assert reg.list_tables(conn, at_ms=1500) == [first]


def test_a_table_that_is_gone_cannot_be_changed(store: Store) -> None:
    with store.write() as conn:
        table = register(conn)
        drop(conn, table, at_ms=2000)
        with pytest.raises(TableNotFoundError, match="not registered any more"):
            reg.change_table(conn, table.table_id, at_ms=3000, state="frozen")


def test_namespaces_are_made_once_and_only_empty_ones_go(store: Store) -> None:
    with store.write() as conn:
        assert spaces.ensure_namespace(conn, "Raw.Events", at_ms=1, properties={"a": "1"})
        assert not spaces.ensure_namespace(conn, "raw.events", at_ms=2)
        register(conn)
        assert spaces.contents_of(conn, "sales") == "the table orders"
        assert spaces.contents_of(conn, "RAW") == "the namespace Raw.Events"
        current = spaces.find_namespace(conn, "RAW.EVENTS")
        assert current is not None
        spaces.set_namespace_properties(conn, current, {"b": 2}, at_ms=5)
    with store.write() as conn:
        found = {namespace.namespace: namespace.properties for namespace in spaces.list_namespaces(conn)}
        assert found == {"Raw.Events": {"b": 2}, "default": {}, "sales": {}}
        current = spaces.find_namespace(conn, "raw.events")
        assert current is not None
        assert (current.created_at_ms, current.updated_at_ms) == (1, 5)
        assert spaces.contents_of(conn, "raw.events") is None
        spaces.drop_namespace(conn, current, at_ms=9)
        assert spaces.find_namespace(conn, "raw.events") is None
        then = [{one.namespace: one.properties for one in spaces.list_namespaces(conn, at_ms)} for at_ms in (4, 8, 9)]
        assert [one.get("Raw.Events") for one in then] == [{"a": "1"}, {"b": 2}, None]


def test_a_head_is_read_locked_and_updated(store: Store) -> None:
    with store.write() as conn:
        assert reg.lock_head(conn, 7) is None
        reg.insert_head(conn, head_of(7, current_version=3, num_files=10))
    with store.write() as conn:
        locked = reg.lock_head(conn, 7)
        assert locked == head_of(7, current_version=3, num_files=10)
        reg.advance_head(conn, replace(locked, current_version=4, size_bytes=2**62), 3)
        with pytest.raises(StoreError, match="head of table 8 is gone"):
            reg.advance_head(conn, head_of(8), 0)
    with store.read() as conn:
        assert reg.read_head(conn, 7) == head_of(7, current_version=4, num_files=10, size_bytes=2**62)


def test_a_version_advances_only_from_where_it_was_expected(store: Store) -> None:
    with store.write() as conn:
        reg.insert_head(conn, head_of(1, current_version=5))
    with store.write() as conn:
        reg.advance_head(conn, head_of(1, current_version=6), 5)
    with store.write() as conn, pytest.raises(StoreError, match="has moved"):
        reg.advance_head(conn, head_of(1, current_version=7), 5)
    with store.read() as conn:
        head = reg.read_head(conn, 1)
        assert head is not None
        assert head.current_version == 6


def test_the_catalog_has_an_identity_that_stays(store: Store, open_again: OpenStore) -> None:
    with store.read() as conn:
        known = reg.catalog_id(conn)
    store.close()
    with open_again().read() as conn:
        assert reg.catalog_id(conn) == known


def test_the_audit_trail_is_filtered_and_masks_secrets(store: Store) -> None:
    with store.write() as conn:
        table = register(conn)
        secrets = {
            "password": "hunter2",
            "url": "s3://me:hunter2@bucket/x",
            "nested": {"secret_key": "hunter2"},
            "n": 3,
        }
        write_audit(conn, action="attach", at_ms=10, actor="ann", origin="cli", table=table, details=secrets)
        write_audit(conn, action="follow", at_ms=20, actor="bob", table=table)
        write_audit(conn, action="migrate", at_ms=30)
    with store.read() as conn:
        assert [row.action for row in read_audit(conn)] == ["migrate", "follow", "attach"]
        assert [row.action for row in read_audit(conn, since_ms=20, until_ms=20)] == ["follow"]
        assert [row.action for row in read_audit(conn, limit=1)] == ["migrate"]
        assert [row.action for row in read_audit(conn, table_id=table.table_id, actor="bob")] == ["follow"]
        (row,) = read_audit(conn, actor="ann")
        assert (row.table_name, row.origin, row.at_ms) == ("sales.orders", "cli", 10)
        assert "hunter2" not in repr(row)
        assert row.details is not None
        assert row.details["n"] == 3
