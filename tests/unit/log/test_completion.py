"""A commit is finished by the same rules whether its log is in SQL or in files."""

import pytest

from deltalakedb.exceptions import ConcurrentTransactionError
from deltalakedb.log.protocol.actions import Action, AddFile, AppTransaction, DomainMetadata, Format, Metadata, Protocol
from deltalakedb.log.protocol.completion import (
    ENABLEMENT_TIMESTAMP,
    ENABLEMENT_VERSION,
    IN_COMMIT_TIMESTAMPS,
    ROW_TRACKING,
    InForce,
    check_applications,
    high_water_mark,
)

SCHEMA = '{"type":"struct","fields":[]}'
TRACKED = Protocol(1, 7, None, ("rowTracking", "domainMetadata"))


def metadata(**configuration: str) -> Metadata:
    return Metadata("id", Format(), SCHEMA, (), {f"delta.{key}": value for key, value in configuration.items()})


def add(path: str, records: int) -> AddFile:
    return AddFile(path, {}, 1, 1, data_change=True, stats=f'{{"numRecords":{records}}}')


def test_in_commit_timestamps_record_the_version_that_turned_them_on() -> None:
    in_force = InForce(Protocol(1, 2), metadata())
    (changed,) = in_force.finish([metadata(enableInCommitTimestamps="true")], version=4, at_ms=40, table="t")
    assert isinstance(changed, Metadata)
    assert changed.configuration == {IN_COMMIT_TIMESTAMPS: "true", ENABLEMENT_VERSION: "4", ENABLEMENT_TIMESTAMP: "40"}
    assert in_force.metadata == changed
    again = metadata(enableInCommitTimestamps="true", appendOnly="true")
    assert in_force.finish([again], version=5, at_ms=50, table="t") == [again]


def test_a_table_that_begins_with_in_commit_timestamps_records_no_version() -> None:
    first = metadata(enableInCommitTimestamps="true")
    assert (
        InForce().finish([Protocol(1, 7, None, ("inCommitTimestamp",)), first], version=0, at_ms=1, table="t")[1]
        is first
    )


def test_row_ids_go_on_where_the_last_commit_ended() -> None:
    in_force = InForce(TRACKED, metadata(), row_id_mark=9)
    first = in_force.finish([add("a", 5), add("b", 2)], version=3, at_ms=1, table="t")
    second = in_force.finish([add("c", 1)], version=4, at_ms=2, table="t")
    adds = [action for action in (*first, *second) if isinstance(action, AddFile)]
    assert [(one.base_row_id, one.default_row_commit_version) for one in adds] == [(10, 3), (15, 3), (17, 4)]
    marks = [action for action in (*first, *second) if isinstance(action, DomainMetadata)]
    assert [(mark.domain, high_water_mark(mark)) for mark in marks] == [
        (ROW_TRACKING, 16),
        (ROW_TRACKING, 17),
    ]


def test_a_table_without_row_tracking_gets_no_row_ids() -> None:
    in_force = InForce(Protocol(1, 2), metadata())
    assert in_force.finish([add("a", 5)], version=3, at_ms=1, table="t") == [add("a", 5)]


@pytest.mark.parametrize("version", [6, 7])
def test_the_version_of_an_application_must_grow(version: int) -> None:
    actions: list[Action] = [add("a", 1), AppTransaction("load", version)]
    with pytest.raises(ConcurrentTransactionError, match="application load is at version 7 already") as raised:
        check_applications(actions, {"load": 7}, table="sales.orders", version=3)
    assert (raised.value.table, raised.value.version) == ("sales.orders", 3)
    check_applications(actions, {"load": 5, "other": 9}, table="sales.orders", version=3)
