"""Every call of the tables on both libraries: the same, or listed with its reason and still different."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from tests.api.signatures import PAGE, members
from tests.differential.lines import Line, all_lines
from tests.differential.listed import UNEXPLAINED, listed, read_reasons
from tests.differential.page import put_into
from tests.differential.places import Starts
from tests.differential.run import compare
from tests.differential.shares import NAME
from tests.fixtures.sizes import every

LINES = all_lines()


@pytest.fixture(scope="module")
def starts(tmp_path_factory: pytest.TempPathFactory) -> Starts:
    return Starts(tmp_path_factory.mktemp("starts"))


@pytest.mark.parametrize("line", every(3, LINES), ids=[f"{line.area}-{number}" for number, line in enumerate(LINES)])
def test_a_call_is_the_same_or_listed(line: Line, starts: Starts, record_property: Callable[[str, Any], None]) -> None:
    found = compare(line, starts)
    record_property(NAME, (line.area, {mode: sorted(facts) for mode, facts in found.items()}))
    for mode, facts in found.items():
        known = listed().get((mode, line.name), ())
        shown = "".join(f"\n{name}\n  deltalake {theirs}\n  ours      {ours}" for name, (theirs, ours) in facts.items())
        assert sorted(facts) == sorted(known), (
            f"{line.name} on {mode}: {sorted(facts)} differ, differences.toml lists {sorted(known)}; "
            f"mend it, or run `python -m tests.differential` and say why{shown}"
        )


def test_every_public_callable_of_deltalake_has_a_line() -> None:
    tested = {line.member for line in LINES}
    public = {member.full_name: member.theirs for member in members()}
    assert not tested - set(public), "a heading names what deltalake does not have"
    callables = {name for name, value in public.items() if callable(value) or isinstance(value, property)}
    plain = {name for name in callables if isinstance(public[name], property) or inspect.isclass(public[name])}
    # Properties and types are shown by the calls that give them; the fields of a class stand in its own lines.
    missing = {name for name in callables - tested if name not in plain or "." not in name}
    assert not missing


def test_a_call_is_listed_once() -> None:
    names = [line.name for line in LINES]
    assert len(set(names)) == len(names), sorted({name for name in names if names.count(name) > 1})


def test_every_difference_has_a_reason_and_a_call() -> None:
    reasons = read_reasons()
    assert UNEXPLAINED not in reasons
    assert all(one.title and one.reason and one.calls for one in reasons.values())
    names = {line.name for line in LINES}
    assert not {name for _, name in listed()} - names
    assert sum(len(one.calls) for one in reasons.values()) == len(listed()), "a call has two reasons"


def test_the_page_lists_the_differences() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == put_into(page), "docs/from-deltalake.md is stale; make it anew: python -m tests.differential"
