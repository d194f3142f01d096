"""Refuses credentials in properties, tags and comments, which everybody who reads a table's log can read.

Only what is newly set is judged. What another writer has committed stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NoReturn

from deltalakedb.exceptions import AWS_KEY_ID, CREDENTIAL_TAIL, CREDENTIAL_WORDS, ConfigError, redact
from deltalakedb.log.actions import Metadata
from deltalakedb.log.feature_use import BY_FIELD, CONSTRAINT_PREFIX, every_field
from deltalakedb.log.types import parse_schema

HINT: Final = (
    "properties, tags and comments are no place for credentials: everybody who reads the table or the catalog reads "
    "them. Give credentials as storage_options, in the environment, or by the cloud's own credential chain; a "
    "property may hold the name of a secret, such as ${NAME}"
)

# Azure's keys name their account after the word itself: fs.azure.account.key.<account>.dfs.core.windows.net
_SECRET_KEY: Final = re.compile(
    rf"(?i){CREDENTIAL_WORDS}{CREDENTIAL_TAIL}(?:\.[\w\-]+\.(?:dfs|blob)\.core\.windows\.net)?$"
)
_EXEMPT_KEYS: Final = (CONSTRAINT_PREFIX, "delta.feature.")
"""What follows is a name of the user's: a constraint may well be called `password`."""

_HARMLESS_VALUE: Final = re.compile(
    r"(?i)\s*(?:|true|false|yes|no|on|off|none|null|\*+|\$\{.*\}|\{\{.*\}\}|arn:.*)\s*", re.DOTALL
)
"""A switch, or the name of a secret that is kept elsewhere."""

_ANY_SECRET: Final = tuple(
    (re.compile(pattern), what)
    for pattern, what in (
        (AWS_KEY_ID, "an AWS access key"),
        (r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----", "a private key"),
        (r"[A-Za-z][\w+.\-]*://[^\s/@:?#]*:(?!\*+@)[^\s/@]+@", "a URL with a password in it"),
        (r"(?i)[?&](?:sig|x-amz-signature)=[^&\s]{8,}", "a signed URL"),
    )
)
# A value in quotation marks, or with blanks around the sign, is a condition in SQL rather than a connection string.
_ASSIGNMENT: Final = re.compile(rf"(?i){CREDENTIAL_WORDS}{CREDENTIAL_TAIL}=(?![\s'\"*.<${{(=])[^\s&;,]{{3,}}")


def refuse_secrets(properties: Mapping[str, object], *, what: str) -> None:
    """Raise ConfigError for a property that looks like a credential, by its name or by its value; None passes.

    `what` begins the message: "table sales.orders", "namespace sales".
    """
    for key, value in properties.items():
        if value is None:
            continue
        text = str(value)
        named = not key.startswith(_EXEMPT_KEYS) and _SECRET_KEY.search(key) is not None
        if named and not _HARMLESS_VALUE.fullmatch(text):
            _refuse(what, f"the property {redact(key)} looks like a credential by its name")
        # A constraint's text is SQL, in which `token=1` is a condition.
        found = _find_secret(text, is_sql=key.startswith(CONSTRAINT_PREFIX)) or _find_secret(key)
        if found is not None:
            _refuse(what, f"the property {redact(key)} seems to hold {found}")


def refuse_secret_text(text: str | None, *, what: str, where: str) -> None:
    """Raise ConfigError for a comment with a credential in it."""
    found = _find_secret(text or "")
    if found is not None:
        _refuse(what, f"{where} seems to hold {found}")


def refuse_new_secrets(new: Metadata, old: Metadata | None, *, what: str) -> None:
    """Raise ConfigError for a credential in properties, tags or comments that a metaData action sets newly."""
    known = {} if old is None else old.configuration
    changed = {key: value for key, value in new.configuration.items() if known.get(key) != value}
    refuse_secrets(changed, what=what)
    if old is None or new.description != old.description:
        refuse_secret_text(new.description, what=what, where="the comment")
    if old is not None and old.schema_string == new.schema_string:
        return
    before = {} if old is None else dict(_field_texts(old))
    for (path, key), text in _field_texts(new):
        if before.get((path, key)) == text:
            continue
        if key == "comment":
            refuse_secret_text(text, what=what, where=f"the comment on column {path}")
        else:
            refuse_secrets({key: text}, what=f"{what}, column {path}")


def _field_texts(metadata: Metadata) -> Iterator[tuple[tuple[str, str], str]]:
    """What people write beside columns. What the protocol keeps there (SQL, ids, types) is no place for them."""
    for path, item in every_field(parse_schema(metadata.schema_string)):
        for key, value in item.metadata.items():
            if isinstance(value, str) and not key.startswith(("delta.", "__")) and key not in BY_FIELD:
                yield (path, key), value


def _find_secret(text: str, *, is_sql: bool = False) -> str | None:
    """What kind of credential a text holds; None: none that we know."""
    for pattern, kind in _ANY_SECRET:
        if pattern.search(text):
            return kind
    return "a connection string with a credential in it" if not is_sql and _ASSIGNMENT.search(text) else None


def _refuse(what: str, reason: str) -> NoReturn:
    raise ConfigError(f"{redact(what)}: {reason}; nothing was changed. {HINT[0].upper()}{HINT[1:]}")
