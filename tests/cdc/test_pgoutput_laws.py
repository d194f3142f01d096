"""What is decoded is what was sent, however transactions, tables and batches fall."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from deltalakedb.cdc.decode.pgoutput import ChangeRows, Decoder
from tests.cdc import pgoutput_messages as pg
from tests.cdc.pgoutput_messages import UNCHANGED
from tests.cdc.test_pgoutput import BOOKS, NOON, ORDERS, OTHER

CAPTURED = {table.oid: table for table in (ORDERS, BOOKS)}
TABLES = {table.oid: table for table in (ORDERS, BOOKS, OTHER)}

texts = st.none() | st.text(max_size=5)
numbers = st.integers(-(2**63), 2**63 - 1)


@dataclass(frozen=True, slots=True)
class Change:
    message: bytes
    oids: tuple[int, ...]
    op: str
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    unchanged: list[str] | None = None


@st.composite
def changes(draw: st.DrawFn) -> Change:
    oid = draw(st.sampled_from(list(TABLES)))
    op = draw(st.sampled_from(["insert", "insert", "update", "delete", "truncate"]))
    if op == "truncate":
        oids = tuple(draw(st.sets(st.sampled_from(list(TABLES)), min_size=1)))
        return Change(pg.truncate(*oids), oids, op)
    names = [column.name for column in TABLES[oid].columns]
    new, old = ([draw(numbers), *(draw(texts) for _ in names[1:])] for _ in range(2))
    if oid != BOOKS.oid:
        old[1:] = [None for _ in names[1:]]
    kind = "O" if oid == BOOKS.oid else "K"
    before, after = dict(zip(names, old, strict=True)), dict(zip(names, new, strict=True))
    if op == "insert":
        return Change(pg.insert(oid, _cells(new)), (oid,), op, None, after)
    if op == "delete":
        return Change(pg.delete(oid, kind, _cells(old)), (oid,), op, before)  # type: ignore[arg-type]  # a delete has an old row
    return _update(draw, oid, names, before, after)


def _update(draw: st.DrawFn, oid: int, names: list[str], before: dict[str, Any], after: dict[str, Any]) -> Change:
    has_old = oid == BOOKS.oid or draw(st.booleans())
    sent: dict[str, Any] = {name: None if value is None else str(value) for name, value in after.items()}
    unchanged = None
    if len(names) > 1 and draw(st.booleans()):
        last = names[-1]
        sent[last] = UNCHANGED
        after = {**after, last: before[last] if has_old else None}
        unchanged = None if has_old and before[last] is not None else [last]
    old: Any = {"O" if oid == BOOKS.oid else "K": _cells(list(before.values()))} if has_old else None
    message = pg.update(oid, list(sent.values()), old)
    return Change(message, (oid,), "update", before if has_old else None, after, unchanged)


def _cells(row: Sequence[Any]) -> list[str | None]:
    return [None if value is None else str(value) for value in row]


def messages_of(transactions: Sequence[Sequence[Change]], again: bool) -> Iterator[bytes]:
    """As a session sends them: what a relation is comes before its first row, or before every one."""
    told: set[int] = set()
    for place, transaction in enumerate(transactions):
        yield pg.begin(1000 + place, NOON, place)
        for change in transaction:
            for oid in change.oids:
                if again or oid not in told:
                    told.add(oid)
                    yield pg.relation(pg.relation_of(TABLES[oid]))
            yield change.message
        yield pg.commit(1000 + place)


@given(
    st.lists(st.lists(changes(), max_size=6), max_size=6),
    st.booleans(),
    st.lists(st.integers(1, 9), min_size=1),
    st.integers(998, 1007),
    st.integers(0, 8),
)
def test_every_change_in_the_range_is_decoded_once_and_in_order(
    transactions: list[list[Change]], again: bool, sizes: list[int], start: int, length: int
) -> None:
    decoder = Decoder(list(CAPTURED.values()), start, start + length)
    found: dict[str, list[Any]] = {table.source: [] for table in CAPTURED.values()}
    waiting = list(messages_of(transactions, again))
    turn = 0
    while waiting:
        size = sizes[turn % len(sizes)]
        turn += 1
        batch, waiting = pa.array([b"before", *waiting[:size]], pa.binary()).slice(1), waiting[size:]
        for event in decoder.decode(batch):
            assert isinstance(event, ChangeRows)
            event.rows.validate(full=True)
            found[event.source] += event.rows.to_pylist()
    expected: dict[str, list[Any]] = {table.source: [] for table in CAPTURED.values()}
    for place, transaction in enumerate(transactions):
        for ordinal, change in enumerate(transaction):
            for oid in set(change.oids) & set(CAPTURED) if start <= 1000 + place < start + length else ():
                expected[CAPTURED[oid].source].append(
                    {
                        "_op": change.op,
                        "_lsn": 1000 + place,
                        "_xid": place,
                        "_ordinal": ordinal,
                        "_committed_at": NOON,
                        "_unchanged": change.unchanged,
                        "before": change.before,
                        "after": change.after,
                    }
                )
    assert found == expected
    assert decoder.finish().changes == sum(map(len, expected.values()))
