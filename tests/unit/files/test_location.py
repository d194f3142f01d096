"""One location has one spelling."""

import os
from pathlib import Path

import pytest

from deltalakedb.exceptions import ConfigError
from deltalakedb.files import canonical_location


@pytest.mark.parametrize(
    ("given", "canonical"),
    [
        ("s3://bucket/a/b", "s3://bucket/a/b"),
        ("s3a://bucket/a/b/", "s3://bucket/a/b"),
        ("S3N://bucket//a///b//", "s3://bucket/a/b"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/a%20b", "s3://bucket/a b"),
        ("s3://bucket/a b", "s3://bucket/a b"),
        ("s3://bucket/100%25", "s3://bucket/100%25"),
        ("gcs://bucket/x=1/ü", "gs://bucket/x=1/ü"),
        ("abfss://files@account.dfs.core.windows.net/t/", "abfss://files@account.dfs.core.windows.net/t"),
        ("abfss://files@Account.blob.core.windows.net/t", "abfss://files@account.dfs.core.windows.net/t"),
        ("abfss://w@onelake.dfs.fabric.microsoft.com/t", "abfss://w@onelake.dfs.fabric.microsoft.com/t"),
        ("az://files/t", "az://files/t"),
        ("memory:///t/", "memory:///t"),
        ("file:///", "file:///"),
    ],
)
def test_spellings_become_one(given: str, canonical: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    assert canonical_location(given) == canonical
    assert canonical_location(canonical) == canonical


def test_local_paths_are_resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = tmp_path.resolve() / "real table"
    real.mkdir()
    link = tmp_path / "link"
    link.symlink_to(real)
    monkeypatch.chdir(tmp_path)
    expected = real.as_uri()
    spellings: list[str | os.PathLike[str]] = [
        real,
        str(real) + "/",
        link,
        "link",
        "./x/../link",
        f"file://{tmp_path}/real%20table",
        f"file://localhost{link}/",
        f"file:{link}",
        expected,
    ]
    assert {canonical_location(spelling) for spelling in spellings} == {expected}


def test_a_percent_sign_in_a_plain_path_is_a_percent_sign(tmp_path: Path) -> None:
    folder = tmp_path / "50%20off"
    folder.mkdir()
    assert canonical_location(folder) == folder.resolve().as_uri()
    assert canonical_location(canonical_location(folder)) == canonical_location(folder)


def test_the_azure_account_is_part_of_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    full = "abfss://files@mine.dfs.core.windows.net/t"
    assert canonical_location("az://files/t", {"AZURE_STORAGE_ACCOUNT_NAME": "mine"}) == full
    assert canonical_location("abfs://files/t", {"account_name": "mine"}) == full
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "mine")
    assert canonical_location("azure://files/t") == full


@pytest.mark.parametrize("address", ["fs://localhost/t", "fs:///t", "fs://any/t", "opendal+fs://localhost/t"])
def test_fs_starts_at_its_root(address: str, tmp_path: Path) -> None:
    assert canonical_location(address, {"opendal.root": str(tmp_path)}) == (tmp_path / "t").as_uri()
    assert canonical_location(address) == "file:///t"


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("ftp://host/t", "Unknown scheme: ftp.*file://, fs://, opendal\\+fs://, s3://"),
        ("s3:///t", "names no bucket"),
        ("s3://bucket/a/../b", "name the folder itself"),
        ("s3://bucket/%2e%2E/b", "name the folder itself"),
        ("s3:/bucket/t", "must start with s3://"),
        ("file://otherhost/t", "otherhost"),
        ("", "not empty"),
        ("nul\0", "not empty"),
    ],
)
def test_what_cannot_be_a_location_is_refused(bad: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        canonical_location(bad)


def test_credentials_in_a_location_are_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigError) as caught:
        canonical_location("s3://AKIAKEY:very-secret@bucket/t")
    assert "very-secret" not in str(caught.value)
