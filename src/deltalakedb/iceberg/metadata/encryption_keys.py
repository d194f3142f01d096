"""Encryption keys of a table: parsing and updates."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from deltalakedb.iceberg.metadata.shapes import optional_string, refuse, require_object, string_field, string_map
from deltalakedb.iceberg.metadata.table_draft import TableDraft, Update


def parse_encryption_key(item: object, what: str = "encryption key") -> dict[str, Any]:
    """An encryption key whose fields have been checked."""
    source = require_object(item, what)
    string_field(source, "key-id", what)
    text = string_field(source, "encrypted-key-metadata", what)
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        refuse(f"Cannot parse {what}: 'encrypted-key-metadata' is not base64")
    optional_string(source, "encrypted-by-id", what)
    if "properties" in source:
        string_map(source, "properties", what)
    return {key: value for key, value in source.items() if value is not None or key != "encrypted-by-id"}


def add_encryption_key(draft: TableDraft, update: Mapping[str, Any]) -> None:
    """Add an encryption key, unless there is one with its id."""
    key = parse_encryption_key(update.get("encryption-key"))
    keys = draft.fields.get("encryption-keys", [])
    if all(other["key-id"] != key["key-id"] for other in keys):
        draft.set("encryption-keys", [*keys, key])


def remove_encryption_key(draft: TableDraft, update: Mapping[str, Any]) -> None:
    """Remove an encryption key, if there is one with the id."""
    key_id = string_field(update, "key-id", "remove-encryption-key")
    keys = draft.fields.get("encryption-keys", [])
    kept = [key for key in keys if key["key-id"] != key_id]
    if len(kept) != len(keys):
        draft.set("encryption-keys", kept)


UPDATES: Mapping[str, Update] = {
    "add-encryption-key": add_encryption_key,
    "remove-encryption-key": remove_encryption_key,
}
