"""Small appends: an engine's short way leaves the same rows as the ordinary one, and steps aside for it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from deltalakedb.exceptions import ConcurrentAppendError, NotWritableError, TableLockedError
from deltalakedb.log.protocol.actions import Action, AppTransaction, Metadata, Protocol
from deltalakedb.log.protocol.proposal import WHOLE_TABLE
from deltalakedb.runtime import steps
from deltalakedb.store import Store
from deltalakedb.store import registry as reg
from deltalakedb.store.appends import AT_MS
from deltalakedb.store.proposals import Outcome
from deltalakedb.store.reader import SqlTxnLogReader
from deltalakedb.store.writer import SqlTxnLogWriter
from tests.conformance.conftest import OpenStore
from tests.conformance.histories import METADATA, PROTOCOL, add, remove
from tests.conformance.proposing import change, commit, create, proposal, set_state

CHANGING = {"table_id", "table_uuid", "txn_id", "committed_at_ms", "last_commit_ms", "commit_info"}


class Writer:
    """One writer that stays open, and the steps its commits took."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.writer = SqlTxnLogWriter(store, retries=5, lock_wait_seconds=0.3)
        self.taken: list[str] = []

    def commit(self, table: reg.TableRow, *actions: Action, token: str | None = None, **fields: Any) -> Outcome:
        made = proposal(change(self.store, table, *actions, **fields), actor="ada", message="a small one")
        with watching(self.taken):
            return self.writer.commit(made if token is None else replace(made, client_token=token))

    @property
    def was_short(self) -> bool:
        """Whether the last commit took the short way."""
        return self.taken == ["commit.begun", "commit.committed"]


@contextmanager
def watching(taken: list[str]) -> Iterator[None]:
    taken.clear()
    observed = [True]
    steps.observe(lambda step: taken.append(step) if observed else None)
    try:
        yield
    finally:
        observed.clear()


def has_short_way(store: Store) -> bool:
    return store.name == "postgres"


@pytest.fixture
def writer(store: Store) -> Writer:
    return Writer(store)


def rows_of(store: Store, table: reg.TableRow) -> dict[str, list[dict[str, Any]]]:
    """All that SQL holds of a table but for ids and times."""
    names = ("dl_table_versions", "dl_add_files", "dl_file_bounds", "dl_bounds_columns", "dl_table_heads")
    with store.read() as conn:
        found = {name: conn.sql(f"select * from {name} where table_id = :id", id=table.table_id) for name in names}
    return {
        name: sorted(({k: v for k, v in row.items() if k not in CHANGING} for row in rows), key=repr)
        for name, rows in found.items()
    }


def several(turn: str) -> list[list[Action]]:
    """Commits that add files of many kinds."""
    return [
        [add(f"{turn} a", low=1, high=5)],
        [add(f"{turn} b", low=2, high=5), add(f"{turn} ä \x00 \\ 'quoted' \"b\"\n", day="tue", low=3, high=6)],
        [add(f"{turn} no statistics", stats=None)],
        [add(f"{turn} unbounded", stats='{"numRecords": 3}', tags={"k": None}, extra='{"more":[1,2]}')],
        [add(f"{turn} c", low=1, high=4_000, size=2**53 + 1)],
    ]


def test_the_short_way_writes_the_rows_of_the_ordinary_way(store: Store, writer: Writer) -> None:
    short, ordinary = create(store, "short"), create(store, "plain")
    ways = []
    for actions in several("first") + several("second"):
        writer.commit(short, *actions)
        ways.append(writer.was_short)
        commit(store, proposal(change(store, ordinary, *actions), actor="ada", message="a small one"))
    assert rows_of(store, short) == rows_of(store, ordinary)
    # The first commit of a writer has nothing to go on, and a width class that is new takes more than adding rows.
    assert not ways[0]
    assert ways[5:] == [has_short_way(store)] * 5


def test_what_the_short_way_hands_to_the_mirror_is_what_sql_renders(store: Store, writer: Writer) -> None:
    configuration = {**METADATA.configuration, "delta.enableInCommitTimestamps": "true"}
    with_times = replace(METADATA, configuration=configuration)
    protocols = [PROTOCOL, Protocol(1, 7, None, ("appendOnly", "inCommitTimestamp", "invariants"))]
    for number, (metadata, protocol) in enumerate(zip([METADATA, with_times], protocols, strict=True)):
        table = create(store, f"t{number}", metadata=metadata, protocol=protocol)
        made = [writer.commit(table, add(name)) for name in ("a", "b", f"{AT_MS}")]
        assert writer.was_short == has_short_way(store)
        rendered = [one.data for one in SqlTxnLogReader(store, table).mirror_commits(1)]
        assert [outcome.commits[0].data for outcome in made] == rendered
        commits = list(SqlTxnLogReader(store, table).commits(1))
        assert [one.size_bytes for one in commits] == [len(data) for data in rendered]
        assert [one.timestamp_ms for one in commits] == [outcome.commits[0].timestamp_ms for outcome in made]
        info = json.loads(rendered[-1].splitlines()[0])["commitInfo"]
        assert info["timestamp"] == info["deltalakedb"]["committedAt"] == made[-1].committed_at_ms
        assert info.get("inCommitTimestamp") == (made[-1].committed_at_ms if number else None)


def test_a_text_that_looks_like_the_placeholder_of_the_time_stays_as_it_is(store: Store, writer: Writer) -> None:
    table = create(store)
    writer.commit(table, add("a"))
    made = proposal(change(store, table, add("b")), message=f"at {AT_MS}")
    outcome = writer.writer.commit(made)
    assert f'"message":"at {AT_MS}"'.encode() in (outcome.commits[0].data or b"")


