"""The law of conflicts: what is let through has the outcome of running the statements one after another."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from deltalakedb.exceptions import CommitFailedError
from deltalakedb.log.checks.conflicts import Winner, check, needs
from deltalakedb.log.protocol.actions import (
    Action,
    AddFile,
    AppTransaction,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
)
from deltalakedb.log.protocol.proposal import NOTHING_READ, ProposedCommit, ReadSet
from tests.unit.log import racing
from tests.unit.log.racing import SCHEMA, Files, Impossible, Row, Statement, Where, to_commit

_numbers = st.integers(0, 3)
_rows = st.lists(st.tuples(st.sampled_from("ab"), _numbers), min_size=1, max_size=3)
_wheres = st.lists(
    st.tuples(st.just("p"), st.just("="), st.sampled_from("ab"))
    | st.tuples(st.just("x"), st.sampled_from(["=", "<=", ">="]), _numbers),
    min_size=1,
    max_size=2,
    unique_by=lambda item: item[0],
).map(lambda filters: Where(tuple(filters)))
_says = st.sampled_from(["predicate", "table", "nothing"])


@st.composite
def statements(draw: st.DrawFn, name: str) -> Statement:
    kind = draw(
        st.sampled_from(
            ["append", "delete", "update", "insert", "copy", "overwrite", "compact", "restate", "constrain"]
        )
    )
    where, number = draw(_wheres), draw(_numbers)
    match kind:
        case "append":
            return racing.append(name, *_named(name, draw(_rows)), has_stats=draw(st.booleans()))
        case "delete":
            return racing.change_rows(name, where, lambda _: None, by_vector=draw(st.booleans()), says=draw(_says))
        case "update":
            new = draw(st.tuples(st.sampled_from("ab"), _numbers))
            return racing.change_rows(
                name, where, lambda row: Row(row.id, *new), by_vector=draw(st.booleans()), says=draw(_says)
            )
        case "insert":
            return racing.insert_select(name, where, says=draw(st.sampled_from(["predicate", "table"])))
        case "copy":
            return racing.copy_file(name, number)
        case "overwrite":
            return racing.overwrite(name, *_named(name, draw(_rows)))
        case "compact":
            numbers = draw(st.sets(st.integers(0, 5), min_size=1))
            return racing.compact(name, numbers, says=draw(st.sampled_from(["nothing", "files"])))
        case "restate":
            return racing.restate(name, number)
        case _:
            return racing.constrain(name, draw(st.integers(1, 3)))


def _named(name: str, rows: Sequence[tuple[str, int]]) -> list[Row]:
    return [Row(f"{name}.{number}", p, x) for number, (p, x) in enumerate(rows)]


@st.composite
def tables(draw: st.DrawFn) -> Files:
    files = Files(partitioned=draw(st.booleans()))
    for number, rows in enumerate(draw(st.lists(_rows, max_size=4))):
        statement = racing.append(f"f{number}", *_named(f"f{number}", rows), has_stats=draw(st.booleans()))
        files = files.apply(statement.plan(files))
    return files


def _carry_out(files: Files, made: Sequence[Statement], *, describe: bool) -> tuple[Files, list[ProposedCommit]]:
    """Each statement in turn, as its writer plans it; each must do what it means."""
    commits = []
    for statement in made:
        change = statement.plan(files)
        commits.append(to_commit(change, files, describe_removes=describe))
        expected = statement.run(files.rows)
        files = files.apply(change)
        assert files.rows == expected, f"{statement} is carried out wrongly"
    return files, commits


@settings(max_examples=200 if settings().max_examples < 100 else 3000)
@given(data=st.data(), before=tables(), describe=st.booleans())
def test_what_is_let_through_is_what_one_after_another_would_give(
    data: st.DataObject, before: Files, describe: bool
) -> None:
    mine = [data.draw(statements(f"m{number}"), label="mine") for number in range(data.draw(st.integers(1, 2)))]
    theirs = [data.draw(statements(f"w{number}"), label="theirs") for number in range(data.draw(st.integers(1, 3)))]
    try:
        _, proposed = _carry_out(before, mine, describe=True)
        after, won = _carry_out(before, theirs, describe=describe)
    except Impossible:
        assume(False)
    winners = [Winner(number + 1, commit.actions) for number, commit in enumerate(won)]
    clash = _clash(before, proposed, winners)
    serial = _is_serial(before, after, mine)
    event(f"{'serial' if serial else 'not serial'}, {type(clash).__name__ if clash else 'let through'}")
    assert serial or clash is not None, f"{mine} after {theirs} was let through"


def _is_serial(before: Files, after: Files, mine: Sequence[Statement]) -> bool:
    """Whether the files of mine, planned before, put on top of the winners', hold what mine would give if run there."""
    try:
        files, expected = before, after.rows
        changes = []
        for statement in mine:
            changes.append(statement.plan(files))
            files = files.apply(changes[-1])
        for statement in mine:
            expected = statement.run(expected)
        result = after
        for change in changes:
            result = result.apply(change)
    except Impossible:
        return False
    return result.rows == expected


