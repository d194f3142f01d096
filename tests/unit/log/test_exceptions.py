"""Errors, and the secrets that must not be in them."""

from __future__ import annotations

import inspect
import pickle

import pytest

from deltalakedb import exceptions
from deltalakedb.exceptions import (
    CommitFailedError,
    ConcurrentAppendError,
    DeltaError,
    LogGapError,
    MissingExtraError,
    MissingFileError,
    StorageError,
    UnsupportedFeatureError,
    redact,
)


@pytest.mark.parametrize(
    "text",
    [
        "postgres://user:hunter2@host:5432/db",
        "postgresql://user:hunter2%2F@host/db?sslmode=require",
        "postgres://user:p@ss/hunter2@host/db",
        "host=h password=hunter2 dbname=d",
        "host=h password='a hunter2 \\' b' dbname=d",
        "postgres://host/db?user=u&password=hunter2",
        "connect(PASSWORD = hunter2, host=x)",
        "{'aws_secret_access_key': 'hunter2', 'region': 'x'}",
        '{"AWS_SESSION_TOKEN":"hunter2","region":"x"}',
        "AccountKey=hunter2;EndpointSuffix=x",
        "https://bucket/key?X-Amz-Signature=hunter2&X-Amz-Credential=hunter2",
        "https://acc.blob/c?sv=1&sig=hunter2",
        "PGPASSWORD=hunter2 psql",
        "Authorization: Bearer hunter2hunter2",
        "password: hunter2",
        "secret=>hunter2",
        "api-key=hunter2,x",
    ],
)
def test_a_secret_is_masked_wherever_it_stands(text: str) -> None:
    assert "hunter2" not in redact(text)
    assert "***" in redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "s3://bucket/key/part-1.parquet",
        "postgres://user@host:5432/db",
        "deltasql://postgres/db/ns/table?host=h&port=1&user=u&sslmode=require",
        "version 7 of table sales.orders has two metaData actions",
        "abfss://container@account.dfs.core.windows.net/path",
        "password authentication failed for user",
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert redact(text) == text


def test_redacting_keeps_what_helps_to_find_the_place() -> None:
    assert redact("postgres://user:x@host:5432/db") == "postgres://user:***@host:5432/db"


def test_an_unsupported_feature_names_feature_and_table_but_no_password() -> None:
    error = UnsupportedFeatureError("s3://u:hunter2@h/t", ["b", "a"])
    assert error.features == ("a", "b")
    assert "a, b" in str(error)
    assert "hunter2" not in str(error)


def test_a_gap_names_the_missing_version() -> None:
    error = LogGapError("t", 7, "6 and 8 exist")
    assert error.missing_version == 7
    assert str(error) == "the log of table t has a gap: version 7 is missing: 6 and 8 exist"


def test_a_missing_extra_says_what_to_install() -> None:
    assert "pip install 'deltalakedb[postgres]'" in str(MissingExtraError("Postgres", "postgres"))


@pytest.mark.parametrize(
    "error",
    [
        UnsupportedFeatureError("t", ["a"], purpose="written", hint="wait"),
        LogGapError("t", 7),
        MissingExtraError("Postgres", "postgres"),
        ConcurrentAppendError("clash", table="t", version=3, path="f"),
        DeltaError("plain"),
        MissingFileError("gone", path="f", advice="look"),
        StorageError("cannot read f", "try again"),
    ],
)
def test_an_error_is_the_same_in_another_process(error: DeltaError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert copy.__dict__ == error.__dict__


def test_a_failed_commit_tells_table_version_and_file_where_they_are_known() -> None:
    error = CommitFailedError("clash", table="s3://u:hunter2@h/t", version=3)
    assert (error.version, error.path) == (3, None)
    assert "hunter2" not in str(error.table)
    assert CommitFailedError("plain").table is None


def test_the_tree_at_the_top_of_the_file_is_the_tree() -> None:
    found = (item for _, item in inspect.getmembers(exceptions, inspect.isclass))
    classes = [item for item in found if item.__module__ == exceptions.__name__]
    drawn = inspect.getdoc(exceptions) or ""
    assert all(issubclass(item, DeltaError) and item.__name__ in drawn and item.__doc__ for item in classes)
    assert {item.__name__ for item in classes} | {"redact"} == set(exceptions.__all__)
