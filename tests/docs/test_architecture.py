"""docs/architecture.md sends its reader to files, functions and steps that exist."""

from __future__ import annotations

import re

import pytest

from tests.docs.named_places import PACKAGE, ROOT, definitions_in, named_definitions, named_files, read_page

PAGE = read_page("architecture.md")


@pytest.mark.parametrize(("path", "name"), named_definitions(PAGE))
def test_a_function_is_where_the_page_says(path: str, name: str) -> None:
    assert name in definitions_in(PACKAGE / path)


@pytest.mark.parametrize("path", named_files(PAGE))
def test_a_file_that_the_page_names_exists(path: str) -> None:
    """A path may begin at a folder below the package: the paragraph, or the row of the table, says at which."""
    assert (ROOT / path).exists() or [*PACKAGE.rglob(path), *(ROOT / "bridge").rglob(path)]


@pytest.mark.parametrize("what", ["commit", "commit of Spark's", "batch of changes", "attach", "plan"])
def test_the_page_follows_what_matters_through_the_code_in_a_few_steps(what: str) -> None:
    walk = PAGE.partition(f"\n## One {what}, followed through the code\n")[2].partition("\n## ")[0]
    assert 3 <= len(re.findall(r"^\d+\. ", walk, re.MULTILINE)) <= 8
    assert len(walk.splitlines()) < 90


def test_the_walk_of_a_commit_names_a_function_in_every_step() -> None:
    walk = PAGE.partition("## One commit, followed")[2].partition("\n## ")[0]
    steps = re.split(r"^\d+\. ", walk, flags=re.MULTILINE)[1:]
    assert len(steps) == 8
    assert all(re.search(r"`[\w/]+\.py: \w+", step) for step in steps)


def test_the_steps_in_brackets_are_reached_by_the_code() -> None:
    source = "".join(file.read_text(encoding="utf-8") for file in PACKAGE.rglob("*.py"))
    named = set(re.findall(r"`((?:commit|mirror)\.[a-z_]+)`", PAGE))
    assert {"commit.begun", "mirror.json_put"} <= named
    assert named <= set(re.findall(r'reached\("([\w.]+)"\)', source))
