"""What looks like a credential is refused by name and by value, is never repeated, and innocent properties pass."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from deltalakedb.exceptions import ConfigError, redact
from deltalakedb.log.checks.secret_checks import refuse_new_secrets, refuse_secret_text, refuse_secrets
from deltalakedb.log.protocol.actions import Format, Metadata

SECRET = "hunter2-hunter2"
ACCESS_KEY = "AKIAIOSFODNN7EXAMPLE"

SECRET_KEYS = [
    "password",
    "db.password",
    "dbPassword",
    "DB_PASSWD",
    "jdbc.pwd",
    "ssl-passphrase",
    "secret",
    "client_secret",
    "fs.s3a.secret.key",
    "fs.s3a.access.key",
    "s3.access-key-id",
    "aws_secret_access_key",
    "accessKeyId",
    "AWS_SESSION_TOKEN",
    "token",
    "rest.bearer-token",
    "credential",
    "credentials",
    "azure.account-key",
    "fs.azure.account.key.lake.dfs.core.windows.net",
    "fs.azure.sas.token",
    "sas",
    "api_key",
    "apikey",
    "signing.private_key",
    "tag.password",
]

SECRET_VALUES = [
    ACCESS_KEY,
    f"key {ACCESS_KEY} of the loader",
    "-----BEGIN PRIVATE KEY-----\nMIIEvQ",
    "-----BEGIN RSA PRIVATE KEY-----\\nMIIEvQ",
    '{"type":"service_account","private_key":"-----BEGIN PRIVATE KEY-----\\nMII"}',
    "-----BEGIN PGP PRIVATE KEY BLOCK-----",
    f"postgresql://ann:{SECRET}@db.example.com/sales",
    f"https://ann:{SECRET}@example.com:8443/x",
    f"DefaultEndpointsProtocol=https;AccountName=lake;AccountKey={SECRET};EndpointSuffix=core.windows.net",
    f"Endpoint=sb://x/;SharedAccessKeyName=a;SharedAccessKey={SECRET}",
    f"host=db user=ann password={SECRET}",
    f"jdbc:postgresql://db/sales?user=ann&password={SECRET}",
    f"https://lake.blob.core.windows.net/c/f?sv=1&sig={SECRET}",
    f"https://b.s3.amazonaws.com/f?X-Amz-Signature={SECRET}",
]

INNOCENT = {
    "delta.appendOnly": "true",
    "delta.columnMapping.mode": "name",
    "delta.constraints.password": "length(password) >= 12",
    "delta.constraints.token": "token=upper(token)",
    "delta.dataSkippingStatsColumns": "token,password,access_key,token_count",
    "delta.feature.v2Checkpoint": "supported",
    "delta.logRetentionDuration": "interval 30 days",
    "delta.setTransactionRetentionDuration": "interval 7 days",
    "drop_protection": "true",
    "token_count": "12",
    "count_column": "token_count",
    "tokenizer": "bpe",
    "llm.max_tokens": "4096",
    "secretary": "ann",
    "sasquatch": "seen",
    "region": "kansas",
    "kansas": "KS",
    "compass": "north",
    "primary_key": "id",
    "sort.key": "day",
    "keys": "a,b",
    "encryption.key-id": "arn:aws:kms:eu-west-1:1:key/2",
    "signature": "schema v2",
    "password.policy": "strict",
    "uses_password": "true",
    "tag.pii": "yes",
    "tag.secret": "no",
    "tag.classification": "secret",
    "db.password": "${DB_PASSWORD}",
    "api_key": "{{secrets/scope/name}}",
    "secret": "arn:aws:secretsmanager:eu-west-1:1:secret:db",
    "owner": "ann@example.com",
    "source": "postgresql://reader@db.example.com:5432/sales",
    "masked": "postgresql://reader:***@db.example.com/sales",
    "docs": "https://example.com:8443/wiki/tokens@2",
    "page": "https://example.com/wiki/User:Ann@home",
    "place": "abfss://container@lake.dfs.core.windows.net/path",
    "note": "the password is in the vault; ask for a token",
    "rule": "password = 'x' or token=''",
    "hint": "set password=... in storage_options",
    "query": "https://example.com/q?sig=1&design=2",
    "short": "AKIA",
    "empty": "",
}


@pytest.mark.parametrize("key", SECRET_KEYS)
def test_a_key_that_names_a_credential_is_refused_without_its_value(key: str) -> None:
    with pytest.raises(ConfigError, match="storage_options") as raised:
        refuse_secrets({"owner": "ann", key: SECRET}, what="table s.t")
    assert SECRET not in str(raised.value)
    assert str(raised.value).startswith("table s.t: the property ")


@pytest.mark.parametrize("key", SECRET_KEYS)
def test_what_is_refused_as_a_key_is_masked_in_messages(key: str) -> None:
    assert SECRET not in redact(f"{key}={SECRET}") or key.endswith("windows.net")


@pytest.mark.parametrize("value", SECRET_VALUES)
def test_a_value_that_holds_a_credential_is_refused_and_not_repeated(value: str) -> None:
    with pytest.raises(ConfigError, match="credential chain") as raised:
        refuse_secrets({"comment": value}, what="namespace sales")
    with pytest.raises(ConfigError, match="comment on column a") as of_comment:
        refuse_secret_text(value, what="table s.t", where="the comment on column a")
    for error in (raised, of_comment):
        assert SECRET not in str(error.value)
        assert ACCESS_KEY not in str(error.value)


@pytest.mark.parametrize(("key", "value"), INNOCENT.items(), ids=list(INNOCENT))
def test_an_innocent_property_passes(key: str, value: str) -> None:
    refuse_secrets({key: value}, what="table s.t")


def test_a_key_that_is_itself_a_credential_is_refused_and_masked() -> None:
    with pytest.raises(ConfigError) as raised:
        refuse_secrets({ACCESS_KEY: "x"}, what="table s.t")
    assert ACCESS_KEY not in str(raised.value)


def test_a_property_that_is_removed_is_not_judged() -> None:
    refuse_secrets({"password": None}, what="table s.t")


def _metadata(comment: str = "", *, description: str | None = None, **configuration: str) -> Metadata:
    fields = [{"name": "password", "type": "string", "nullable": True, "metadata": {"comment": comment}}]
    schema = json.dumps({"type": "struct", "fields": fields})
    return Metadata("m", Format(), schema, (), configuration, description=description)


def test_only_what_a_commit_sets_newly_is_judged() -> None:
    by_others = _metadata(f"password={SECRET}", description=ACCESS_KEY, secret=SECRET)
    refuse_new_secrets(by_others, by_others, what="table s.t")
    more = replace(by_others, configuration={**by_others.configuration, "owner": "ann"})
    refuse_new_secrets(more, by_others, what="table s.t")
    with pytest.raises(ConfigError, match="the property secret"):
        refuse_new_secrets(replace(more, configuration={"secret": "another"}), by_others, what="table s.t")
    with pytest.raises(ConfigError, match="the comment seems"):
        refuse_new_secrets(replace(more, description=f"{ACCESS_KEY}!"), by_others, what="table s.t")


def test_comments_and_tags_on_columns_are_judged_and_names_of_columns_are_not() -> None:
    refuse_new_secrets(_metadata("hashed with bcrypt"), None, what="table s.t")
    with pytest.raises(ConfigError, match="the comment on column password seems to hold"):
        refuse_new_secrets(_metadata(f"default password={SECRET}"), None, what="table s.t")
    tagged = _metadata().schema_string.replace('"comment": ""', f'"tag.token": "{SECRET}"')
    with pytest.raises(ConfigError, match="column password: the property tag.token looks like a credential"):
        refuse_new_secrets(replace(_metadata(), schema_string=tagged), None, what="table s.t")
