"""Which storage options of a table the catalog stores, and which are in force."""

from __future__ import annotations

from collections.abc import Mapping

from deltalakedb.exceptions import redact
from deltalakedb.store.registry import TableRow

# Of a table's storage options only these are stored: they describe the location, never credentials.
_KEPT_OPTIONS = frozenset({"region", "default_region", "endpoint", "endpoint_url", "allow_http", "account_name"})
_OPTION_PREFIXES = ("aws_", "google_", "azure_storage_", "azure_")
STORAGE_OPTIONS = "storage_options"
"""The registry property that has them."""


def options_of(table: TableRow, given: Mapping[str, str] | None = None) -> dict[str, str] | None:
    """Return the stored options of a table, overridden by those given now."""
    return {**table.properties.get(STORAGE_OPTIONS, {}), **(given or {})} or None


def as_properties(options: Mapping[str, str] | None) -> dict[str, dict[str, str]]:
    """Return the registry properties of a new table that store the permitted part of its storage options."""
    stored_options = safe_options(options)
    return {STORAGE_OPTIONS: stored_options} if stored_options else {}


def safe_options(options: Mapping[str, str] | None) -> dict[str, str]:
    """Return the options that say where a location is, without credentials."""
    stored_options = {}
    for key, value in (options or {}).items():
        option = key.lower()
        for prefix in _OPTION_PREFIXES:
            option = option.removeprefix(prefix)
        # An endpoint may contain a user and a password.
        if option in _KEPT_OPTIONS and redact(str(value)) == str(value) and "@" not in str(value):
            stored_options[key] = str(value)
    return stored_options
