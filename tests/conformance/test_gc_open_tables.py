"""A table that was opened before `dl gc` removed its version says so, whatever is asked of it; on every engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deltalakedb import Catalog, DeltaTable
from deltalakedb.exceptions import VersionNotFoundError
from deltalakedb.store.gc import collect_garbage
from tests.conformance.collecting import EVERYTHING
from tests.conformance.transacting import days, open_catalog


@pytest.fixture
def catalog(target: str, tmp_path: Path) -> Iterator[Catalog]:
    """A table with a change feed; each of its versions 1 to 4 replaces all rows."""
    with open_catalog(target, tmp_path) as opened:
        opened.create_table(
            "t", "id long, day string", partition_by="day", properties={"delta.enableChangeDataFeed": "true"}
        )
        for number in range(1, 5):
            with opened.begin() as tx:
                tx.set_app_version("t", "app", number)
                tx.write("t", days((number, "mon"), (number + 10, "tue")), mode="overwrite")
        yield opened


def collect(catalog: Catalog) -> None:
    catalog.mirror.flush()
    (done,) = collect_garbage(catalog.store, EVERYTHING).tables
    assert done.base_version == 3


QUESTIONS: dict[str, Callable[[DeltaTable], object]] = {
    "count": lambda table: table.count(),
    "count with a predicate": lambda table: table.count("day = 'mon'"),
    "count with a predicate that is never true": lambda table: table.count("id > 5 and id < 3"),
    "totals": lambda table: table.totals(),
    "files": lambda table: table.files(),
    "file_uris": lambda table: table.file_uris(),
    "partitions": lambda table: table.partitions(),
    "get_add_actions": lambda table: table.get_add_actions(),
    "rows": lambda table: table.to_pyarrow_table(),
    "rows with a filter": lambda table: table.to_pyarrow_table(filters="id > 1"),
    "dataset": lambda table: table.to_pyarrow_dataset(),
    "plan": lambda table: table.plan("id > 1").num_files,
    "plan of nothing": lambda table: table.plan("id > 5 and id < 3").num_files,
    "deletion_vectors": lambda table: table.deletion_vectors().read_all(),
    "history": lambda table: table.history(),
    "history of some time": lambda table: table.history(since=0, until=1),
    "lineage": lambda table: table.lineage(),
    "diff": lambda table: table.diff(1, 4),
    "load_cdf": lambda table: table.load_cdf(1).read_all(),
    "transaction_version": lambda table: table.transaction_version("app"),
    "domain_metadata": lambda table: table.domain_metadata(),
    "restore": lambda table: table.restore(1),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_version_that_gc_removed_is_not_answered_for(catalog: Catalog, question: str) -> None:
    table = catalog.table("t", version=1)
    assert (table.count(), table.transaction_version("app")) == (2, 1)
    collect(catalog)
    with pytest.raises(VersionNotFoundError, match=r"default\.t: version 1 .* because `dl gc` removed"):
        QUESTIONS[question](table)


@pytest.mark.parametrize("version", [3, 4])
def test_a_version_that_gc_has_kept_answers_as_before(catalog: Catalog, version: int) -> None:
    table = catalog.table("t", version=version)
    before = (table.count(), sorted(table.file_uris()), table.plan("id > 1").num_files)
    collect(catalog)
    assert (table.count(), sorted(table.file_uris()), table.plan("id > 1").num_files) == before
    assert [entry["version"] for entry in table.history()] == list(range(version, 2, -1))
    assert table.transaction_version("app") == version


def test_a_transaction_whose_version_gc_removed_reads_nothing_wrong(catalog: Catalog) -> None:
    tx = catalog.begin()
    for number in (5, 6):
        with catalog.begin() as faster:
            faster.write("t", days((number, "mon")), mode="append")
    catalog.mirror.flush()
    collect_garbage(catalog.store, EVERYTHING)
    with pytest.raises(VersionNotFoundError, match="version 4 .* because `dl gc` removed"):
        tx.table("t").count()
    with pytest.raises(VersionNotFoundError, match="version 4 .* because `dl gc` removed"):
        tx.app_version("t", "app")
    tx.write("t", days((7, "mon")), mode="append")
    with pytest.raises(VersionNotFoundError, match="version 4 .* because `dl gc` removed"):
        tx.table("t").history()
    tx.rollback()
