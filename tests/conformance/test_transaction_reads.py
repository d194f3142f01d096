"""Every read of a table inside a transaction is recorded, or there is a reason why not; on every engine.

`docs/transactions.md` ("What counts as read") is the rule in words. A new public member of DeltaTable, or of what it
hands out, fails here until somebody has decided what it records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltalakedb import Catalog, CatalogTransaction, DeltaTable, QueryBuilder
from deltalakedb.alter import TableAlterer
from deltalakedb.exceptions import DeltaError, VersionNotFoundError
from deltalakedb.log.protocol.proposal import DEFINITION, HISTORY, NOTHING_READ, WHOLE_TABLE, ReadSet
from deltalakedb.optimize import TableOptimizer
from tests.conformance.transacting import days, open_catalog

Call = Callable[[DeltaTable], object]

ALL = WHOLE_TABLE
FEED = WHOLE_TABLE | DEFINITION
MONDAY = "day = 'mon'"
LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)

READING: dict[str, list[tuple[Call, ReadSet | str]]] = {
    # rows, and what the log says of the files that hold them
    "to_pyarrow_table": [
        (lambda t: t.to_pyarrow_table(), ALL),
        (lambda t: t.to_pyarrow_table(columns=["id"], filters=MONDAY), MONDAY),
        (lambda t: t.to_pyarrow_table(filters=[("day", "=", "mon")]), MONDAY),
    ],
    "to_pandas": [(lambda t: t.to_pandas(), ALL), (lambda t: t.to_pandas(filters=MONDAY), MONDAY)],
    "to_pyarrow_dataset": [
        (lambda t: t.to_pyarrow_dataset(), ALL | DEFINITION),
        (lambda t: t.to_pyarrow_dataset(file_pruning_predicate=MONDAY), MONDAY),
    ],
    "lazy_dataset": [
        (lambda t: t.lazy_dataset(), DEFINITION),
        (lambda t: t.lazy_dataset().to_table(), ALL | DEFINITION),
        (lambda t: t.lazy_dataset().to_table(filter=pa.compute.field("day") == "mon"), MONDAY),
        (lambda t: list(t.lazy_dataset().get_fragments()), ALL | DEFINITION),
    ],
    "to_pyarrow_reader": [
        (lambda t: t.to_pyarrow_reader(), ALL),
        (lambda t: t.to_pyarrow_reader(filters=MONDAY), MONDAY),
    ],
    "scan": [(lambda t: t.scan(), ALL), (lambda t: t.scan(predicate=MONDAY), MONDAY)],
    "__arrow_c_stream__": [(lambda t: pa.table(t), ALL)],
    "files": [(lambda t: t.files(["path"]), ALL)],
    "file_uris": [(lambda t: t.file_uris(), ALL), (lambda t: t.file_uris(file_pruning_predicate=MONDAY), MONDAY)],
    "partitions": [(lambda t: t.partitions(), ALL), (lambda t: t.partitions(file_pruning_predicate=MONDAY), MONDAY)],
    "get_add_actions": [(lambda t: t.get_add_actions(), ALL)],
    "count": [(lambda t: t.count(), ALL), (lambda t: t.count(MONDAY), MONDAY)],
    "totals": [(lambda t: t.totals(), ALL)],
    "plan": [(lambda t: t.plan(MONDAY), MONDAY)],
    "stats_of": [(lambda t: t.stats_of("id"), ALL)],
    "partition_counts": [(lambda t: t.partition_counts(), ALL)],
    "deletion_vectors": [(lambda t: t.deletion_vectors(), ALL)],
    "load_cdf": [
        (lambda t: t.load_cdf(), FEED),
        (lambda t: t.load_cdf(predicate=MONDAY), FEED),
        (lambda t: t.load_cdf(1, 1), NOTHING_READ),
        (lambda t: t.load_cdf(1, 2), FEED),
        (lambda t: t.load_cdf(1, 99), FEED),
        (lambda t: t.load_cdf(99, allow_out_of_range=True), FEED),
        (lambda t: t.load_cdf(1, ending_timestamp=LONG_AGO.isoformat()), NOTHING_READ),
        (lambda t: t.load_cdf(1, ending_timestamp="2100-01-01T00:00:00Z"), FEED),
        (lambda t: t.load_cdf(starting_timestamp="2100-01-01T00:00:00Z", allow_out_of_range=True), FEED),
    ],
    "diff": [(lambda t: t.diff(0, 1), NOTHING_READ), (lambda t: t.diff(2, 0), FEED)],
    "lineage": [(lambda t: t.lineage(), FEED)],
    # the definition
    "schema": [(lambda t: t.schema(), DEFINITION)],
    "metadata": [(lambda t: t.metadata(), DEFINITION)],
    "protocol": [(lambda t: t.protocol(), DEFINITION)],
    "domain_metadata": [(lambda t: t.domain_metadata(), DEFINITION)],
    # applications
    "transaction_version": [(lambda t: t.transaction_version("app"), ReadSet(app_ids=frozenset({"app"})))],
    # commits
    "history": [
        (lambda t: t.history(), HISTORY),
        (lambda t: t.history(1), HISTORY),
        (lambda t: t.history(until="2100-01-01"), HISTORY),
        (lambda t: t.history(until=LONG_AGO), NOTHING_READ),
    ],
}
"""What each call records: a read set, or the predicate that it records beside others."""

POSITIONS = {
    "version", "committed_at_ms", "table_uri", "name", "mode", "table_config", "load_as_version",
    "update_incremental", "close",
}  # fmt: skip
"""Where the transaction stands, and how the table is registered: names and places are pinned as the registry is."""

STATEMENTS = {"alter", "optimize", "delete", "update", "merge", "restore", "repair", "create_write_transaction"}
"""Each becomes a statement of the transaction, and says itself what it read."""

REFUSED: dict[str, Call] = {
    "vacuum": lambda t: t.vacuum(),
    "create_checkpoint": lambda t: t.create_checkpoint(),
    "compact_logs": lambda t: t.compact_logs(0, 1),
    "cleanup_metadata": lambda t: t.cleanup_metadata(),
    "generate": lambda t: t.generate(),
}
OUTSIDE = {"create", "from_catalog", "from_view", "is_deltatable"}
"""Of the class, not of a table of the transaction."""

NOT_OF_OLDER_VERSIONS = {"load_cdf", "diff", "partition_counts"}
"""These take versions, or count the newest one only."""


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


def members_of(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def recorded(tx: CatalogTransaction, name: str = "t") -> ReadSet:
    return tx._drafts.get(name).read


def test_it_is_decided_what_every_member_of_a_table_records() -> None:
    decided = [set(READING), POSITIONS, STATEMENTS, set(REFUSED), OUTSIDE]
    assert set().union(*decided) == members_of(DeltaTable) | {"__arrow_c_stream__"}
    assert sum(map(len, decided)) == len(set().union(*decided)), "one decision each"
    handed_out = members_of(TableAlterer) | members_of(TableOptimizer)
    changing = {
        "add_columns", "add_constraint", "add_feature", "compact", "drop_column_not_null", "drop_constraint", "run",
        "set_column_metadata", "set_table_description", "set_table_name", "set_table_properties", "z_order",
    }  # fmt: skip
    assert handed_out == changing, "all of them are statements"


CALLS = [(name, number) for name, calls in READING.items() for number in range(len(calls))]


@pytest.mark.in_turn
@pytest.mark.parametrize(("member", "number"), CALLS, ids=[f"{name}-{number}" for name, number in CALLS])
def test_a_read_is_recorded(catalog: Catalog, member: str, number: int) -> None:
    call, expected = READING[member][number]
    with catalog.begin() as tx:
        table = tx.table("t")
        assert recorded(tx) == NOTHING_READ, "to open a table is not to read it"
        call(table)
        if isinstance(expected, ReadSet):
            assert recorded(tx) == expected
        else:
            assert [one.disjuncts for one in recorded(tx).predicates] == [table._parse(expected).disjuncts]
            assert not recorded(tx).whole_table


@pytest.mark.in_turn
@pytest.mark.parametrize("member", [name for name in READING if name not in NOT_OF_OLDER_VERSIONS])
def test_an_older_version_never_changes_so_reading_it_is_not_recorded(catalog: Catalog, member: str) -> None:
    with catalog.begin() as tx:
        table = tx.table("t")
        table.load_as_version(1)
        for call, _ in READING[member]:
            call(table)
        assert recorded(tx) == NOTHING_READ


def test_the_newest_version_counts_however_it_was_named(catalog: Catalog) -> None:
    for name in (2, datetime.now(UTC) + timedelta(days=1)):
        with catalog.begin() as tx:
            table = tx.table("t")
            table.load_as_version(name)
            table.to_pyarrow_table()
            assert recorded(tx) == WHOLE_TABLE


def test_the_change_feed_is_read_up_to_the_newest_version_from_an_older_one_too(catalog: Catalog) -> None:
    with catalog.begin() as tx:
        table = tx.table("t")
        table.load_as_version(1)
        table.load_cdf()
        assert recorded(tx) == FEED


@pytest.mark.parametrize("member", sorted(POSITIONS - {"load_as_version"}))
def test_where_the_transaction_stands_is_not_recorded(catalog: Catalog, member: str) -> None:
    with catalog.begin() as tx:
        found: Any = getattr(tx.table("t"), member) if member != "table_config" else None
        if callable(found):
            found()
        assert recorded(tx) == NOTHING_READ


@pytest.mark.parametrize("member", REFUSED)
def test_what_works_on_files_is_refused(catalog: Catalog, member: str) -> None:
    with catalog.begin() as tx, pytest.raises(DeltaError, match="no part of a transaction"):
        REFUSED[member](tx.table("t"))


NOTHING_TO_DO: dict[str, tuple[Callable[[CatalogTransaction], object], ReadSet | str]] = {
    "delete": (lambda tx: tx.delete("t", "id > 500"), "id > 500"),
    "update": (lambda tx: tx.update("t", {"id": "1"}, predicate="id > 500"), "id > 500"),
    "repair": (lambda tx: tx.repair("t"), WHOLE_TABLE),
    "repair as a dry run": (lambda tx: tx.repair("t", dry_run=True), WHOLE_TABLE),
    "properties that are set": (lambda tx: tx.set_properties("t", {"delta.enableChangeDataFeed": "true"}), DEFINITION),
    "a constraint that is not there": (
        lambda tx: tx.alter("t").drop_constraint("none", raise_if_not_exists=False),
        DEFINITION,
    ),
}


@pytest.mark.in_turn
@pytest.mark.parametrize("statement", NOTHING_TO_DO)
def test_a_statement_that_finds_nothing_to_do_has_read_that(catalog: Catalog, statement: str) -> None:
    run, expected = NOTHING_TO_DO[statement]
    with catalog.begin() as tx:
        run(tx)
        read = recorded(tx)
        assert not tx._drafts.get("t").commits
        if isinstance(expected, ReadSet):
            assert read == expected
        else:
            assert [one.text for one in read.predicates] == [expected]


def test_queries_of_others_on_a_table_of_the_transaction_are_recorded(catalog: Catalog) -> None:
    import duckdb

    with catalog.begin() as tx:
        QueryBuilder().register("t", tx.table("t")).execute(f"select id from t where {MONDAY}").read_all()
        assert not recorded(tx).whole_table
        assert [one.disjuncts for one in recorded(tx).predicates] == [tx.table("t")._parse(MONDAY).disjuncts]
    with catalog.begin() as tx:
        lazy = tx.table("t").lazy_dataset()  # noqa: F841  the query names it
        assert duckdb.sql("select count(*) from lazy").fetchall() == [(4,)]
        assert recorded(tx).whole_table


def test_what_polars_reads_is_recorded(catalog: Catalog) -> None:
    from deltalakedb.polars import read_delta

    with catalog.begin() as tx:
        assert read_delta(tx.table("t")).height == 4
        assert recorded(tx).whole_table


def test_a_transaction_does_not_see_versions_that_came_after_it(catalog: Catalog) -> None:
    tx = catalog.begin()
    with catalog.begin() as faster:
        faster.write("t", days((3, "mon")), mode="append")
    table = tx.table("t")
    for look in (lambda: table.diff(2, 3), lambda: table.load_as_version(3), lambda: table.restore(3)):
        with pytest.raises(VersionNotFoundError, match="this transaction sees versions up to 2"):
            look()
    assert [entry["version"] for entry in table.history()] == [2, 1, 0]
    table.load_as_version(datetime.now(UTC) + timedelta(days=1))
    assert (table.version(), table.count()) == (2, 4)


def test_own_changes_are_not_taken_for_a_version_of_somebody_else(catalog: Catalog) -> None:
    """Both are version 3 of the table: that of the transaction, and the one that was committed meanwhile."""
    tx = catalog.begin()
    tx.write("t", days((3, "wed")), mode="append")
    with catalog.begin() as faster:
        faster.write("t", days((500, "thu")), mode="append")
    table = tx.table("t")
    assert table.stats_of("id").max is None
    with pytest.raises(DeltaError, match="at the newest version only"):
        table.partition_counts()
    with pytest.raises(VersionNotFoundError, match="its own changes as the newest state"):
        table.lineage()
    tx.rollback()
