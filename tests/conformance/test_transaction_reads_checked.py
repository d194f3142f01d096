"""What a transaction has read is checked against what was committed first, in every kind; on every engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deltalakedb import Catalog, CatalogTransaction, DeltaTable
from deltalakedb.exceptions import (
    CommitFailedError,
    ConcurrentAppendError,
    ConcurrentTransactionError,
    MetadataChangedError,
)
from deltalakedb.log.protocol.actions import Action, AppTransaction, DomainMetadata, Protocol
from tests.conformance.transacting import add, days, numbers, open_catalog, remove

Call = Callable[[DeltaTable], object]


@pytest.fixture
def catalog(target: str, tmp_path: Path) -> Iterator[Catalog]:
    """`t` at version 2, with a change feed, and a ledger."""
    with open_catalog(target, tmp_path, mirror_mode="off") as opened:
        feed = {"delta.enableChangeDataFeed": "true"}
        opened.create_table("t", "id long, day string", partition_by="day", properties=feed)
        for number in (1, 2):
            with opened.begin() as tx:
                tx.write("t", days((number, "mon"), (number + 10, "tue")), mode="append")
        opened.create_table("ledger", "id long")
        yield opened


def appends(tx: CatalogTransaction) -> None:
    tx.write("t", days((7, "mon")), mode="append")


def compacts(tx: CatalogTransaction) -> None:
    tx.optimize("t")


def defines(tx: CatalogTransaction) -> None:
    tx.set_properties("t", {"custom": "1"})


def sets_a_domain(tx: CatalogTransaction) -> None:
    tx.commit_actions("t", [DomainMetadata("mine", "{}", removed=False)])


def applies(tx: CatalogTransaction) -> None:
    tx.set_app_version("t", "app", 1)


def states_the_protocol_again(tx: CatalogTransaction) -> None:
    tx.commit_actions("t", [tx._drafts.get("t").snapshot().protocol])


def spells_the_protocol_out(tx: CatalogTransaction) -> None:
    from deltalakedb.log.protocol.fence import fence, unfence

    tx.commit_actions("t", [unfence(fence(tx._drafts.get("t").snapshot().protocol))[0]])


def raises_the_protocol(tx: CatalogTransaction) -> None:
    protocol = tx._drafts.get("t").snapshot().protocol
    features = ("appendOnly", "invariants", "changeDataFeed", "checkConstraints", "generatedColumns")
    tx.commit_actions("t", [Protocol(protocol.min_reader_version, 7, None, (*features, "domainMetadata"))])


READERS: dict[str, Call] = {
    "rows": lambda t: t.to_pyarrow_table(),
    "feed": lambda t: t.load_cdf(),
    "definition": lambda t: t.schema(),
    "application": lambda t: t.transaction_version("app"),
    "history": lambda t: t.history(1),
}
CLASHES: dict[tuple[str, Callable[[CatalogTransaction], None]], type[CommitFailedError]] = {
    ("rows", appends): ConcurrentAppendError,
    ("rows", defines): MetadataChangedError,
    ("feed", appends): ConcurrentAppendError,
    ("feed", defines): MetadataChangedError,
    ("feed", sets_a_domain): MetadataChangedError,
    ("definition", defines): MetadataChangedError,
    ("definition", sets_a_domain): MetadataChangedError,
    ("application", applies): ConcurrentTransactionError,
    ("application", defines): MetadataChangedError,
    ("history", appends): ConcurrentAppendError,
    ("history", compacts): ConcurrentAppendError,
    ("history", defines): MetadataChangedError,
    ("history", sets_a_domain): ConcurrentAppendError,
    ("history", applies): ConcurrentAppendError,
    ("history", states_the_protocol_again): ConcurrentAppendError,
    ("history", spells_the_protocol_out): ConcurrentAppendError,
    **{(reader, raises_the_protocol): CommitFailedError for reader in READERS},
}
"""Who is refused when which commit comes first; everything else passes."""
WRITERS = (
    appends, compacts, defines, sets_a_domain, applies, states_the_protocol_again, spells_the_protocol_out,
    raises_the_protocol,
)  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.parametrize("theirs", WRITERS, ids=lambda one: one.__name__)
@pytest.mark.parametrize("mine", READERS)
def test_what_was_read_is_checked_against_what_came_first(
    catalog: Catalog, mine: str, theirs: Callable[[CatalogTransaction], None]
) -> None:
    if theirs is sets_a_domain:
        with catalog.begin() as tx:
            raises_the_protocol(tx)
    tx = catalog.begin()
    READERS[mine](tx.table("t"))
    tx.write("ledger", numbers(1), mode="append")
    with catalog.begin() as faster:
        theirs(faster)
    error = CLASHES.get((mine, theirs))
    if error is None:
        assert tx.commit() == {"default.ledger": 1}
    else:
        with pytest.raises(error, match=r"default\.t: version .* Nothing was committed"):
            tx.commit()
        assert catalog.table("ledger").count() == 0


# -- write skew: each of two transactions reads what the other writes


def skewed(
    catalog: Catalog,
    reads: Callable[[CatalogTransaction, str], object],
    writes: Callable[[CatalogTransaction, str], None],
) -> list[type[CommitFailedError]]:
    """Why transactions failed; one of two that have read each other's table must."""
    one, other = catalog.begin(), catalog.begin()
    reads(one, "a")
    reads(other, "b")
    writes(one, "b")
    writes(other, "a")
    failed: list[type[CommitFailedError]] = []
    for tx in (one, other):
        try:
            tx.commit()
        except CommitFailedError as error:
            failed.append(type(error))
    return failed


