"""How far an application has come in a table: told and noted by transactions, the same on every engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deltalakedb import Catalog
from deltalakedb.exceptions import ConcurrentTransactionError, TableNotFoundError
from tests.conformance.transacting import numbers, open_catalog, operations


@pytest.fixture
def catalog(target: str, tmp_path: Path) -> Iterator[Catalog]:
    with open_catalog(target, tmp_path) as opened:
        yield opened


def test_it_is_noted_with_the_last_commit_of_the_transaction(catalog: Catalog) -> None:
    with catalog.begin() as tx:
        assert tx.app_version("a.rows", "query") is None
        tx.write("a.rows", numbers(1), mode="append")
        tx.set_app_version("a.rows", "query", 0)
        assert tx.app_version("a.rows", "query") == 0
        tx.write("a.rows", numbers(2), mode="append")
    assert tx.result == {"a.rows": 1}, "no version of its own"
    with catalog.begin() as tx:
        assert tx.app_version("a.rows", "query") == 0
        assert tx.app_version("a.rows", "other") is None
        assert tx.app_version("a.missing", "query") is None
    found = catalog.sql("select version, app_id, app_version from dl_txn_actions").to_pylist()
    assert found == [{"version": 1, "app_id": "query", "app_version": 0}]


def test_a_transaction_that_writes_nothing_else_makes_a_version_for_it(catalog: Catalog) -> None:
    with catalog.begin() as tx:
        tx.write("a.rows", numbers(1), mode="append")
    with catalog.begin() as tx:
        tx.set_app_version("a.rows", "query", 3)
    assert tx.result == {"a.rows": 1}
    assert operations(catalog, "a.rows")[-1] == "STREAMING UPDATE"
    assert catalog.validate("a.rows").drift is None


def test_two_transactions_that_note_the_same_application_conflict(catalog: Catalog) -> None:
    with catalog.begin() as tx:
        tx.write("a.rows", numbers(1), mode="append")
    first, second, other = catalog.begin(), catalog.begin(), catalog.begin()
    for tx in (first, second):
        tx.write("a.rows", numbers(2), mode="append")
        tx.set_app_version("a.rows", "query", 1)
    other.set_app_version("a.rows", "another", 1)
    assert first.commit() == {"a.rows": 1}
    with pytest.raises(ConcurrentTransactionError, match="query"):
        second.commit()
    assert other.commit() == {"a.rows": 2}
    assert catalog.table("a.rows").count() == 2


def test_it_cannot_be_noted_in_a_table_that_is_not_there(catalog: Catalog) -> None:
    with catalog.begin() as tx, pytest.raises(TableNotFoundError, match="a.missing"):
        tx.set_app_version("a.missing", "query", 0)
    assert tx.result == {}
