"""Every operation against every winner: what Spark's Serializable says, and where we say something else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

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
from deltalakedb.log.checks.conflicts import Winner, check
from deltalakedb.log.protocol.actions import AppTransaction, Protocol
from deltalakedb.log.protocol.proposal import NOTHING_READ, WHOLE_TABLE, ProposedCommit
from deltalakedb.log.schema.types import PrimitiveType, StructField
from tests.unit.log.test_conflicts import METADATA, SCHEMA, add, files, grown, mine, remove, rows

# Partitioned by day; `mon` and `tue` are its files, one a partition.
OPERATIONS: dict[str, Callable[[str], ProposedCommit]] = {
    "insert": lambda by: mine(add(f"{by}-new", "mon")),
    "stream": lambda by: mine(add(f"{by}-new", "mon"), AppTransaction("stream", 4)),
    "insert-select": lambda by: mine(add(f"{by}-new", "mon"), read=rows("day = 'mon'")),
    "delete-mon": lambda by: mine(remove("mon", "mon"), add(f"{by}-mon", "mon"), read=rows("day = 'mon'")),
    "delete-tue": lambda by: mine(remove("tue", "tue"), add(f"{by}-tue", "tue"), read=rows("day = 'tue'")),
    "merge": lambda by: mine(remove("mon", "mon"), add(f"{by}-mon", "mon"), read=WHOLE_TABLE),
    "overwrite": lambda by: mine(remove("mon", "mon"), remove("tue", "tue"), add(f"{by}-new", "mon"), read=WHOLE_TABLE),
    "compact-mon": lambda by: mine(
        remove("mon", "mon", data_change=False), add(f"{by}-mon", "mon", data_change=False), read=rows("day = 'mon'")
    ),
    "restate-mon": lambda _: mine(add("mon", "mon", data_change=False), read=files("mon")),
    "add-column": lambda by: mine(grown(StructField(by, PrimitiveType("string")))),
    "set-property": lambda by: mine(replace(METADATA, configuration={by: "1"})),
    "upgrade": lambda _: mine(Protocol(1, 7, None, ("appendOnly", "invariants", "identityColumns", "clustering"))),
}

NAMES: dict[str, type[CommitFailedError] | None] = {
    ".": None,
    "A": ConcurrentAppendError,
    "R": ConcurrentDeleteReadError,
    "D": ConcurrentDeleteDeleteError,
    "M": MetadataChangedError,
    "P": ProtocolChangedError,
    "T": ConcurrentTransactionError,
}

# One row for each of mine, one column for each winner. Two letters: Spark's, then ours. Where ours is a dot, the winner
# changed no row (dataChange is false). Spark's dots for `restate` and `upgrade` are those of its row tracking backfill
# and of features that concurrent writers may ignore; we know neither by name.
MATRIX = """
               insert stream insert-select delete-mon delete-tue merge overwrite compact-mon restate-mon add-column set-property upgrade
insert         .      .      .             .          .          .     .         .           .           M          M            P
stream         .      T      .             .          .          .     .         .           .           M          M            P
insert-select  A      A      A             A          .          A     A         A.          A.          M          M            P
delete-mon     A      A      A             A          .          A     A         AD          A.          M          M            P
delete-tue     .      .      .             .          A          .     R         .           .           M          M            P
merge          A      A      A             A          A          A     A         AD          A.          M          M            P
overwrite      A      A      A             A          A          A     A         AD          A.          M          M            P
compact-mon    .      .      .             R          .          R     R         RD          .           M          M            P
restate-mon    .      .      .             R          .          R     R         R           .           M          M            P
add-column     .      .      .             .          .          .     .         .           .           M          M            P
set-property   .      .      .             .          .          .     .         .           .           M          M            P
upgrade        .      .      .             .          .          .     .         .           .           M          M            P
"""  # noqa: E501  a table reads best in one piece


def cells() -> list[tuple[str, str, str]]:
    header, *lines = [line.split() for line in MATRIX.strip().splitlines()]
    return [(line[0], winner, cell) for line in lines for winner, cell in zip(header, line[1:], strict=True)]


def test_the_matrix_is_complete() -> None:
    assert {(ours, theirs) for ours, theirs, _ in cells()} == {(a, b) for a in OPERATIONS for b in OPERATIONS}


@pytest.mark.parametrize(("ours", "theirs", "cell"), cells())
def test_each_operation_after_each_winner(ours: str, theirs: str, cell: str) -> None:
    expected = NAMES[cell[-1]]
    winner = Winner(5, OPERATIONS[theirs]("their").actions)

    def judge() -> None:
        proposed = OPERATIONS[ours]("my")
        protocol = Protocol(1, 7, None, ("appendOnly", "invariants", "identityColumns"))
        check("t", [proposed], NOTHING_READ, [winner], schema=SCHEMA, metadata=METADATA, protocol=protocol)

    if expected is None:
        judge()
    else:
        with pytest.raises(expected) as raised:
            judge()
        assert type(raised.value) is expected
        assert raised.value.version == 5
    if len(cell) > 1 and cell[-1] == ".":
        assert not any(getattr(action, "data_change", True) for action in winner.actions)
