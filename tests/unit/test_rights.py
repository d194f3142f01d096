"""Who may do what: the decision itself, compared with its definition, on values alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltalakedb.exceptions import ConfigError
from deltalakedb.rights import CATALOG, Grantee, Right, SecuredObject, held_by, is_allowed
from deltalakedb.runtime.caller import Caller
from deltalakedb.store.grants import Grant

ANN = Caller("ann", frozenset({"staff", "sales"}))
NAMESPACES = ("a", "a.b", "a.`b.c`", "b", "a.b.c")
TABLES = {1: "a", 2: "a.b", 3: "b", 4: "a.`b.c`", 5: "a.b.c"}
OBJECTS = (
    CATALOG,
    *(SecuredObject("namespace", key) for key in NAMESPACES),
    *(SecuredObject("table", key, table_id) for table_id, key in TABLES.items()),
)
LADDER = (Right.DISCOVER, Right.READ, Right.WRITE, Right.MANAGE)
INSIDE = {"a": {"a.b", "a.`b.c`", "a.b.c"}, "a.b": {"a.b.c"}}

grants = st.builds(
    lambda right, on, to: Grant(on.key[0], on.key[1], on.key[2], to.kind, to.name, right.value),
    st.sampled_from(Right),
    st.sampled_from(OBJECTS),
    st.sampled_from(
        [Grantee("user", "ann"), Grantee("group", "sales"), Grantee("group", "ann"), Grantee("user", "staff")]
    ),
)


def is_around(outer: SecuredObject, inner: SecuredObject) -> bool:
    """Whether a grant on one object holds on another: written out, without the keys of grants."""
    if outer == inner or outer.kind == "catalog":
        return True
    if outer.kind == "table" or inner.kind == "catalog":
        return False
    same = inner.kind == "table" and inner.namespace_key == outer.namespace_key
    return same or inner.namespace_key in INSIDE.get(outer.namespace_key, ())


def gives(granted: Right, wanted: Right, on: SecuredObject) -> bool:
    if granted is Right.MANAGE or granted is wanted:
        return True
    if granted is Right.CREATE:
        return wanted is Right.DISCOVER and on.kind != "table"
    return wanted is not Right.CREATE and LADDER.index(granted) >= LADDER.index(wanted)


@given(st.lists(grants, max_size=6), st.sampled_from(Right), st.sampled_from(OBJECTS))
def test_a_right_is_held_if_and_only_if_some_grant_gives_it(held: list[Grant], right: Right, on: SecuredObject) -> None:
    mine = [grant for grant in held if (grant.grantee_kind, grant.grantee) in {("user", "ann"), ("group", "sales")}]
    expected = any(
        gives(Right(grant.granted_right), right, on)
        for grant in mine
        for place in OBJECTS
        if place.key == grant.on and is_around(place, on)
    )
    assert is_allowed(held_by(ANN, held), right, on) == expected


def test_nothing_is_allowed_without_a_grant() -> None:
    assert not any(is_allowed(held_by(ANN, []), right, on) for right in Right for on in OBJECTS)


def test_a_tables_grant_follows_it_into_another_namespace() -> None:
    held = held_by(ANN, [Grant("table", "", 1, "user", "ann", "read")])
    assert is_allowed(held, Right.READ, SecuredObject("table", "elsewhere", 1))
    assert not is_allowed(held, Right.READ, SecuredObject("table", "a", 2))


@pytest.mark.parametrize(
    ("key", "inside", "beside"),
    [
        ("sales", "sales.eu", "sales2"),
        ("`a.b`", "`a.b`.c", "a.b"),
        ("`grüße`", "`grüße`.x", "`grüße2`"),
        ("`a``b`", "`a``b`.`c d`", "`a`"),
        ("a", "a.b.c.d", "`a.b`"),
    ],
)
def test_a_namespaces_grant_holds_inside_and_nowhere_beside(key: str, inside: str, beside: str) -> None:
    held = held_by(ANN, [Grant("namespace", key, 0, "user", "ann", "read")])
    assert is_allowed(held, Right.READ, SecuredObject("table", inside, 9))
    assert not is_allowed(held, Right.READ, SecuredObject("table", beside, 9))
    assert not is_allowed(held, Right.READ, CATALOG)


def test_names_of_grantees_are_compared_as_they_are_written() -> None:
    held = held_by(ANN, [Grant("catalog", "", 0, "user", "Ann", "read"), Grant("catalog", "", 0, "group", "x", "read")])
    assert not is_allowed(held, Right.DISCOVER, CATALOG)


@pytest.mark.parametrize("text", ["ann", "user:", "role:ann", "user: ", "user:a\nb", "user:" + "x" * 256, ":x"])
def test_a_grantee_that_is_no_user_and_no_group_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        Grantee.parse(text)


def test_a_grantees_name_may_have_any_printable_character() -> None:
    assert Grantee.parse("user:o'neil:x@example.com") == Grantee("user", "o'neil:x@example.com")
    assert str(Grantee.parse("group:data team")) == "group:data team"


def test_a_word_that_is_no_right_is_refused() -> None:
    assert Right.parse(" READ ") is Right.READ
    with pytest.raises(ConfigError, match="discover, read, write, create, manage"):
        Right.parse("select")
