"""SQL text with table names in braces, without any Spark."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltalakedb.exceptions import ConfigError
from deltalakedb.spark.transaction import fill_table_names, quoted_path


def shown(name: str, creates: bool) -> str:
    return f"<{name}{'+' if creates else ''}>"


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("select * from {a.b} join { c } using (id)", "select * from <a.b> join <c> using (id)"),
        ("select '{a.b}', \"{a.b}\", `{a.b}` from {a.b}", "select '{a.b}', \"{a.b}\", `{a.b}` from <a.b>"),
        (r"select 'it\'s {x}', 'it''s {x}' from {y}", r"select 'it\'s {x}', 'it''s {x}' from <y>"),
        (r"select r'\{x}\', '{{' from {y}", r"select r'\{x}\', '{{' from <y>"),
        ("select 1 -- from {x}\n, 2 /* {x}\n{x} */ from {y}", "select 1 -- from {x}\n, 2 /* {x}\n{x} */ from <y>"),
        ("select {{a}} from {b}", "select {a} from <b>"),
        ("create table {a} using delta as select * from {b}", "create table <a+> using delta as select * from <b>"),
        ("CREATE OR REPLACE\n TABLE {a} (x int)", "CREATE OR REPLACE\n TABLE <a+> (x int)"),
        ("create table if not exists {a} like {b}", "create table if not exists <a+> like <b>"),
        ("insert into table {a} values ('{')", "insert into table <a> values ('{')"),
        ("no table at all", "no table at all"),
    ],
)
def test_names_in_braces_are_filled_in_where_they_are_names(text: str, filled: str) -> None:
    assert fill_table_names(text, shown) == filled


@pytest.mark.parametrize("text", ["select {", "select } from x", "select * from {}", "select * from { }"])
def test_a_brace_that_means_nothing_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(ConfigError, match=r"position \d+ of the SQL text"):
        fill_table_names(text, shown)


def test_a_path_with_a_backquote_stays_one_name() -> None:
    assert quoted_path("dldb://t1/file/a`b c") == "delta.`dldb://t1/file/a``b c`"


@given(st.text(alphabet="ab'\"`-/*\\ {}\n", max_size=40))
def test_text_without_braces_outside_of_literals_is_kept_as_it_is(text: str) -> None:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    assert fill_table_names(f"select '{escaped}'", shown) == f"select '{escaped}'"
