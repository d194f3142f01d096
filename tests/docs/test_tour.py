"""docs/tour.md sends its reader to files, functions and constants that exist."""

from __future__ import annotations

import re

import pytest

from tests.docs.named_places import (
    definitions_in,
    find_path,
    named_definitions,
    named_files,
    named_folders,
    read_page,
)

PAGE = read_page("tour.md")
KINDS = ("An engine", "A field of an action", "A table feature", "A verb", "A command of `dl`", "A metric", "A setting")


@pytest.mark.parametrize(("path", "name"), named_definitions(PAGE))
def test_a_name_is_where_the_tour_says(path: str, name: str) -> None:
    module = find_path(path)
    assert module is not None, path
    assert name in definitions_in(module)


@pytest.mark.parametrize("path", [*named_files(PAGE), *named_folders(PAGE)])
def test_a_path_that_the_tour_names_exists(path: str) -> None:
    assert find_path(path) is not None


@pytest.mark.parametrize("kind", KINDS)
def test_every_stop_of_a_kind_of_change_names_a_place(kind: str) -> None:
    section = PAGE.partition(f"\n## {kind}\n")[2].partition("\n## ")[0]
    steps = re.split(r"^\d+\. ", section, flags=re.MULTILINE)[1:]
    assert len(steps) >= 4
    aimless = [step for step in steps if "`" not in step]
    assert not aimless
    assert named_definitions(section)
