"""Storage options open what they should, and their secrets stay out of sight."""

import logging

import pytest

from deltalakedb.exceptions import ConfigError
from deltalakedb.files import FileTxnLogReader, open_storage
from deltalakedb.storage.options import Credentials

SECRET = "wJalrXUtnFEMI-K7MDENG-bPxRfiCY"
OPTIONS = {"AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}


@pytest.mark.parametrize(
    "options",
    [
        OPTIONS,
        {key.lower(): value for key, value in OPTIONS.items()},
        {"access_key_id": "AKIAIOSFODNN7EXAMPLE", "secret_access_key": SECRET, "region": "us-east-1"},
        OPTIONS | {"endpoint_url": "http://localhost:1", "allow_http": "true", "timeout": "5s"},
        OPTIONS | {"AWS_S3_ALLOW_UNSAFE_RENAME": "true", "AWS_S3_LOCKING_PROVIDER": "dynamodb"},
    ],
)
def test_the_spellings_of_deltalake_are_understood(options: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert open_storage("s3a://bucket/table", options).location == "s3://bucket/table"
    assert not caplog.records


@pytest.mark.parametrize(
    ("place", "options"),
    [
        ("gs://bucket/t", {"google_skip_signature": "true"}),
        ("az://files/t", {"azure_storage_account_name": "mine", "azure_storage_account_key": "bm90LWEta2V5"}),
        ("abfss://files@mine.dfs.core.windows.net/t", {"AZURE_STORAGE_SAS_KEY": "sv=2021&sig=abc"}),
        ("abfss://space@onelake.dfs.fabric.microsoft.com/t", {"bearer_token": "abc"}),
    ],
)
def test_every_kind_of_store_opens(place: str, options: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        storage = open_storage(place, options)
    assert not caplog.records
    assert storage.location.endswith("/t")
    assert not any(secret in repr(vars(storage)) for secret in ("bm90LWEta2V5", "sig=abc"))


def test_an_unknown_option_is_ignored_with_a_warning_that_names_only_its_key(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        open_storage("s3://bucket/table", OPTIONS | {"aws_secret_acces_key": "typo-secret"})
    assert "aws_secret_acces_key" in caplog.text
    assert "typo-secret" not in caplog.text


def test_an_option_that_cannot_be_used_is_refused_without_secrets() -> None:
    with pytest.raises(ConfigError, match="s3://bucket/table") as caught:
        open_storage("s3://bucket/table", {"AWS_SECRET_ACCESS_KEY": SECRET})
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("place", ["s3://bucket/t", "memory://m/t", "/tmp/t"])
def test_no_repr_shows_credentials(place: str) -> None:
    reader = FileTxnLogReader(place, OPTIONS)
    for shown in (repr(reader), repr(reader.storage), repr(vars(reader.storage)), str(reader)):
        assert SECRET not in shown
        assert OPTIONS["AWS_ACCESS_KEY_ID"] not in shown


def test_secrets_are_masked_in_driver_messages_wherever_they_come_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "from-the-environment")
    credentials = Credentials.of({"aws_session_token": "from-the-options"})
    shown = credentials.explain(RuntimeError("failed with from-the-options and from-the-environment\nDebug: internals"))
    assert shown == "failed with *** and ***"
    assert "from" not in repr(credentials)
