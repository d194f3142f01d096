"""Tables are found below a prefix, and nothing inside them is searched."""

import os
from pathlib import Path

import pytest

from deltalakedb.files import FileTxnLogReader, find_tables
from tests.fixtures.handmade import HandmadeTable, add
from tests.fixtures.s3 import S3


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    root = tmp_path.resolve() / "lake"
    for name in ("b", "a/deep/er", "a/sp ace", "日本", "year=2026/t"):
        HandmadeTable(root / name).create().commit(add("p=1/x.parquet"))
    # None of these are tables of the lake.
    HandmadeTable(root / "b" / "p=1" / "inner").create()
    HandmadeTable(root / "_hidden" / "t").create()
    HandmadeTable(root / ".trash" / "t").create()
    (root / "empty" / "_delta_log").mkdir(parents=True)
    (root / "plain").mkdir()
    (root / "plain" / "file.txt").write_text("x")
    HandmadeTable(root / "empty" / "below").create()
    return root


FOUND = ["a/deep/er", "a/sp ace", "b", "empty/below", "year=2026/t", "日本"]


def test_tables_are_found_on_disk_in_order(lake: Path) -> None:
    assert list(find_tables(lake)) == [(lake / name).as_uri() for name in FOUND]


def test_tables_are_found_on_s3_and_can_be_opened(lake: Path, s3: S3) -> None:
    prefix = s3.upload(lake, "some/lake")
    found = list(find_tables(prefix.replace("s3://", "s3a://") + "/", s3.storage_options))
    assert found == [f"{prefix}/{name}" for name in FOUND]
    assert [FileTxnLogReader(location, s3.storage_options).latest_version() for location in found] == [1, 1, 1, 0, 1, 1]


def test_tables_are_found_in_a_whole_bucket(lake: Path, s3: S3) -> None:
    s3.upload(lake / "a", "a")
    assert list(find_tables(s3.uri(), s3.storage_options)) == [s3.uri("a/deep/er"), s3.uri("a/sp ace")]


def test_a_table_itself_is_found(lake: Path) -> None:
    assert list(find_tables(lake / "b")) == [(lake / "b").as_uri()]


def test_a_prefix_without_tables_gives_none(tmp_path: Path) -> None:
    assert list(find_tables(tmp_path)) == []
    assert list(find_tables(tmp_path / "nowhere")) == []


def test_links_that_lead_in_a_circle_end(lake: Path) -> None:
    os.symlink(lake, lake / "plain" / "loop")
    os.symlink(lake / "b", lake / "plain" / "again")
    assert sorted(find_tables(lake)) == sorted((lake / name).as_uri() for name in FOUND)
