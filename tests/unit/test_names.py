"""Table names: the rules of what may be typed, how they are written, and how names are compared."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltalakedb.exceptions import TableNameError
from deltalakedb.store.names import (
    TableName,
    join_namespace,
    name_key,
    namespace_parts,
    outside_backticks,
    parse_namespace,
    parse_table_name,
    quote_part,
    split_name,
)

AWKWARD = ["a.b", "x/y", "`", "``", ".", "..", " ", "'", '"', "\\", "ß", "\u212a", "İ", "Σ", "ΑΣ.b", "😀", "a`.`b", "1"]
CHARACTERS = st.one_of(
    st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]),
    st.sampled_from("`./\\'\"-_ aAzZ0ΣσςİıßẞK\u212a"),
)
PARTS = st.one_of(st.text(CHARACTERS, min_size=1, max_size=255), st.sampled_from(AWKWARD))
UNQUOTED = st.text(
    st.characters(exclude_characters="./\\'\"`", exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1, max_size=255
)


def test_a_name_without_a_dot_is_in_the_default_namespace() -> None:
    assert parse_table_name("orders") == TableName("default", "orders")
    assert parse_table_name("`a.b`") == TableName("default", "a.b")


def test_the_last_part_is_the_table_and_the_rest_the_namespace() -> None:
    assert parse_table_name("sales.orders") == TableName("sales", "orders")
    assert parse_table_name("eu.sales.orders") == TableName("eu.sales", "orders")


@pytest.mark.parametrize(
    ("text", "namespace", "name", "written"),
    [
        ("sales.my-orders", "sales", "my-orders", "sales.`my-orders`"),
        ("sales.`my-orders`", "sales", "my-orders", "sales.`my-orders`"),
        ("`sales`.`orders`", "sales", "orders", "sales.orders"),
        ("a.`b.c`", "a", "b.c", "a.`b.c`"),
        ("`a.b`.c", "`a.b`", "c", "`a.b`.c"),
        ("a.b.c", "a.b", "c", "a.b.c"),
        ("s.`x``y`", "s", "x`y", "s.`x``y`"),
        ("s.````", "s", "`", "s.````"),
        ("s.`x/y`", "s", "x/y", "s.`x/y`"),
        ("Größe.Maß", "`Größe`", "Maß", "`Größe`.`Maß`"),
        ("a b.c d", "`a b`", "c d", "`a b`.`c d`"),
    ],
)
def test_parts_that_need_it_are_written_in_backticks(text: str, namespace: str, name: str, written: str) -> None:
    parsed = parse_table_name(text)
    assert parsed == TableName(namespace, name)
    assert str(parsed) == written
    assert parse_table_name(written) == parsed


@given(st.lists(PARTS, min_size=1, max_size=4))
def test_any_list_of_parts_survives_being_written_and_read(parts: list[str]) -> None:
    text = join_namespace(parts)
    assert split_name(text) == namespace_parts(text) == parts
    assert parse_namespace(text) == text
    name = parse_table_name(text)
    assert name.name == parts[-1]
    assert namespace_parts(name.namespace) == (parts[:-1] or ["default"])
    assert parse_table_name(str(name)) == parse_table_name(name) == name


@given(st.lists(UNQUOTED, min_size=1, max_size=4))
def test_backticks_may_be_left_out_around_all_but_dots_slashes_and_quotes(parts: list[str]) -> None:
    assert split_name(".".join(parts)) == parts


@given(PARTS)
def test_letters_digits_and_underscores_stand_alone_and_all_else_in_backticks(part: str) -> None:
    is_plain = all(char == "_" or (char.isascii() and char.isalnum()) for char in part.lower())
    assert (quote_part(part) == part) == is_plain
    assert "." not in outside_backticks(quote_part(part)), "nobody takes it for two parts"


def test_a_name_keeps_its_spelling_and_is_compared_in_lower_case() -> None:
    name = parse_table_name("Sales.Größe")
    assert (name.namespace, name.name) == ("Sales", "Größe")
    assert name.key == parse_table_name("SALES.GRÖẞE").key
    assert name_key("straße") != name_key("strasse"), "lower case, and not case folding"
    assert name_key("\u212a") == name_key("k"), "the sign of kelvins is a capital k"
    assert name_key("ΣΑΣ") == name_key("σας") == name_key("σασ"), "a sigma is a sigma"
    assert name_key("İ") == name_key("i̇") != name_key("i")


@given(st.lists(PARTS, min_size=1, max_size=3))
def test_the_key_of_a_namespace_is_made_of_the_keys_of_its_parts(parts: list[str]) -> None:
    assert name_key(join_namespace(parts)) == join_namespace([name_key(part) for part in parts])
    assert name_key(join_namespace(parts)) == name_key(join_namespace([part.lower() for part in parts]))


@pytest.mark.parametrize("parts", [["\u212a"], ["ΑΣ", "b"], ["ΑΣ.b"], ["İ", "x"], ["a-B", "C"], ["Σ", "Σ"]])
def test_a_namespace_is_found_whatever_the_case_of_its_parts(parts: list[str]) -> None:
    lower = [name_key(part) for part in parts]
    assert name_key(parse_namespace(join_namespace(lower))) == name_key(join_namespace(parts))


@given(PARTS, st.sampled_from("\0\n\r\t\x1b\x7f\x85\u2028\ud800"), PARTS)
def test_control_characters_are_refused_even_in_backticks(before: str, char: str, after: str) -> None:
    with pytest.raises(TableNameError, match=rf"U\+{ord(char):04X}") as caught:
        parse_table_name(quote_part(f"{before[:20]}{char}{after[:20]}"))
    # The message itself is printable: no control character reaches a terminal through it.
    assert str(caught.value).isprintable()


@given(UNQUOTED, st.sampled_from("/\\'\"`\0\n\ud800"), UNQUOTED)
def test_slashes_and_quotes_are_refused_outside_of_backticks(before: str, char: str, after: str) -> None:
    with pytest.raises(TableNameError) as caught:
        parse_table_name(f"{before[:20]}{char}{after[:20]}")
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        (".", "empty"),
        ("a..b", "empty"),
        (".orders", "empty"),
        ("sales.", "empty"),
        ("``", "empty"),
        ("sales.``", "empty"),
        ("``.orders", "empty"),
        ("x" * 256, "256 characters"),
        (f"`{'x' * 256}`", "256 characters"),
        ("x'; drop table dl_tables; --", "quote"),
        ('"orders"', "quote"),
        ("a/b", "slash"),
        ("a\\b", "backslash"),
        ("a`b", "backtick outside of backticks"),
        ("a.b`c`", "backtick outside of backticks"),
        ("`orders", "not closed"),
        ("sales.`orders``", "not closed"),
        ("`", "not closed"),
        ("`a`b", "after a closing backtick"),
        ("`a``.`b`", "after a closing backtick"),
        ("`a` .b", "after a closing backtick"),
        ("a\0b", r"U\+0000"),
        ("a\nb", r"U\+000A"),
        ("\x1b[31mred", r"U\+001B"),
    ],
)
def test_a_bad_name_is_refused_and_the_error_says_why(text: str, reason: str) -> None:
    with pytest.raises(TableNameError, match=reason):
        parse_table_name(text)
    with pytest.raises(TableNameError, match=reason):
        parse_namespace(text)


def test_a_very_long_name_gives_a_short_error() -> None:
    with pytest.raises(TableNameError) as caught:
        parse_table_name("n" * 100_000)
    assert len(str(caught.value)) < 400


def test_the_longest_allowed_name_is_accepted() -> None:
    assert parse_table_name("ü" * 255).name == "ü" * 255


def test_something_that_is_not_text_is_refused() -> None:
    with pytest.raises(TableNameError, match="not int"):
        parse_table_name(7)  # type: ignore[arg-type]
    with pytest.raises(TableNameError, match="not list"):
        parse_namespace(["a"])  # type: ignore[arg-type]


def test_a_namespace_is_checked_part_by_part() -> None:
    assert parse_namespace("eu.Sales") == "eu.Sales"
    assert parse_namespace("`eu`.my-shop") == "eu.`my-shop`"
    with pytest.raises(TableNameError, match="empty"):
        parse_namespace("eu..sales")


def test_a_table_name_made_by_hand_is_checked_too() -> None:
    assert parse_table_name(TableName("my-shop", "o'rders")) == TableName("`my-shop`", "o'rders")
    with pytest.raises(TableNameError, match="empty"):
        parse_table_name(TableName("sales", ""))
    with pytest.raises(TableNameError, match="quote"):
        parse_table_name(TableName("o'sales", "orders"))
