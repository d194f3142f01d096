"""Table names: the rules of what may be typed, and how names are compared."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltalakedb.exceptions import TableNameError
from deltalakedb.names import TableName, name_key, parse_namespace, parse_table_name

FORBIDDEN = "./\\'\"`"
PARTS = st.text(
    st.characters(exclude_characters=FORBIDDEN, exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1, max_size=255
)


def test_a_name_without_a_dot_is_in_the_default_namespace() -> None:
    assert parse_table_name("orders") == TableName("default", "orders")


def test_the_last_part_is_the_table_and_the_rest_the_namespace() -> None:
    assert parse_table_name("sales.orders") == TableName("sales", "orders")
    assert parse_table_name("eu.sales.orders") == TableName("eu.sales", "orders")


def test_a_name_keeps_its_spelling_and_is_compared_without_case() -> None:
    name = parse_table_name("Sales.Größe")
    assert str(name) == "Sales.Größe"
    assert name.key == parse_table_name("SALES.GRÖSSE").key
    assert name_key("STRASSE") == name_key("straße")


@given(st.lists(PARTS, min_size=1, max_size=4))
def test_every_name_within_the_rules_survives(parts: list[str]) -> None:
    name = parse_table_name(".".join(parts))
    assert name.name == parts[-1]
    assert name.namespace == (".".join(parts[:-1]) or "default")
    assert parse_table_name(name) == name


@given(PARTS, st.sampled_from("/\\'\"`\0\n\r\t\x1b\x7f\x85\u2028\ud800"), PARTS)
def test_every_forbidden_character_is_refused(before: str, char: str, after: str) -> None:
    with pytest.raises(TableNameError) as caught:
        parse_table_name(f"{before[:20]}{char}{after[:20]}")
    # The message itself is printable: no control character reaches a terminal through it.
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        (".", "empty"),
        ("a..b", "empty"),
        (".orders", "empty"),
        ("sales.", "empty"),
        ("x" * 256, "256 characters"),
        ("x'; drop table dl_tables; --", "quote"),
        ('"orders"', "quote"),
        ("`orders`", "quote"),
        ("a/b", "slash"),
        ("a\\b", "backslash"),
        ("a\0b", r"U\+0000"),
        ("a\nb", r"U\+000A"),
        ("\x1b[31mred", r"U\+001B"),
    ],
)
def test_a_bad_name_is_refused_and_the_error_says_why(text: str, reason: str) -> None:
    with pytest.raises(TableNameError, match=reason):
        parse_table_name(text)


def test_a_very_long_name_gives_a_short_error() -> None:
    with pytest.raises(TableNameError) as caught:
        parse_table_name("n" * 100_000)
    assert len(str(caught.value)) < 400


def test_the_longest_allowed_name_is_accepted() -> None:
    assert parse_table_name("ü" * 255).name == "ü" * 255


def test_something_that_is_not_text_is_refused() -> None:
    with pytest.raises(TableNameError, match="not int"):
        parse_table_name(7)  # type: ignore[arg-type]


def test_a_namespace_is_checked_part_by_part() -> None:
    assert parse_namespace("eu.Sales") == "eu.Sales"
    with pytest.raises(TableNameError, match="empty"):
        parse_namespace("eu..sales")


def test_a_table_name_made_by_hand_is_checked_too() -> None:
    with pytest.raises(TableNameError, match="quote"):
        parse_table_name(TableName("sales", "o'rders"))
