"""Each rule of the conflict check, as a sentence."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from typing import Any

import pytest

from deltalakedb.exceptions import (
    CommitFailedError,
    ConcurrentAppendError,
    ConcurrentDeleteDeleteError,
    ConcurrentDeleteReadError,
    ConcurrentTransactionError,
    MetadataChangedError,
    ProtocolChangedError,
)
from deltalakedb.log.checks.conflicts import Needs, Winner, check, needs
from deltalakedb.log.predicates.predicate import parse_predicate
from deltalakedb.log.protocol.actions import (
    Action,
    AddFile,
    AppTransaction,
    DeletionVector,
    DomainMetadata,
    Format,
    Metadata,
    Protocol,
    RemoveFile,
)
from deltalakedb.log.protocol.proposal import NOTHING_READ, WHOLE_TABLE, ProposedCommit, ReadSet
from deltalakedb.log.schema.types import PrimitiveType, StructField, StructType, parse_schema

SCHEMA = StructType(
    (
        StructField("day", PrimitiveType("string")),
        StructField("x", PrimitiveType("long")),
        StructField(
            "n", PrimitiveType("long"), metadata={"delta.identity.start": 1, "delta.identity.highWaterMark": 7}
        ),
    )
)
METADATA = Metadata("id", Format(), SCHEMA.to_json(), ("day",), {})
PROTOCOL = Protocol(1, 7, None, ("appendOnly", "invariants", "identityColumns"))


def add(path: str = "new", day: str | None = "mon", low: int = 0, high: int = 9, **fields: Any) -> AddFile:
    stats = {"numRecords": 3, "minValues": {"x": low}, "maxValues": {"x": high}, "nullCount": {"x": 0}}
    return AddFile(path, {"day": day}, 10, 1, fields.pop("data_change", True), json.dumps(stats), **fields)


def remove(path: str = "old", day: str | None = "mon", low: int = 0, high: int = 9, **fields: Any) -> RemoveFile:
    told = add(path, day, low, high)
    values = {"partition_values": told.partition_values, "stats": told.stats, "data_change": True, **fields}
    return RemoveFile(path, **values)


def rows(predicate: str) -> ReadSet:
    return ReadSet(predicates=(parse_predicate(predicate, SCHEMA, ("day",)),))


def files(*paths: str) -> ReadSet:
    return ReadSet(files=frozenset((path, "") for path in paths))


def mine(*actions: Action, read: ReadSet = NOTHING_READ, operation: str = "WRITE") -> ProposedCommit:
    return ProposedCommit(actions, operation, read=read)


def judge(
    proposed: ProposedCommit | list[ProposedCommit],
    *winners: list[Action],
    also_read: ReadSet = NOTHING_READ,
    protocol: Protocol | None = PROTOCOL,
) -> None:
    commits = proposed if isinstance(proposed, list) else [proposed]
    won = [Winner(12 + number, tuple(actions)) for number, actions in enumerate(winners)]
    check("sales.orders", commits, also_read, won, schema=SCHEMA, metadata=METADATA, protocol=protocol)


# ---- blind appends


def test_a_blind_append_follows_any_change_of_data() -> None:
    judge(mine(add()), [add("theirs")], [remove(), add("rewritten")], [remove(data_change=False)])


def test_a_blind_append_asks_for_no_file_of_the_winners() -> None:
    assert needs([mine(add())], NOTHING_READ) == Needs()
    assert needs([mine(add(), AppTransaction("app", 1))], NOTHING_READ) == Needs(txns=True)


def test_a_blind_append_still_meets_a_changed_schema_and_a_changed_protocol() -> None:
    with pytest.raises(MetadataChangedError):
        judge(mine(add()), [replace(METADATA, description="new")])
    with pytest.raises(ProtocolChangedError):
        judge(mine(add()), [Protocol(1, 2)])


def test_an_append_whose_transaction_read_the_table_is_not_blind() -> None:
    with pytest.raises(ConcurrentAppendError):
        judge(mine(add()), [add("theirs")], also_read=WHOLE_TABLE)
    assert needs([mine(add())], WHOLE_TABLE) == Needs(adds=True, removes=True)


# ---- rows added


def test_rows_added_to_what_was_read_are_a_clash() -> None:
    with pytest.raises(ConcurrentAppendError) as raised:
        judge(mine(add(), read=rows("day = 'mon'"), operation="MERGE"), [add("theirs", "mon")])
    assert str(raised.value) == (
        "Commit failed: a concurrent transactions added new data. Table sales.orders: version 12 added theirs "
        "(day=mon), which may hold rows that this transaction's MERGE read "
        "(day = 'mon'). Nothing was committed. Open the table again and repeat the statement."
    )
    assert (raised.value.table, raised.value.version, raised.value.path) == ("sales.orders", 12, "theirs")


@pytest.mark.parametrize(
    "theirs",
    [
        add("theirs", "tue"),
        add("theirs", None),
        add("theirs", "mon", 10, 20),
        add("theirs", "mon", data_change=False),
    ],
    ids=["another partition", "the null partition", "other statistics", "rows that were there before"],
)
def test_files_that_cannot_hold_rows_that_were_read_are_no_clash(theirs: AddFile) -> None:
    judge(mine(add(), read=rows("day = 'mon' and x < 10")), [theirs])


@pytest.mark.parametrize(
    "theirs",
    [
        replace(add("theirs", "mon", 10, 20), stats=None),
        replace(add("theirs", "mon", 10, 20), stats="no json"),
        replace(add("theirs", "mon", 10, 20), partition_values={}, stats=None),
    ],
    ids=["no statistics", "unreadable statistics", "nothing known at all"],
)
def test_a_file_of_which_little_is_known_may_hold_any_row(theirs: AddFile) -> None:
    with pytest.raises(ConcurrentAppendError):
        judge(mine(add(), read=rows("day = 'mon' and x < 10")), [theirs])


def test_a_condition_that_statistics_cannot_judge_meets_every_file_of_the_partition() -> None:
    read = rows("day = 'mon' and x % 7 = 3")
    judge(mine(add(), read=read), [add("theirs", "tue")])
    with pytest.raises(ConcurrentAppendError):
        judge(mine(add(), read=read), [add("theirs", "mon")])


def test_a_whole_table_that_was_read_meets_every_added_row() -> None:
    with pytest.raises(ConcurrentAppendError, match="this transaction's WRITE read the whole table"):
        judge(mine(remove(), add(), read=WHOLE_TABLE), [add("theirs")])


def test_who_deletes_and_does_not_say_what_it_read_has_read_everything() -> None:
    with pytest.raises(ConcurrentAppendError):
        judge(mine(remove()), [add("theirs", "tue")])
    judge(mine(remove(), read=files("old")), [add("theirs", "tue")])


def test_the_first_of_thousands_of_files_that_may_match_is_named() -> None:
    theirs: list[Action] = [add(f"f{number}", "tue") for number in range(5000)]
    theirs[4321] = add("f4321", "mon")
    with pytest.raises(ConcurrentAppendError) as raised:
        judge(mine(add(), read=rows("day = 'mon' and x = 3")), theirs)
    assert raised.value.path == "f4321"


def test_every_winner_counts_not_only_the_first() -> None:
    with pytest.raises(ConcurrentAppendError) as raised:
        judge(mine(add(), read=rows("day = 'mon'")), [add("a", "tue")], [add("b", "wed")], [add("c", "mon")])
    assert raised.value.version == 14


# ---- rows deleted


def test_a_file_that_was_read_and_is_gone_is_a_clash() -> None:
    with pytest.raises(ConcurrentDeleteReadError, match=r"version 12 deleted old \(day=mon\), which"):
        judge(mine(add(), read=files("old")), [remove()])
    judge(mine(add(), read=files("other")), [remove()])


def test_deleted_rows_that_a_predicate_may_have_matched_are_a_clash() -> None:
    with pytest.raises(ConcurrentDeleteReadError, match=r"may have held rows that this transaction's WRITE read \(x"):
        judge(mine(add(), read=rows("x = 5")), [remove()])
    judge(mine(add(), read=rows("x = 50")), [remove()])
    judge(mine(add(), read=rows("day = 'tue'")), [remove()])


def test_a_remove_that_does_not_say_what_it_held_may_have_held_anything() -> None:
    with pytest.raises(ConcurrentDeleteReadError):
        judge(mine(add(), read=rows("day = 'tue'")), [RemoveFile("old", data_change=True)])


def test_rows_that_were_only_rearranged_disturb_no_reader() -> None:
    compacted: list[Action] = [remove(data_change=False), add("compact", data_change=False)]
    for read in (WHOLE_TABLE, rows("day = 'mon'"), files("old")):
        judge(mine(add(), read=read), compacted)


def test_a_file_that_was_read_is_followed_into_the_files_it_was_rearranged_into() -> None:
    compacted: list[Action] = [remove(data_change=False), add("compact", data_change=False)]
    again: list[Action] = [remove("compact", data_change=False), add("larger", data_change=False)]
    with pytest.raises(ConcurrentDeleteReadError, match="version 14 deleted larger"):
        judge(mine(add(), read=files("old")), compacted, again, [remove("larger")])
    judge(mine(add(), read=files("old")), compacted, again, [remove("elsewhere")])


def test_a_file_deleted_twice_is_a_clash_even_if_its_rows_were_only_rearranged() -> None:
    with pytest.raises(ConcurrentDeleteDeleteError, match=r"old \(day=mon\), which this transaction \(DELETE\)"):
        judge(
            mine(remove(), read=rows("day = 'mon' and x > 100"), operation="DELETE"),
            [remove(data_change=False), add("compact", data_change=False)],
        )


def test_two_deletion_vectors_for_one_file_are_a_clash() -> None:
    one, other = (DeletionVector("u", name * 20, 1, 1) for name in "ab")
    ours = mine(remove("f"), add("f", deletion_vector=one), read=rows("x = 100"))
    with pytest.raises(ConcurrentDeleteDeleteError):
        judge(ours, [remove("f"), add("f", deletion_vector=other)])


def test_a_file_that_was_deleted_is_not_brought_back_by_new_statistics_for_it() -> None:
    restated = mine(add("old", data_change=False), operation="COMPUTE STATS")
    assert needs([restated], NOTHING_READ).removes
    with pytest.raises(ConcurrentDeleteReadError, match="COMPUTE STATS\\) would bring back"):
        judge(restated, [remove()])
    judge(restated, [remove("another")])


# ---- commits that only rearrange


def test_a_compaction_follows_appends_and_clashes_with_who_changed_its_files() -> None:
    compaction = mine(
        remove("a", data_change=False),
        add("ab", data_change=False),
        DomainMetadata("delta.rowTracking", "{}", removed=False),
        read=rows("day = 'mon'"),
        operation="OPTIMIZE",
    )
    judge(compaction, [add("theirs", "mon")])
    assert needs([compaction], NOTHING_READ) == Needs(adds=False, removes=True, values=True)
    with pytest.raises((ConcurrentDeleteReadError, ConcurrentDeleteDeleteError)):
        judge(compaction, [remove("a")])
    with pytest.raises(ConcurrentDeleteDeleteError):
        judge(compaction, [remove("a", data_change=False)])


def test_a_compaction_beside_another_statement_does_not_excuse_that_one() -> None:
    compaction = mine(remove("a", data_change=False), add("ab", data_change=False), read=rows("day = 'mon'"))
    with pytest.raises(ConcurrentAppendError):
        judge([compaction, mine(add(), read=rows("day = 'mon'"))], [add("theirs", "mon")])


# ---- metadata and protocol


def identity(watermark: int) -> Metadata:
    *others, n = SCHEMA.fields
    moved = replace(n, metadata={**n.metadata, "delta.identity.highWaterMark": watermark})
    return replace(METADATA, schema_string=StructType((*others, moved)).to_json())


def test_identity_values_generated_elsewhere_disturb_only_who_generates_them_too() -> None:
    judge(mine(remove(), read=files("old")), [add("theirs"), identity(9)], [add("more"), identity(11)])
    with pytest.raises(MetadataChangedError, match="as this transaction does"):
        judge(mine(add(), identity(8)), [add("theirs"), identity(9)])


def test_a_moved_watermark_does_not_hide_another_change() -> None:
    with pytest.raises(MetadataChangedError, match="version 13"):
        judge(mine(add()), [identity(9)], [replace(identity(11), configuration={"a": "b"})])
    *others, n = parse_schema(identity(9).schema_string).fields
    with pytest.raises(MetadataChangedError):
        judge(mine(add()), [replace(METADATA, schema_string=StructType((n, *others)).to_json())])


def grown(*fields: StructField, **changes: Any) -> Metadata:
    return replace(METADATA, schema_string=StructType((*SCHEMA.fields, *fields)).to_json(), **changes)


@pytest.mark.parametrize(
    "changed",
    [
        grown(StructField("extra", PrimitiveType("string"))),
        grown(StructField("extra", PrimitiveType("string"), metadata={"delta.columnMapping.physicalName": "col-1"})),
        replace(METADATA, description="better", configuration={"delta.logRetentionDuration": "interval 1 day"}),
        replace(METADATA, configuration={"delta.appendOnly": "true"}),
    ],
    ids=["a new column", "a new mapped column", "description and retention", "append-only from now on"],
)
def test_metadata_that_asks_nothing_of_rows_follows_appends(changed: Metadata) -> None:
    judge(mine(changed), [add("theirs")], [remove()])


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (replace(METADATA, partition_columns=()), "changes the partition columns"),
        (replace(METADATA, configuration={"delta.constraints.c": "x > 0"}), "adds the constraint c"),
        (replace(METADATA, configuration={"delta.columnMapping.mode": "name"}), "changes the property"),
        (grown(StructField("extra", PrimitiveType("string"), nullable=False)), "changes the column extra"),
        (
            grown(StructField("g", PrimitiveType("long"), metadata={"delta.generationExpression": "x"})),
            "changes the column g",
        ),
        (replace(METADATA, schema_string=StructType(SCHEMA.fields[:2]).to_json()), "changes the column n"),
        (
            replace(METADATA, schema_string=SCHEMA.to_json().replace('"x","type":"long"', '"x","type":"double"')),
            "changes the column x",
        ),
        (
            replace(METADATA, schema_string=SCHEMA.to_json().replace('"nullable":true', '"nullable":false', 1)),
            "changes the column day",
        ),
    ],
)
def test_metadata_that_binds_rows_must_have_seen_every_file(changed: Metadata, why: str) -> None:
    assert changed != METADATA
    with pytest.raises(ConcurrentAppendError, match=why):
        judge(mine(changed), [add("theirs")])
    judge(mine(changed), [remove("gone")])


def test_features_taken_out_of_the_protocol_clash_with_files_that_may_need_them() -> None:
    fewer, more = Protocol(1, 2), replace(PROTOCOL, writer_features=(*(PROTOCOL.writer_features or ()), "rowTracking"))
    with pytest.raises(ConcurrentAppendError, match="takes features out"):
        judge(mine(fewer), [add("theirs")])
    judge(mine(more), [add("theirs")])
    with pytest.raises(ConcurrentAppendError):
        judge(mine(more), [add("theirs")], protocol=None)


# ---- applications and domains


def test_an_application_that_went_on_elsewhere_is_a_clash_for_who_writes_or_read_it() -> None:
    theirs: list[Action] = [AppTransaction("stream", 4), add("theirs")]
    for ours in (mine(add(), AppTransaction("stream", 4)), mine(add(), read=ReadSet(app_ids=frozenset({"stream"})))):
        with pytest.raises(ConcurrentTransactionError, match="version 4 of the application stream"):
            judge(ours, theirs)
    with pytest.raises(ConcurrentTransactionError):
        judge(mine(add()), theirs, also_read=ReadSet(app_ids=frozenset({"stream"})))
    judge(mine(add(), AppTransaction("another", 4)), theirs)


def test_one_domain_written_twice_is_a_clash_but_for_row_ids() -> None:
    def domain(name: str) -> DomainMetadata:
        return DomainMetadata(name, "{}", removed=False)

    with pytest.raises(ConcurrentTransactionError, match="the metadata domain app"):
        judge(mine(add(), domain("app")), [domain("app")])
    judge(mine(add(), domain("app")), [domain("other")])
    judge(mine(add(), domain("delta.rowTracking")), [domain("delta.rowTracking"), add("theirs")])


# ---- messages


def test_an_error_masks_secrets_and_survives_another_process() -> None:
    secret = add("s3://key:hunter2@bucket/part", "mon")
    with pytest.raises(CommitFailedError) as raised:
        judge(mine(add(), read=WHOLE_TABLE), [secret])
    assert "hunter2" not in str(raised.value)
    assert "hunter2" not in str(raised.value.path)
    copy = pickle.loads(pickle.dumps(raised.value))
    assert (type(copy), str(copy), copy.version) == (type(raised.value), str(raised.value), 12)


def test_no_winner_is_no_clash_whatever_was_read() -> None:
    judge(mine(add(), METADATA, Protocol(1, 2), remove(), read=WHOLE_TABLE))