@pytest.fixture
def pair(catalog: Catalog) -> Catalog:
    for name in ("a", "b"):
        catalog.create_table(name, "id long", properties={"delta.enableChangeDataFeed": "true"})
    return catalog


def append_one(tx: CatalogTransaction, name: str) -> None:
    tx.write(name, numbers(1), mode="append")


def test_two_that_read_each_others_change_feed_do_not_both_commit(pair: Catalog) -> None:
    failed = skewed(pair, lambda tx, name: tx.table(name).load_cdf().read_all(), append_one)
    assert failed == [ConcurrentAppendError]


def test_two_that_read_each_others_past_changes_both_commit(pair: Catalog) -> None:
    for name in ("a", "b"):
        with pair.begin() as tx:
            append_one(tx, name)
    assert skewed(pair, lambda tx, name: tx.table(name).load_cdf(0, 0).read_all(), append_one) == []


def test_two_that_ask_how_far_each_others_application_is_do_not_both_commit(pair: Catalog) -> None:
    failed = skewed(
        pair, lambda tx, name: tx.app_version(name, "app"), lambda tx, name: tx.set_app_version(name, "app", 1)
    )
    assert failed == [ConcurrentTransactionError]


def test_two_that_ask_for_an_application_and_write_another_both_commit(pair: Catalog) -> None:
    def writes(tx: CatalogTransaction, name: str) -> None:
        tx.commit_actions(name, [AppTransaction("another", 1), add("n")])

    assert skewed(pair, lambda tx, name: tx.app_version(name, "app"), writes) == []


def test_two_that_read_each_others_schema_and_change_it_do_not_both_commit(pair: Catalog) -> None:
    failed = skewed(pair, lambda tx, name: tx.table(name).schema(), lambda tx, name: tx.add_columns(name, "n string"))
    assert failed == [MetadataChangedError]


def test_two_that_look_into_each_others_history_do_not_both_commit(pair: Catalog) -> None:
    for name in ("a", "b"):
        with pair.begin() as tx:
            tx.commit_actions(name, [add("f")])

    def writes(tx: CatalogTransaction, name: str) -> None:
        swap: list[Action] = [remove("f", data_change=False), add("g", data_change=False)]
        tx.commit_actions(name, swap, read=["f"], operation="OPTIMIZE")

    failed = skewed(pair, lambda tx, name: tx.table(name).history(1), writes)
    assert failed == [ConcurrentAppendError]
