"""Paths of data files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltalakedb.exceptions import MalformedLogError
from deltalakedb.log.protocol.paths import check_path, decode_path, encode_path, is_absolute, local_path, resolve


@pytest.mark.parametrize(
    ("location", "path", "resolved"),
    [
        ("/data/t", "part-1.parquet", "/data/t/part-1.parquet"),
        ("/data/t/", "p=a%20b/f.parquet", "/data/t/p=a b/f.parquet"),
        ("/data/t", "p=a%2520b/f.parquet", "/data/t/p=a%20b/f.parquet"),
        ("/data/t", "/other/a%20b.parquet", "/other/a b.parquet"),
        ("/data/t", "file:///other/a%20b.parquet", "file:///other/a%20b.parquet"),
        ("file:///data/t", "p=a%2520b/%C3%BC.parquet", "file:///data/t/p=a%2520b/%C3%BC.parquet"),
        ("file:///data/t", "/other/a%20b.parquet", "file:///other/a%20b.parquet"),
        ("s3://bucket/t", "p=a%20b/f.parquet", "s3://bucket/t/p=a b/f.parquet"),
        ("s3://bucket/t", "s3://other/a%20b.parquet", "s3://other/a b.parquet"),
        ("s3://bucket/t", "a..b/..c/f...parquet", "s3://bucket/t/a..b/..c/f...parquet"),
        ("/data/t", "100%/f.parquet", "/data/t/100%/f.parquet"),
        ("/data/t", "%FF.parquet", "/data/t/%FF.parquet"),
    ],
)
def test_a_path_is_resolved_against_the_location(location: str, path: str, resolved: str) -> None:
    check_path(path)
    assert resolve(location, path) == resolved


@pytest.mark.parametrize(
    "path", ["../f", "a/../../f", "a/..", "..", "%2e%2e/f", "a/%2E./f", "..%2ff", "a%2f..%2ff", "a\\..\\f"]
)
def test_a_relative_path_that_leaves_the_table_is_refused(path: str) -> None:
    with pytest.raises(MalformedLogError, match="leaves the table's folder"):
        check_path(path, where="table t, version 1")
    with pytest.raises(MalformedLogError):
        resolve("/data/t", path)


@pytest.mark.parametrize("path", ["/a/../f", "file:///a/../f", "s3://b/../f", "abfss://c@a.dfs.core.windows.net/f"])
def test_absolute_paths_are_accepted(path: str) -> None:
    assert is_absolute(path)
    check_path(path)


@pytest.mark.parametrize("path", ["a/b", "ts=2020-01-01 10:00/f", "p=s3://x", "a:b"])
def test_a_colon_alone_does_not_make_a_path_absolute(path: str) -> None:
    assert not is_absolute(path)


@given(st.text(st.characters(codec="utf-8")))
def test_encoding_a_path_can_be_undone(path: str) -> None:
    assert decode_path(encode_path(path)) == path


def test_the_local_path_of_a_location() -> None:
    assert local_path("file:///a%20b/c") == "/a b/c"
    assert local_path("file:/a") == "/a"
    assert local_path("file://localhost/a") == "/a"
    assert local_path("/a b") == "/a b"
    assert local_path("s3://b/k") is None
