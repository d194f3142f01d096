"""The decoding of pgoutput, from messages that are made by hand."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from deltalakedb.cdc import layers
from deltalakedb.cdc.captured_table import CapturedTable, SourceColumn
from deltalakedb.cdc.decode.messages import Relation, RelationColumn, parse_relation
from deltalakedb.cdc.decode.pgoutput import ChangeRows, Decoder, RangeRead, RelationChanged, Stopped
from deltalakedb.exceptions import CaptureError
from deltalakedb.log.schema.types import ArrayType, DataType, PrimitiveType
from tests.cdc import pgoutput_messages as pg
from tests.cdc.pgoutput_messages import UNCHANGED

LONG, STRING = PrimitiveType("long"), PrimitiveType("string")
NOON = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
Event = ChangeRows | RelationChanged | Stopped


def make_table(source: str, oid: int, columns: dict[str, DataType], *, key: Sequence[str] = ("id",)) -> CapturedTable:
    return CapturedTable(
        source=source,
        oid=oid,
        columns=tuple(
            SourceColumn(name, 20 if kind == LONG else 25, -1, kind, number)
            for number, (name, kind) in enumerate(columns.items(), 1)
        ),
        key=tuple(key),
        current=source,
        changes=f"{source}_changes",
        stage="streaming",
        identity="d" if key else "f",
    )


ORDERS = make_table("public.orders", 100, {"id": LONG, "note": STRING})
BOOKS = make_table("public.books", 200, {"id": LONG, "text": STRING}, key=())
OTHER = make_table("public.other", 300, {"id": LONG})


def decode(
    messages: Iterable[bytes],
    tables: Sequence[CapturedTable] = (ORDERS, BOOKS),
    *,
    start: int = 0,
    end: int = 1 << 60,
    size: int = 1000,
) -> tuple[list[Event], RangeRead]:
    decoder = Decoder(tables, start, end)
    every = list(messages)
    events: list[Event] = []
    for first in range(0, len(every), size):
        events += decoder.decode(pa.array(every[first : first + size], pa.binary()))
    return events, decoder.finish()


def rows_of(events: Iterable[Event], source: str = "public.orders") -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for event in events:
        assert isinstance(event, ChangeRows)
        if event.source == source:
            event.rows.validate(full=True)
            rows += event.rows.to_pylist()
    return rows


def in_transaction(lsn: int, *messages: bytes, xid: int = 7) -> list[bytes]:
    return [pg.begin(lsn, NOON, xid), *messages, pg.commit(lsn)]


RELATIONS = [pg.relation(pg.relation_of(table)) for table in (ORDERS, BOOKS, OTHER)]


def test_an_insert_is_a_row_with_its_place_in_the_log() -> None:
    events, read = decode(in_transaction(1000, RELATIONS[0], pg.insert(100, ["1", "first"])))
    assert rows_of(events) == [
        {
            "_op": "insert",
            "_lsn": 1000,
            "_xid": 7,
            "_ordinal": 0,
            "_committed_at": NOON,
            "_unchanged": None,
            "before": None,
            "after": {"id": 1, "note": "first"},
        }
    ]
    (event,) = events
    assert isinstance(event, ChangeRows)
    assert event.rows.schema.equals(layers.changes_schema(ORDERS).to_arrow(), check_metadata=True)
    assert (read.transactions, read.changes, read.last_committed_at) == (1, 1, NOON)


def test_updates_and_deletes_have_what_postgres_sends_of_the_old_row() -> None:
    events, read = decode(
        in_transaction(
            1000,
            *RELATIONS,
            pg.update(100, ["1", "new"]),
            pg.update(100, ["2", "new"], {"K": ["1", None]}),
            pg.delete(100, "K", ["2", None]),
            pg.update(200, ["5", "new"], {"O": ["5", "old"]}),
            pg.delete(200, "O", ["5", "new"]),
        )
    )
    orders = [(row["_op"], row["_ordinal"], row["before"], row["after"]) for row in rows_of(events)]
    assert orders == [
        ("update", 0, None, {"id": 1, "note": "new"}),
        ("update", 1, {"id": 1, "note": None}, {"id": 2, "note": "new"}),
        ("delete", 2, {"id": 2, "note": None}, None),
    ]
    books = [(row["_op"], row["_ordinal"], row["before"], row["after"]) for row in rows_of(events, "public.books")]
    assert books == [
        ("update", 3, {"id": 5, "text": "old"}, {"id": 5, "text": "new"}),
        ("delete", 4, {"id": 5, "text": "new"}, None),
    ]
    assert read.changes == 5


def test_a_large_value_that_was_left_alone_is_named_or_taken_from_the_old_row() -> None:
    events, _ = decode(
        in_transaction(
            1000,
            *RELATIONS,
            pg.insert(100, ["1", "x"]),
            pg.update(100, ["1", UNCHANGED]),
            pg.update(100, ["2", UNCHANGED], {"K": ["1", None]}),
            pg.update(100, [UNCHANGED, UNCHANGED], {"K": ["9", None]}),
            pg.update(200, ["5", UNCHANGED], {"O": ["4", "large"]}),
        )
    )
    found = [(row["_unchanged"], row["after"]) for row in rows_of(events)]
    assert found == [
        (None, {"id": 1, "note": "x"}),
        (["note"], {"id": 1, "note": None}),
        (["note"], {"id": 2, "note": None}),
        (["note"], {"id": 9, "note": None}),
    ]
    (book,) = rows_of(events, "public.books")
    assert (book["_unchanged"], book["after"]) == (None, {"id": 5, "text": "large"})


def test_several_unchanged_values_of_a_row_are_named_in_the_order_of_the_columns() -> None:
    wide = make_table("public.wide", 400, {"id": LONG, "a": STRING, "b": STRING, "c": STRING})
    events, _ = decode(
        in_transaction(
            1,
            pg.relation(pg.relation_of(wide)),
            pg.update(400, ["1", UNCHANGED, "b", UNCHANGED]),
            pg.update(400, ["2", "a", "b", "c"]),
            pg.update(400, ["3", "a", UNCHANGED, UNCHANGED]),
        ),
        [wide],
    )
    assert [row["_unchanged"] for row in rows_of(events, "public.wide")] == [["a", "c"], None, ["b", "c"]]


def test_a_truncate_is_a_row_of_each_of_its_tables_between_the_rows_around_it() -> None:
    events, read = decode(
        in_transaction(
            1000,
            *RELATIONS,
            pg.insert(100, ["1", "a"]),
            pg.truncate(300, 200, 100),
            pg.insert(100, ["2", "b"]),
        )
    )
    found = [(row["_op"], row["_ordinal"], row["before"], row["after"]) for row in rows_of(events)]
    assert found == [
        ("insert", 0, None, {"id": 1, "note": "a"}),
        ("truncate", 1, None, None),
        ("insert", 2, None, {"id": 2, "note": "b"}),
    ]
    assert [(row["_op"], row["_ordinal"]) for row in rows_of(events, "public.books")] == [("truncate", 1)]
    assert read.changes == 4


def test_ordinals_do_not_depend_on_which_tables_are_captured() -> None:
    messages = in_transaction(
        1000, *RELATIONS, pg.insert(300, ["1"]), pg.insert(100, ["1", "a"]), pg.insert(300, ["2"]), pg.truncate(100)
    )
    alone, _ = decode(messages, [ORDERS])
    together, _ = decode(messages, [ORDERS, BOOKS, OTHER])
    assert [row["_ordinal"] for row in rows_of(alone)] == [1, 3]
    assert rows_of(alone) == rows_of(together)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_transactions_go_on_in_the_next_batch(size: int) -> None:
    messages = [
        *in_transaction(1000, RELATIONS[0], *(pg.insert(100, [str(n), "a"]) for n in range(4)), xid=7),
        *in_transaction(2000, pg.insert(100, ["9", None]), pg.delete(100, "K", ["9", None]), xid=8),
    ]
    events, read = decode(messages, size=size)
    assert [(row["_lsn"], row["_xid"], row["_ordinal"]) for row in rows_of(events)] == [
        (1000, 7, 0),
        (1000, 7, 1),
        (1000, 7, 2),
        (1000, 7, 3),
        (2000, 8, 0),
        (2000, 8, 1),
    ]
    assert read.transactions == 2
    assert read.bytes == sum(map(len, messages))


def test_a_range_has_the_transactions_whose_commit_record_begins_in_it() -> None:
    messages = [*RELATIONS]
    for lsn in (999, 1000, 1999, 2000):
        messages += in_transaction(lsn, pg.insert(100, [str(lsn), None]))
    events, read = decode(messages, start=1000, end=2000)
    assert [row["after"]["id"] for row in rows_of(events)] == [1000, 1999]
    assert read.transactions == 2
    assert decode(messages, start=1001, end=1999)[1].transactions == 0


def test_what_is_before_the_copy_of_a_table_is_left_out() -> None:
    copied = replace(ORDERS, start_lsn=1500)
    messages = [
        *in_transaction(1000, *RELATIONS, pg.insert(100, ["1", None])),
        *in_transaction(1500, pg.insert(100, ["2", None])),
    ]
    assert [row["after"]["id"] for row in rows_of(decode(messages, [copied])[0])] == [2]


def test_empty_transactions_types_origins_and_messages_say_nothing() -> None:
    messages = [
        *in_transaction(1000),
        *in_transaction(
            1001,
            pg.origin("elsewhere"),
            pg.type_message(70000, "mood"),
            RELATIONS[0],
            pg.logical_message("note", b"I\0\0\0\0"),
            pg.insert(100, ["1", "a"]),
        ),
    ]
    events, read = decode(messages)
    assert [row["_ordinal"] for row in rows_of(events)] == [0]
    assert (read.transactions, read.changes) == (2, 1)
    assert decode([]) == ([], RangeRead(0, 0, 0, None))


def test_the_same_relation_again_changes_nothing() -> None:
    messages = in_transaction(1000, RELATIONS[0], pg.insert(100, ["1", "a"]), RELATIONS[0], pg.insert(100, ["2", "b"]))
    events, _ = decode(messages)
    assert len(events) == 1
    assert [row["after"]["id"] for row in rows_of(events)] == [1, 2]


def test_a_relation_of_another_form_is_told_with_its_first_transaction() -> None:
    changed = replace(
        pg.relation_of(ORDERS), columns=(*pg.relation_of(ORDERS).columns, RelationColumn("more", 25, -1, False))
    )
    messages = [
        *in_transaction(1000, *RELATIONS, pg.insert(100, ["1", "a"])),
        *in_transaction(2000, pg.relation(changed), pg.insert(200, ["1", "b"])),
        *in_transaction(3000, pg.insert(100, ["2", "b", "c"]), pg.insert(200, ["2", "b"])),
        *in_transaction(4000, pg.insert(100, ["3", "b", "c"])),
    ]
    events, _ = decode(messages)
    assert [event for event in events if isinstance(event, RelationChanged)] == [
        RelationChanged("public.orders", changed, 3000)
    ]
    rows = [event for event in events if isinstance(event, ChangeRows)]
    assert [row["after"]["id"] for row in rows_of(rows)] == [1]
    assert [row["after"]["id"] for row in rows_of(rows, "public.books")] == [1, 2]
    assert rows_of(decode(messages, end=3000)[0])[0]["after"]["id"] == 1


def test_rows_before_an_alter_table_of_the_same_transaction_have_their_values_by_column_number() -> None:
    was = pg.relation_of(ORDERS)
    id_column, note = ORDERS.columns
    now = replace(
        ORDERS,
        columns=(id_column, SourceColumn("more", 25, -1, STRING, 3), replace(note, name="remark")),
        former=(ORDERS.columns,),
        changed_lsn=1000,
    )
    messages = in_transaction(
        1000,
        pg.relation(was),
        pg.insert(100, ["1", "old"]),
        pg.update(100, ["1", UNCHANGED]),
        pg.relation(pg.relation_of(now)),
        pg.insert(100, ["2", "more", "new"]),
    )
    events, _ = decode(messages, [now])
    assert [(row["after"], row["_unchanged"]) for row in rows_of(events)] == [
        ({"id": 1, "more": None, "remark": "old"}, None),
        ({"id": 1, "more": None, "remark": None}, ["remark"]),
        ({"id": 2, "more": "more", "remark": "new"}, None),
    ]
    later = in_transaction(2000, pg.relation(was), pg.insert(100, ["3", "back again"]))
    assert decode(later, [now])[0] == [RelationChanged("public.orders", was, 2000)]


def test_a_table_made_anew_under_the_same_name_is_another_relation() -> None:
    again = replace(pg.relation_of(ORDERS), oid=101)
    events, _ = decode(in_transaction(1000, pg.relation(again), pg.insert(101, ["1", "a"])))
    assert events == [RelationChanged("public.orders", again, 1000)]


def test_a_replica_identity_without_the_key_is_a_change_and_a_larger_one_is_none() -> None:
    described = pg.relation_of(ORDERS)
    id_column, note = described.columns
    assert described.matches(ORDERS)
    assert replace(described, identity="f", columns=(id_column, replace(note, is_key=True))).matches(ORDERS)
    assert not replace(described, columns=(replace(id_column, is_key=False), note)).matches(ORDERS)
    assert not replace(pg.relation_of(BOOKS), identity="d").matches(BOOKS)
    assert replace(described, name="renamed").matches(ORDERS)


def test_a_value_that_cannot_be_held_stops_its_table_alone() -> None:
    messages = [
        *in_transaction(1000, *RELATIONS, pg.insert(100, ["1", "a"])),
        *in_transaction(2000, pg.delete(100, "K", ["1", None]), pg.insert(100, ["one", "a"])),
        *in_transaction(3000, pg.insert(200, ["1", "b"]), pg.insert(100, ["3", "a"])),
    ]
    events, _ = decode(messages, size=4)
    (stopped,) = [event for event in events if isinstance(event, Stopped)]
    assert (stopped.source, stopped.lsn) == ("public.orders", 2000)
    assert "public.orders.id has a value that long cannot hold: 'one'" in stopped.reason
    assert "text_columns" in stopped.reason
    assert len(rows_of([e for e in events if isinstance(e, ChangeRows)], "public.books")) == 1


def test_nulls_and_empty_texts_differ() -> None:
    messages = in_transaction(1, RELATIONS[0], pg.insert(100, ["1", ""]), pg.insert(100, ["2", None]))
    assert [row["after"]["note"] for row in rows_of(decode(messages)[0])] == ["", None]


def test_a_table_whose_columns_are_arrays_and_texts_of_a_megabyte_is_read_whole() -> None:
    table = make_table("public.large", 500, {"id": LONG, "tags": ArrayType(STRING), "body": STRING})
    body = "ä" * 500_000
    messages = in_transaction(
        1,
        pg.relation(pg.relation_of(table)),
        pg.insert(500, ["1", "{a,NULL}", body]),
        pg.insert(500, ["2", "{}", ""]),
        pg.insert(500, ["3", None, body]),
    )
    rows = rows_of(decode(messages, [table])[0], "public.large")
    assert [row["after"]["tags"] for row in rows] == [["a", None], [], None]
    assert [row["after"]["body"] for row in rows] == [body, "", body]


def test_messages_of_other_protocols_and_broken_ones_are_refused() -> None:
    with pytest.raises(CaptureError, match="message 'S'"):
        decode([b"S\0\0\0\1"])
    with pytest.raises(CaptureError, match="never said what it is"):
        decode(in_transaction(1, pg.insert(100, ["1", "a"])))
    with pytest.raises(CaptureError, match="have not 2 columns"):
        decode(in_transaction(1, RELATIONS[0], pg.insert(100, ["1"])))
    with pytest.raises(CaptureError, match="do not end where their message does"):
        decode(in_transaction(1, RELATIONS[0], pg.insert(100, ["1", "a"]) + b"?"))


def test_a_relation_survives_its_message_and_its_value() -> None:
    described = Relation(
        16384, "Größe", 'a"b', "i", (RelationColumn("ü", 25, -1, True), RelationColumn("n", 1700, 655366, False))
    )
    assert parse_relation(pg.relation(described)) == described
    assert Relation.from_value(described.to_value()) == described
    assert described.source == '`Größe`.`a"b`'
