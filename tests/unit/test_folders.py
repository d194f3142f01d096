"""The folder of a table: made from its name, told back from it, and safe on every file system and in every URL."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltalakedb.operations.folder import MAX_FOLDER_LENGTH, default_location, folders_of, name_of_folders
from deltalakedb.serve.bridge.places import location_of, name_in_warehouse, path_of
from deltalakedb.storage.location import parse_location
from deltalakedb.store.names import TableName, join_namespace
from tests.unit.test_names import PARTS

NAMES = st.builds(
    lambda namespace, name: TableName(join_namespace(namespace), name),
    st.lists(PARTS, min_size=1, max_size=3),
    PARTS,
)
WAREHOUSES = [
    "/data/lake",
    "/",
    "/data/a b%20c",
    "s3://bucket/lake",
    "s3://bucket",
    "abfss://c@acc.dfs.core.windows.net/l",
]


@pytest.mark.parametrize(
    ("namespace", "name", "folders"),
    [
        (["sales"], "orders", ("sales", "orders")),
        (["Sales", "EU"], "my-table", ("Sales.EU", "my-table")),
        (["a.b"], "c.d", ("a~2Eb", "c.d")),
        (["a", "b"], "c", ("a.b", "c")),
        (["s"], "x/y", ("s", "x~2Fy")),
        (["s"], "a b", ("s", "a~20b")),
        (["s"], "100%", ("s", "100~25")),
        (["s"], "a~2F", ("s", "a~7E2F")),
        (["s"], "day=1", ("s", "day~3D1")),
        (["s"], ".", ("s", "~2E")),
        (["s"], "..", ("s", "~2E~2E")),
        (["s"], "...", ("s", "~2E.~2E")),
        (["_x"], "_delta_log", ("~5Fx", "~5Fdelta_log")),
        (["s"], '\\:*?"<>|#`', ("s", "~5C~3A~2A~3F~22~3C~3E~7C~23~60")),
        (["s"], "größe", ("s", "gr~C3~B6~C3~9Fe")),
    ],
)
def test_a_folder_is_the_name_with_what_some_reader_could_not_open_escaped(
    namespace: list[str], name: str, folders: tuple[str, str]
) -> None:
    table = TableName(join_namespace(namespace), name)
    assert folders_of(table) == folders
    assert name_of_folders(*folders) == table


@given(NAMES)
def test_folders_are_safe_wherever_they_are(name: TableName) -> None:
    for folder in folders_of(name):
        assert re.fullmatch(r"[A-Za-z0-9~-]([A-Za-z0-9_.~-]{0,253}[A-Za-z0-9_~-])?", folder)


@given(NAMES)
def test_the_name_is_told_back_from_its_folders(name: TableName) -> None:
    folders = folders_of(name)
    was_cut = any("~~" in folder for folder in folders)
    assert name_of_folders(*folders) == (None if was_cut else name)


@given(NAMES, NAMES)
def test_two_names_never_share_folders_even_where_case_does_not_count(one: TableName, two: TableName) -> None:
    if one.key != two.key:
        assert [folder.lower() for folder in folders_of(one)] != [folder.lower() for folder in folders_of(two)]


@pytest.mark.parametrize(
    ("one", "two"),
    [("ß", "ss"), ("ſ", "s"), ("é", "e\u0301"), ("ﬁ", "fi"), ("a/b", "a~2Fb"), ("a.", "a")],
)
def test_names_that_some_file_systems_take_for_one_have_two_folders(one: str, two: str) -> None:
    assert folders_of(TableName("s", one))[1].lower() != folders_of(TableName("s", two))[1].lower()


def test_a_long_name_is_cut_and_ends_with_a_hash() -> None:
    long = [f"{'ü' * 254}{end}" for end in "ab"]
    folders = [folders_of(TableName("s", name))[1] for name in long]
    assert len(set(folders)) == 2
    assert {len(folder) for folder in folders} <= set(range(250, MAX_FOLDER_LENGTH + 1))
    assert folders[0].startswith("~C3~BC" * 35)
    assert folders_of(TableName("s", "x" * 255))[1] == "x" * 255
    assert len(folders_of(TableName("s", "x" * 255), suffix="0123abcd")[1]) == MAX_FOLDER_LENGTH
    assert folders_of(TableName("s", "x" * 255), suffix="0123abcd")[1].endswith("-0123abcd")
    deep = TableName(join_namespace(["x" * 100] * 5), "t")
    assert len(folders_of(deep)[0]) == MAX_FOLDER_LENGTH


@given(NAMES, st.sampled_from(WAREHOUSES))
def test_a_table_in_the_warehouse_is_told_by_its_location_alone(name: TableName, warehouse: str) -> None:
    location = default_location(warehouse, name)
    assert parse_location(location).uri == location
    assert location_of(path_of(location)) == location, "as Spark names it"
    inside, found = name_in_warehouse(location, warehouse)
    assert inside
    assert found == name_of_folders(*folders_of(name))


@pytest.mark.parametrize(
    "folder", ["s/a=b", "s/_t", "s/~61", "s/x~2fy", "s/~FF", "a..b/t", "s/~0A", "s", "s/a/b", "s/t ", "s/x%2Fy"]
)
def test_a_folder_that_no_name_leads_to_has_no_name(folder: str) -> None:
    location = parse_location(f"/data/lake/{folder}").uri
    assert name_in_warehouse(location, "/data/lake") == (True, None)


@given(NAMES)
def test_a_location_has_nothing_that_a_url_would_encode(name: TableName) -> None:
    inside = "/".join(folders_of(name))
    assert default_location("/data/lake", name) == f"file:///data/lake/{inside}"
    assert default_location("s3://bucket/lake", name) == f"s3://bucket/lake/{inside}"


def test_folders_can_be_made(tmp_path: Path) -> None:
    names = [".", "..", "a/b", "\u200b", "ü" * 255, "x" * 255, " ", "%", "😀" * 255, "`", "nul\u00ad", "ß", "ss"]
    for name in names:
        os.makedirs(tmp_path.joinpath(*folders_of(TableName("s", name))))
    assert len(os.listdir(tmp_path / "s")) == len(names)