def _clash(
    before: Files, mine: Sequence[ProposedCommit], winners: Sequence[Winner], also_read: ReadSet = NOTHING_READ
) -> CommitFailedError | None:
    """The check sees of the winners what it said that it needs, and no more; and says the same when asked twice."""
    seen = [Winner(winner.version, _needed(winner.actions, mine, also_read)) for winner in winners]
    said: list[CommitFailedError | None] = []
    for shown in (winners, seen, seen):
        try:
            check("sales.orders", mine, also_read, shown, schema=SCHEMA, metadata=before.metadata)
            said.append(None)
        except CommitFailedError as error:
            said.append(error)
    assert len({(type(error), str(error)) for error in said}) == 1, said
    return said[0]


def _needed(actions: Sequence[Action], mine: Sequence[ProposedCommit], also_read: ReadSet) -> tuple[Action, ...]:
    wanted = needs(mine, also_read)
    kinds: dict[type, bool] = {
        AddFile: wanted.adds,
        RemoveFile: wanted.removes,
        AppTransaction: wanted.txns,
        DomainMetadata: wanted.domains,
        Metadata: True,
        Protocol: True,
    }
    return tuple(action for action in actions if kinds[type(action)])


@given(data=st.data(), before=tables(), rows=_rows)
def test_a_blind_append_never_clashes_with_a_change_of_data(
    data: st.DataObject, before: Files, rows: list[tuple[str, int]]
) -> None:
    mine = racing.append("mine", *_named("mine", rows))
    changes = statements("w").filter(lambda one: not one.name.startswith("constrain"))
    theirs = data.draw(st.lists(changes, min_size=1, max_size=1))
    _, won = _carry_out(before, theirs, describe=True)
    proposed = [to_commit(mine.plan(before), before)]
    assert not needs(proposed, NOTHING_READ).any
    assert _clash(before, proposed, [Winner(1, commit.actions) for commit in won]) is None


@given(
    mine=_wheres,
    theirs=_wheres,
    rows=st.lists(st.tuples(st.sampled_from("ab"), _numbers), min_size=2, max_size=6),
    by_vector=st.booleans(),
)
def test_changes_of_different_partitions_never_clash(
    mine: Where, theirs: Where, rows: list[tuple[str, int]], by_vector: bool
) -> None:
    before, _ = _carry_out(Files(), [racing.append("f", *_named("f", rows))], describe=True)
    left = Where((("p", "=", "a"), *(item for item in mine.filters if item[0] != "p")))
    right = Where((("p", "=", "b"), *(item for item in theirs.filters if item[0] != "p")))
    ours = racing.change_rows("m", left, lambda row: Row(row.id, row.p, 0), by_vector=by_vector)
    others = racing.change_rows("w", right, lambda _: None, by_vector=by_vector)
    _, proposed = _carry_out(before, [ours], describe=True)
    after, won = _carry_out(before, [others], describe=True)
    assert _clash(before, proposed, [Winner(1, commit.actions) for commit in won]) is None
    assert _is_serial(before, after, [ours])


def test_the_judge_itself_finds_a_lost_update() -> None:
    """A judge that lets everything pass would make the law above worthless."""
    before, _ = _carry_out(Files(), [racing.append("f", Row("1", "a", 1))], describe=True)
    mine = racing.insert_select("m", Where((("p", "=", "a"),)))
    after, _ = _carry_out(before, [racing.append("w", Row("2", "a", 2))], describe=True)
    assert not _is_serial(before, after, [mine])
    assert _is_serial(before, before, [mine])
    with pytest.raises(Impossible):
        before.apply(racing.Change(removed=(("gone", ""),)))
