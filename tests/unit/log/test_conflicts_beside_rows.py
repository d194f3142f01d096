"""What a transaction read beside rows, and protocols that are stated again: the rules of the check, as sentences."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deltalakedb.exceptions import (
    ConcurrentAppendError,
    ConcurrentDeleteReadError,
    MetadataChangedError,
    ProtocolChangedError,
)
from deltalakedb.log.checks.conflicts import Needs, needs
from deltalakedb.log.protocol.actions import Action, AppTransaction, DomainMetadata, Protocol
from deltalakedb.log.protocol.proposal import DEFINITION, HISTORY, NOTHING_READ, REMOVALS, WHOLE_TABLE
from tests.unit.log.test_conflicts import METADATA, PROTOCOL, add, files, judge, mine, remove


def test_a_protocol_that_is_only_stated_again_disturbs_nobody() -> None:
    spelled = Protocol(1, 6)
    features = ("appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns")
    out = Protocol(1, 7, None, (*features, "columnMapping", "identityColumns"))
    for proposed in (mine(add()), mine(remove(), read=files("old")), mine(add(), read=WHOLE_TABLE)):
        judge(proposed, [PROTOCOL])
        judge(proposed, [out], protocol=spelled)
        judge(proposed, [spelled], protocol=out)


@pytest.mark.parametrize(
    "theirs",
    [
        Protocol(2, 7, None, PROTOCOL.writer_features),
        Protocol(1, 7, None, ("appendOnly", "invariants")),
        Protocol(1, 7, None, (*(PROTOCOL.writer_features or ()), "deltalakedb")),
        replace(PROTOCOL, extra='"x":1'),
    ],
)
def test_a_protocol_that_asks_for_anything_else_is_a_change(theirs: Protocol) -> None:
    with pytest.raises(ProtocolChangedError):
        judge(mine(add()), [theirs])


def test_who_changes_the_protocol_meets_every_other_statement_of_it() -> None:
    with pytest.raises(ProtocolChangedError):
        judge(mine(Protocol(1, 7, None, (*(PROTOCOL.writer_features or ()), "domainMetadata"))), [PROTOCOL])
    with pytest.raises(ProtocolChangedError):
        judge(mine(add()), [PROTOCOL], protocol=None)


def test_a_reader_of_the_definition_meets_changes_of_it_alone() -> None:
    judge([], [add("theirs")], [remove()], [AppTransaction("app", 1)], [PROTOCOL], also_read=DEFINITION)
    judge([], [DomainMetadata("delta.rowTracking", "{}", removed=False)], also_read=DEFINITION)
    for theirs in (replace(METADATA, description="new"), DomainMetadata("mine", "{}", removed=False)):
        with pytest.raises(MetadataChangedError):
            judge([], [theirs], also_read=DEFINITION)
        with pytest.raises(MetadataChangedError):
            judge(mine(add(), read=DEFINITION), [theirs])
    assert needs([], DEFINITION) == Needs(domains=True)


def test_a_reader_of_the_history_meets_every_commit() -> None:
    commits: list[list[Action]] = [
        [],
        [add("theirs")],
        [AppTransaction("app", 1)],
        [PROTOCOL],
        [remove(data_change=False)],
    ]
    for theirs in commits:
        with pytest.raises(
            ConcurrentAppendError, match="version 12 was committed, and this transaction read the history"
        ):
            judge([], theirs, also_read=HISTORY)
        with pytest.raises(ConcurrentAppendError):
            judge(mine(add(), read=HISTORY), theirs)
    judge([], also_read=HISTORY)
    assert needs([], HISTORY) == Needs(commits=True)
    assert needs([], HISTORY).any


def test_who_relies_on_rows_meets_commits_that_delete_some() -> None:
    appends = mine(add(), read=REMOVALS)
    assert appends.is_blind_append
    judge(appends, [add("theirs")], [remove(data_change=False), add("moved", data_change=False)])
    for proposed, read in ((appends, NOTHING_READ), ([], REMOVALS)):
        with pytest.raises(ConcurrentDeleteReadError, match="and this transaction is based on its rows"):
            judge(proposed, [add("theirs")], [remove()], also_read=read)
    assert needs([appends], NOTHING_READ) == Needs(removes=True)