def test_a_token_used_before_is_told_by_the_short_way_too(store: Store, writer: Writer) -> None:
    table = create(store)
    writer.commit(table, add("a"))
    first = writer.commit(table, add("b"), token="mine")
    again = writer.commit(table, add("c"), token="mine")
    assert (again.repeated, again.versions, again.txn_id) == (True, first.versions, first.txn_id)
    assert SqlTxnLogReader(store, table).snapshot().version == 2


def test_whoever_was_overtaken_is_put_on_top(store: Store, writer: Writer) -> None:
    table = create(store)
    writer.commit(table, add("a"))
    commit(store, proposal(change(store, table, add("b"))))
    # Proposed on what the writer left, which somebody else has moved on from.
    assert writer.commit(table, add("c"), at=1).versions == {"sales.orders": 3}
    commit(store, proposal(change(store, table, add("d"), remove("a"), read=WHOLE_TABLE)))
    with pytest.raises(ConcurrentAppendError):
        writer.commit(table, add("e"), at=3, read=WHOLE_TABLE)
    assert writer.commit(table, add("f")).versions == {"sales.orders": 5}
    assert writer.commit(table, add("g")).versions == {"sales.orders": 6}
    assert writer.was_short == has_short_way(store)


def test_a_table_that_was_frozen_meanwhile_takes_nothing(store: Store, writer: Writer) -> None:
    table = create(store)
    writer.commit(table, add("a"))
    set_state(store, table, state="frozen")
    with pytest.raises(NotWritableError, match="frozen"):
        writer.commit(table, add("b"))
    assert SqlTxnLogReader(store, table).snapshot().version == 1


def test_a_table_that_was_renamed_meanwhile_is_named_as_it_is_now(store: Store, writer: Writer) -> None:
    table = create(store)
    writer.commit(table, add("a"))
    made = proposal(change(store, table, add("b")))
    set_state(store, table, name="invoices")
    assert writer.writer.commit(made).versions == {"sales.invoices": 2}


def test_a_file_that_is_added_again_replaces_its_row(store: Store, writer: Writer) -> None:
    table = create(store)
    writer.commit(table, add("a"))
    writer.commit(table, add("b"))
    writer.commit(table, add("a", low=3, high=4, size=7))
    snapshot = SqlTxnLogReader(store, table).snapshot()
    assert sorted(snapshot.files_table(["path"])["path"].to_pylist()) == ["a", "b"]
    assert snapshot.totals().num_files == 2


def test_a_claim_on_the_table_holds_back_who_has_read_it(store: Store, writer: Writer) -> None:
    table = create(store)
    writer.commit(table, add("a"))
    with store.write() as conn:
        lease = f"intent:{table.table_id}"
        conn.run("take_lease", lease=lease, holder="other", until_ms=conn.now_ms() + 60_000, now_ms=0)
    assert writer.commit(table, add("b")).versions == {"sales.orders": 2}
    with pytest.raises(TableLockedError):
        writer.commit(table, add("c"), read=WHOLE_TABLE)


def test_a_table_whose_times_lie_ahead_of_the_clock_keeps_its_order(store: Store, writer: Writer) -> None:
    table = create(store)
    writer.commit(table, add("a"))
    with store.write() as conn:
        ahead = conn.now_ms() + 3_600_000
        conn.sql("update dl_table_heads set last_commit_ms = :ms where table_id = :id returning table_id",
                 ms=ahead, id=table.table_id)  # fmt: skip
    made = [writer.commit(table, add(name)).commits[0].timestamp_ms for name in ("b", "c", "d")]
    assert made == [ahead + 1, ahead + 2, ahead + 3]


@pytest.mark.parametrize("kind", ["removes", "app transaction", "metadata"])
def test_whatever_is_more_than_an_append_takes_the_ordinary_way(store: Store, writer: Writer, kind: str) -> None:
    table = create(store)
    writer.commit(table, add("a"))
    actions: dict[str, list[Action]] = {
        "removes": [remove("a"), add("b")],
        "app transaction": [add("b"), AppTransaction("app", 1, 5)],
        "metadata": [add("b"), replace(METADATA, description="other")],
    }
    writer.commit(table, *actions[kind])
    assert not writer.was_short
    assert any(isinstance(a, Metadata) for a in actions[kind]) == (kind == "metadata")
    assert writer.commit(table, add("c")).versions == {"sales.orders": 3}
    assert writer.was_short == has_short_way(store)


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_a_database_without_the_functions_is_written_the_ordinary_way(store: Store, writer: Writer) -> None:
    table = create(store)
    writer.commit(table, add("a"))
    with store.write() as conn:
        conn.script(["drop function deltalakedb.dl_append", "drop function deltalakedb.dl_open"])
    assert writer.commit(table, add("b")).versions == {"sales.orders": 2}
    assert not writer.was_short
    assert writer.commit(table, add("c")).versions == {"sales.orders": 3}


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_a_table_opened_by_the_function_is_what_the_query_opens(store: Store, open_again: OpenStore) -> None:
    writer = Writer(store)
    table = create(store)
    for name in ("a", "b"):
        writer.commit(table, add(name))
    assert writer.was_short
    with store.read() as by_function, open_again().read() as by_query:
        assert reg.open_table(by_function, "sales", "orders") == reg.open_table(by_query, "sales", "orders")
        assert reg.open_table(by_function, "sales", "nothing") is None
