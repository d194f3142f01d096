"""Signed URLs: clients without credentials read and write single objects; a disk has none."""

import urllib.error
import urllib.request
from pathlib import Path

import pytest

from deltalakedb.exceptions import SigningNotSupportedError
from deltalakedb.storage.location import open_storage
from tests.fixtures.s3 import S3, SECRET_ACCESS_KEY


def test_a_signed_url_reads_one_object_without_credentials(s3: S3) -> None:
    s3.put("lake/t/a b=1/x.parquet", b"rows")
    url = open_storage(s3.uri("lake/t"), s3.storage_options).sign("a b=1/x.parquet", expires_seconds=900)
    assert "X-Amz-Expires=900" in url
    assert SECRET_ACCESS_KEY not in url
    with urllib.request.urlopen(url) as response:
        assert response.read() == b"rows"


def test_a_url_signed_for_a_put_writes_the_object(s3: S3) -> None:
    storage = open_storage(s3.uri("lake/t"), s3.storage_options)
    headers = {"Content-Type": "application/octet-stream"}  # else the endpoint takes it for a form
    request = urllib.request.Request(storage.sign("new.parquet", "PUT"), b"new", headers, method="PUT")
    with urllib.request.urlopen(request) as response:
        assert response.status == 200
    assert storage.get("new.parquet") == b"new"


def test_the_url_of_a_missing_object_is_not_found(s3: S3) -> None:
    url = open_storage(s3.uri("lake/t"), s3.storage_options).sign("none.parquet")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(url)
    assert caught.value.code == 404


@pytest.mark.parametrize("place", ["local", "memory"])
def test_a_storage_without_signed_urls_says_so(place: str, tmp_path: Path) -> None:
    location = str(tmp_path) if place == "local" else "memory://unsigned/t"
    with pytest.raises(SigningNotSupportedError, match=r"x\.parquet has no signed URL"):
        open_storage(location).sign("x.parquet")
