"""Appends of Iceberg clients that meet other commits: appends in between do no harm, anything else is a conflict."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from functools import partial

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException

from deltalakedb import Catalog, DeltaTable
from deltalakedb.exceptions import CommitFailedError
from tests.conformance.transacting import days, ids_in, numbers
from tests.iceberg.delta.appending import Append, Lake, data_files
from tests.iceberg.delta.judges import check_readers

CONFLICT = (409, "CommitFailedException")


@pytest.fixture
def stale(catalog: Catalog, lake: Lake) -> Callable[[], Append]:
    """An append of 9 that was made when the table had the rows 1 and 2, in two files."""
    for number in (1, 2):
        with catalog.begin() as tx:
            tx.write("shop.t", numbers(number), mode="append")
    table = lake.load()
    files = data_files(table, numbers(9))
    return lambda: Append(table, files)


def test_an_append_after_appends_of_others_is_rebased(
    catalog: Catalog, lake: Lake, stale: Callable[[], Append]
) -> None:
    append = stale()
    catalog.table("shop.t")
    with catalog.begin() as tx:
        tx.write("shop.t", numbers(3), mode="append")
        tx.write("shop.t", numbers(4), mode="append")
    metadata = lake.post(append.body()).json["metadata"]
    assert metadata["current-snapshot-id"] == append.snapshot_id
    assert (metadata["snapshots"][-1]["sequence-number"], catalog.table("shop.t").version()) == (5, 4)
    check_readers(catalog, lake, numbers(1, 2, 3, 4, 9))


def test_an_append_after_files_were_only_rewritten_is_rebased(
    catalog: Catalog, lake: Lake, stale: Callable[[], Append]
) -> None:
    append = stale()
    catalog.table("shop.t").optimize.compact()
    assert lake.post(append.body()).status == 200
    check_readers(catalog, lake, numbers(1, 2, 9))


CHANGES: dict[str, Callable[[DeltaTable], object]] = {
    "delete": lambda table: table.delete("id = 1"),
    "update": lambda table: table.update({"id": "5"}, predicate="id = 1"),
    "properties": lambda table: table.alter.set_table_properties({"delta.appendOnly": "true"}),
    "constraint": lambda table: table.alter.add_constraint({"positive": "id > 0"}),
    "protocol": lambda table: table.alter.set_table_properties({"delta.enableDeletionVectors": "true"}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_an_append_after_any_other_change_is_a_conflict(
    catalog: Catalog, lake: Lake, stale: Callable[[], Append], change: str
) -> None:
    append = stale()
    CHANGES[change](catalog.table("shop.t"))
    before = catalog.table("shop.t").version(), ids_in(catalog, "shop.t")
    answer = lake.post(append.body())
    assert answer.error == CONFLICT
    assert "Nothing was committed" in answer.message
    assert (catalog.table("shop.t").version(), ids_in(catalog, "shop.t")) == before


def test_an_append_after_an_overwrite_or_another_schema_is_a_conflict(
    catalog: Catalog, lake: Lake, stale: Callable[[], Append]
) -> None:
    append = stale()
    for rows in (numbers(5), days((6, "a"))):
        with catalog.begin() as tx:
            tx.write("shop.t", rows, mode="overwrite", schema_mode="overwrite")
        assert lake.post(append.body()).error == CONFLICT
    assert ids_in(catalog, "shop.t") == [6]


def test_a_snapshot_that_the_table_never_had_is_no_base(
    catalog: Catalog, lake: Lake, stale: Callable[[], Append]
) -> None:
    append = stale()
    append.parent_id = 12345
    answer = lake.post(append.body())
    assert answer.error == CONFLICT
    current = append.table.metadata.current_snapshot_id
    assert answer.message == f"Requirement failed: branch main has changed: expected id 12345 != {current}"
    assert ids_in(catalog, "shop.t") == [1, 2]


REQUIREMENTS = {
    "uuid": ({"type": "assert-table-uuid", "uuid": str(uuid.UUID(int=0))}, "Requirement failed: UUID does not match"),
    "create": ({"type": "assert-create"}, "Requirement failed: table already exists"),
    "branch": (
        {"type": "assert-ref-snapshot-id", "ref": "audit", "snapshot-id": 5},
        "Requirement failed: branch or tag audit is missing, expected 5",
    ),
    "no main": (
        {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None},
        "Requirement failed: branch main was created concurrently",
    ),
    "schema": (
        {"type": "assert-current-schema-id", "current-schema-id": 77},
        "Requirement failed: current schema changed",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REQUIREMENTS)
def test_other_requirements_are_checked(catalog: Catalog, lake: Lake, stale: Callable[[], Append], name: str) -> None:
    requirement, message = REQUIREMENTS[name]
    body = stale().body()
    body["requirements"] = [*([] if name == "no main" else body["requirements"]), requirement]
    answer = lake.post(body)
    assert answer.error == CONFLICT
    assert answer.message.startswith(message)
    assert ids_in(catalog, "shop.t") == [1, 2]


def test_the_requirement_that_a_branch_does_not_exist_holds(lake: Lake, stale: Callable[[], Append]) -> None:
    body = stale().body()
    body["requirements"].append({"type": "assert-ref-snapshot-id", "ref": "audit", "snapshot-id": None})
    assert lake.post(body).status == 200


def test_a_request_without_updates_only_checks(catalog: Catalog, lake: Lake, stale: Callable[[], Append]) -> None:
    requirements = stale().body()["requirements"]
    assert lake.post({"requirements": requirements, "updates": []}).status == 200
    with catalog.begin() as tx:
        tx.write("shop.t", numbers(3), mode="append")
    assert lake.post({"requirements": requirements, "updates": []}).error == CONFLICT


def test_the_same_request_at_the_same_time_is_done_once(
    catalog: Catalog, lake: Lake, stale: Callable[[], Append]
) -> None:
    body = stale().body()
    answers = []
    start = threading.Barrier(6)

    def post() -> None:
        start.wait()
        answers.append(lake.post(body, **{"Idempotency-Key": str(uuid.uuid4())}).status)

    threads = [threading.Thread(target=post) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [200] * 6
    assert catalog.table("shop.t").version() == 2
    check_readers(catalog, lake, numbers(1, 2, 9))


def test_racing_appends_beside_delta_writers_and_optimize_are_all_there_once(catalog: Catalog, lake: Lake) -> None:
    """Four Iceberg clients, two Delta writers, and a table that is compacted again and again."""
    with catalog.begin() as tx:
        tx.write("shop.t", days((0, "a")), partition_by=["day"])
    acknowledged: list[int] = [0]
    errors: list[BaseException] = []
    writing = threading.Event()

    def iceberg(number: int) -> None:
        for count in range(8):
            row = number * 100 + count
            rows = days((row, "ab"[count % 2]))
            if number % 2:
                assert lake.append(rows).status == 200
            else:
                table = lake.load()
                try:
                    table.append(rows)
                except CommitFailedException:
                    continue
            acknowledged.append(row)

    def delta(number: int) -> None:
        for count in range(8):
            row = number * 100 + count
            with catalog.begin() as tx:
                tx.write("shop.t", days((row, "a")), mode="append")
            acknowledged.append(row)

    def optimize() -> None:
        while not writing.is_set():
            try:
                catalog.table("shop.t").optimize.compact()
            except CommitFailedError:
                continue

    def guarded(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                errors.append(error)

        return run

    clients = [guarded(partial(iceberg, n)) for n in range(1, 5)] + [guarded(partial(delta, n)) for n in (5, 6)]
    threads = [threading.Thread(target=work) for work in clients]
    compacting = threading.Thread(target=guarded(optimize))
    for thread in [*threads, compacting]:
        thread.start()
    for thread in threads:
        thread.join()
    writing.set()
    compacting.join()
    assert not errors
    rows = pa.table(catalog.table("shop.t").to_pyarrow_table()).sort_by("id")
    assert rows["id"].to_pylist() == sorted(acknowledged)
    assert len(acknowledged) == 1 + 6 * 8
    check_readers(catalog, lake, rows)
