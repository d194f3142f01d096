"""Two transactions meet: what they read and wrote decides, the loser is told which table and why; on every engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deltalakedb import Catalog, CatalogTransaction
from deltalakedb.exceptions import (
    CommitFailedError,
    ConcurrentAppendError,
    ConcurrentDeleteDeleteError,
    ConcurrentDeleteReadError,
    ConcurrentTransactionError,
    MetadataChangedError,
)
from deltalakedb.log.protocol.actions import Action, AppTransaction
from deltalakedb.log.protocol.proposal import ReadSet
from tests.conformance.transacting import add, days, ids_in, numbers, open_catalog, remove

Statement = Callable[[CatalogTransaction], object]


@pytest.fixture
def catalog(target: str, tmp_path: Path) -> Iterator[Catalog]:
    """A table of two partitions with files f-mon (ids 0-9) and f-tue (ids 100-199), and a ledger."""
    with open_catalog(target, tmp_path, mirror_mode="off") as opened:
        with opened.begin() as tx:
            tx.create_table("t", "id long, day string", partition_by="day")
            tx.commit_actions("t", [add("f-mon", day="mon"), add("f-tue", 100, 199, day="tue")])
            tx.create_table("ledger", "id long")
        yield opened


def race(catalog: Catalog, mine: Statement, theirs: Statement) -> CatalogTransaction:
    """`theirs` commits after mine began and before mine commits."""
    tx = catalog.begin()
    mine(tx)
    with catalog.begin() as faster:
        theirs(faster)
    tx.commit()
    return tx


def appends(tx: CatalogTransaction) -> None:
    tx.commit_actions("t", [add("n-mon", 3, 4, day="mon")])


def deletes_monday(tx: CatalogTransaction) -> None:
    tx.commit_actions("t", [remove("f-mon", day="mon")], read="day = 'mon'", operation="DELETE")


def compacts_monday(tx: CatalogTransaction) -> None:
    swap: list[Action] = [remove("f-mon", day="mon", data_change=False), add("c-mon", day="mon", data_change=False)]
    tx.commit_actions("t", swap, read=["f-mon"], operation="OPTIMIZE")


def notes(statement: Statement) -> Statement:
    """A transaction that reads `t` and writes down what it saw elsewhere."""

    def run(tx: CatalogTransaction) -> None:
        statement(tx)
        tx.commit_actions("ledger", [add("note")])

    return run


HARMLESS: list[tuple[str, Statement, Statement]] = [
    ("an append meets an append", appends, lambda tx: tx.commit_actions("t", [add("o", day="mon")])),
    ("an append meets a delete", appends, deletes_monday),
    ("an append meets a compaction", appends, compacts_monday),
    (
        "a delete of monday meets an append to tuesday",
        deletes_monday,
        lambda tx: tx.commit_actions("t", [add("o", day="tue")]),
    ),
    (
        "a delete by statistics meets rows that cannot match",
        lambda tx: tx.commit_actions("t", [remove("f-mon", day="mon")], read="id < 50"),
        lambda tx: tx.commit_actions("t", [add("o", 60, 70, day="mon")]),
    ),
    ("a compaction meets an append", compacts_monday, appends),
    ("a reader of tuesday meets an append to monday", notes(lambda tx: tx.table("t").count("day = 'tue'")), appends),
    ("a reader meets a compaction", notes(lambda tx: tx.table("t").files()), compacts_monday),
    (
        "readers of different tables meet",
        notes(lambda tx: tx.table("ledger").count()),
        lambda tx: tx.commit_actions("t", [add("o", day="mon")]),
    ),
    ("who looked at the schema alone meets an append", notes(lambda tx: tx.table("t").schema()), appends),
    (
        "different applications meet",
        lambda tx: tx.commit_actions("t", [AppTransaction("a", 1), add("n", day="mon")]),
        lambda tx: tx.commit_actions("t", [AppTransaction("b", 1), add("o", day="mon")]),
    ),
]

CLASHES: list[tuple[str, Statement, Statement, type[CommitFailedError]]] = [
    ("a delete meets an append it would have seen", deletes_monday, appends, ConcurrentAppendError),
    (
        "a delete by statistics meets rows that match",
        lambda tx: tx.commit_actions("t", [remove("f-mon", day="mon")], read=[("id", "<", 50)]),
        lambda tx: tx.commit_actions("t", [add("o", 40, 70, day="mon")]),
        ConcurrentAppendError,
    ),
    ("a delete meets a delete of the same file", deletes_monday, deletes_monday, CommitFailedError),
    ("a compaction meets a delete", compacts_monday, deletes_monday, CommitFailedError),
    ("two compactions of one file meet", compacts_monday, compacts_monday, ConcurrentDeleteDeleteError),
    ("an overwrite meets an append", lambda tx: tx.write("t", days((1, "mon")), mode="overwrite"), appends,
     ConcurrentAppendError),
    ("a reader of all meets an append", notes(lambda tx: tx.table("t").files()), appends, ConcurrentAppendError),
    ("a reader of monday meets an append to it", notes(lambda tx: tx.table("t").plan("day = 'mon'")), appends,
     ConcurrentAppendError),
    ("a reader of rows meets an append", notes(lambda tx: tx.table("t").totals()), appends, ConcurrentAppendError),
    ("a reader of monday meets its deletion", notes(lambda tx: tx.table("t").plan("day = 'mon'")), deletes_monday,
     ConcurrentDeleteReadError),
    (
        "a reader of one file meets its deletion",
        lambda tx: tx.commit_actions("t", [add("n", day="tue")], read=ReadSet(files=frozenset({("f-mon", "")}))),
        deletes_monday,
        ConcurrentDeleteReadError,
    ),
    (
        "an application meets itself",
        lambda tx: tx.commit_actions("t", [AppTransaction("a", 1), add("n", day="mon")]),
        lambda tx: tx.commit_actions("t", [AppTransaction("a", 1), add("o", day="mon")]),
        ConcurrentTransactionError,
    ),
    (
        "who asked how far an application is meets its progress",
        notes(lambda tx: tx.table("t").transaction_version("a")),
        lambda tx: tx.commit_actions("t", [AppTransaction("a", 1)]),
        ConcurrentTransactionError,
    ),
    (
        "two changes of the metadata meet",
        lambda tx: tx.set_properties("t", {"a": "1"}),
        lambda tx: tx.add_columns("t", "note string"),
        MetadataChangedError,
    ),
]  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.parametrize(("mine", "theirs"), [case[1:] for case in HARMLESS], ids=[case[0] for case in HARMLESS])
def test_what_does_not_clash_is_committed_on_top(catalog: Catalog, mine: Statement, theirs: Statement) -> None:
    tx = race(catalog, mine, theirs)
    assert max(tx.result.values()) >= 1


@pytest.mark.in_turn
@pytest.mark.parametrize(("mine", "theirs", "error"), [case[1:] for case in CLASHES], ids=[case[0] for case in CLASHES])
def test_what_clashes_is_refused_by_name(
    catalog: Catalog, mine: Statement, theirs: Statement, error: type[CommitFailedError]
) -> None:
    ledger = catalog.table("ledger").version()
    with pytest.raises(error, match=r"default\.t") as caught:
        race(catalog, mine, theirs)
    assert "2" in str(caught.value), "the version that came first is named"
    assert catalog.table("ledger").version() == ledger, "the other tables of the loser stay as they were"
    assert catalog.table("t").version() == 2


def test_own_reads_of_own_writes_clash_with_nobody(catalog: Catalog) -> None:
    """A table that the transaction made is read by nobody else, whatever it reads of it."""
    tx = catalog.begin()
    tx.write("mine", numbers(1), mode="append")
    assert tx.table("mine").count() == 1
    with catalog.begin() as faster:
        faster.write("other", numbers(1), mode="append")
    assert tx.commit() == {"default.mine": 0}


def test_a_loser_may_do_it_again(catalog: Catalog) -> None:
    with pytest.raises(ConcurrentAppendError):
        race(catalog, deletes_monday, appends)
    with catalog.begin() as tx:
        gone = [remove(path, day="mon") for path in tx.table("t").plan("day = 'mon'").files.column("path").to_pylist()]
        tx.commit_actions("t", gone, read="day = 'mon'")
    assert catalog.table("t").plan("day = 'mon'").num_files == 0


def test_an_overwrite_leaves_no_row_behind_that_came_meanwhile(catalog: Catalog) -> None:
    with catalog.begin() as tx:
        tx.write("n", numbers(1), mode="append")
    with pytest.raises(ConcurrentAppendError, match="default.n"):
        race(
            catalog,
            lambda tx: tx.write("n", numbers(5), mode="overwrite"),
            lambda tx: tx.write("n", numbers(2), mode="append"),
        )
    assert ids_in(catalog, "n") == [1, 2]
