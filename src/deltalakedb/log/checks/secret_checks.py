"""Rejects credentials in properties, tags and comments, which every reader of a table's log can see.

Only newly set values are checked. What another writer has committed stays unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NoReturn

from deltalakedb.exceptions import AWS_KEY_ID, CREDENTIAL_TAIL, CREDENTIAL_WORDS, ConfigError, redact
from deltalakedb.log.protocol.actions import Metadata
from deltalakedb.log.protocol.features import BY_FIELD, CONSTRAINT_PREFIX, every_field
from deltalakedb.log.schema.types import parse_schema

HINT: Final = (
    "properties, tags and comments are no place for credentials: everybody who reads the table or the catalog reads "
    "them. Give credentials as storage_options, in the environment, or by the cloud's own credential chain; a "
    "property may hold the name of a secret, such as ${NAME}"
)

# Azure's keys have the account name after the word itself: fs.azure.account.key.<account>.dfs.core.windows.net
_SECRET_KEY: Final = re.compile(
    rf"(?i){CREDENTIAL_WORDS}{CREDENTIAL_TAIL}(?:\.[\w\-]+\.(?:dfs|blob)\.core\.windows\.net)?$"
)
_EXEMPT_KEYS: Final = (CONSTRAINT_PREFIX, "delta.feature.")
"""After these prefixes the user chooses the name: a constraint may be called `password`."""

_HARMLESS_VALUE: Final = re.compile(
    r"(?i)\s*(?:|true|false|yes|no|on|off|none|null|\*+|\$\{.*\}|\{\{.*\}\}|arn:.*)\s*", re.DOTALL
)
"""A switch, or the name of a secret that is stored elsewhere."""

_ANY_SECRET: Final = tuple(
    (re.compile(pattern), what)
    for pattern, what in (
        (AWS_KEY_ID, "an AWS access key"),
        (r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----", "a private key"),
        (r"[\w+.\-]://[^\s/@:?#]*:(?!\*+@)[^\s/@]+@", "a URL with a password in it"),
        (r"(?i)[?&](?:sig|x-amz-signature)=[^&\s]{8,}", "a signed URL"),
    )
)
# A value in quotation marks, or with blanks around the sign, is a condition in SQL, not a connection string.
_ASSIGNMENT: Final = re.compile(rf"(?i){CREDENTIAL_WORDS}{CREDENTIAL_TAIL}=(?![\s'\"*.<${{(=])[^\s&;,]{{3,}}")


def refuse_secrets(properties: Mapping[str, object], *, what: str) -> None:
    """Raises ConfigError for a property that looks like a credential, by its name or by its value; None is accepted.

    `what` begins the message: "table sales.orders", "namespace sales".
    """
    for key, value in properties.items():
        if value is None:
            continue
        text = str(value)
        has_secret_name = not key.startswith(_EXEMPT_KEYS) and _SECRET_KEY.search(key) is not None
        if has_secret_name and not _HARMLESS_VALUE.fullmatch(text):
            _refuse(what, f"the property {redact(key)} looks like a credential by its name")
        # A constraint is SQL, in which `token=1` is a condition.
        secret_kind = _find_secret(text, is_sql=key.startswith(CONSTRAINT_PREFIX)) or _find_secret(key)
        if secret_kind is not None:
            _refuse(what, f"the property {redact(key)} seems to hold {secret_kind}")


def refuse_secret_text(text: str | None, *, what: str, where: str) -> None:
    """Raises ConfigError for a comment that contains a credential."""
    secret_kind = _find_secret(text or "")
    if secret_kind is not None:
        _refuse(what, f"{where} seems to hold {secret_kind}")


def refuse_new_secrets(new: Metadata, old: Metadata | None, *, what: str) -> None:
    """Raises ConfigError for a credential in properties, tags or comments that a metaData action newly sets."""
    old_properties = {} if old is None else old.configuration
    changed = {key: value for key, value in new.configuration.items() if old_properties.get(key) != value}
    refuse_secrets(changed, what=what)
    if old is None or new.description != old.description:
        refuse_secret_text(new.description, what=what, where="the comment")
    if old is not None and old.schema_string == new.schema_string:
        return
    old_texts = {} if old is None else dict(_field_texts(old))
    for (path, key), text in _field_texts(new):
        if old_texts.get((path, key)) == text:
            continue
        if key == "comment":
            refuse_secret_text(text, what=what, where=f"the comment on column {path}")
        else:
            refuse_secrets({key: text}, what=f"{what}, column {path}")


def _field_texts(metadata: Metadata) -> Iterator[tuple[tuple[str, str], str]]:
    """Yields the texts that users attach to columns, not those that the protocol defines (SQL, ids, types)."""
    for path, item in every_field(parse_schema(metadata.schema_string)):
        for key, value in item.metadata.items():
            if isinstance(value, str) and not key.startswith(("delta.", "__")) and key not in BY_FIELD:
                yield (path, key), value


def _find_secret(text: str, *, is_sql: bool = False) -> str | None:
    """The kind of credential in a text; None if none is recognised."""
    for pattern, kind in _ANY_SECRET:
        if pattern.search(text):
            return kind
    return "a connection string with a credential in it" if not is_sql and _ASSIGNMENT.search(text) else None


def _refuse(what: str, reason: str) -> NoReturn:
    raise ConfigError(f"{redact(what)}: {reason}; nothing was changed. {HINT[0].upper()}{HINT[1:]}")
