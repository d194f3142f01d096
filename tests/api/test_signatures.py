"""Every public member of `deltalake` is one of ours, with the same parameters; what is not is explained in the docs.

A parameter that a new `deltalake` has fails here until it is ours too, or its absence is explained in differences.py.
"""

from __future__ import annotations

import inspect
from importlib import import_module

import deltalake.exceptions
import pytest

import deltalakedb
from tests.api.differences import ABSENT, DIFFERENT, NOTES
from tests.api.signatures import PAGE, members, put_into

ALL = {member.full_name: member for member in members()}


@pytest.mark.parametrize("name", ALL)
def test_a_call_of_deltalake_is_a_call_of_ours(name: str) -> None:
    member = ALL[name]
    problem = member.problem()
    if name in ABSENT:
        assert problem == "absent", f"{name} is there by now: take it out of ABSENT"
    elif name in DIFFERENT:
        assert problem not in (None, "absent"), f"{name} is the same by now: take it out of DIFFERENT"
    else:
        theirs = "" if not callable(member.theirs) else _shown(member.theirs)
        assert problem is None, f"{name}{theirs}: {problem}"


def _shown(call: object) -> str:
    try:
        return str(inspect.signature(call))  # type: ignore[arg-type]  # not all can be called
    except (TypeError, ValueError):
        return "(...)"


def test_every_difference_is_of_a_member_there_is() -> None:
    named = [*ABSENT, *DIFFERENT, *NOTES]
    assert set(named) <= set(ALL)
    assert len(named) == len(set(named)), "a member is named twice"
    assert all(reason.strip() for reason in (*ABSENT.values(), *DIFFERENT.values(), *NOTES.values()))


def test_the_migration_page_has_the_table_of_members() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == put_into(page), "docs/from-deltalake.md is stale; make it anew: python -m tests.api.signatures"


@pytest.mark.parametrize("name", deltalake.exceptions.__all__)
def test_an_exception_stands_below_the_same_one(name: str) -> None:
    theirs = getattr(deltalake.exceptions, name)
    ours = getattr(import_module("deltalakedb.exceptions"), name)
    assert [kind.__name__ for kind in theirs.__mro__] == [kind.__name__ for kind in ours.__mro__]


def test_all_names_of_the_package_are_there() -> None:
    assert all(getattr(deltalakedb, name) is not None for name in deltalakedb.__all__)
    assert len(set(deltalakedb.__all__)) == len(deltalakedb.__all__)
