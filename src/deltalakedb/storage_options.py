"""Which storage options a table keeps in the catalog, and which are in force for it."""

from __future__ import annotations

from collections.abc import Mapping

from .exceptions import redact
from .store.registry import TableRow

# Of the storage options given for a table, only these are remembered: they say where, never who.
_KEPT_OPTIONS = frozenset({"region", "default_region", "endpoint", "endpoint_url", "allow_http", "account_name"})
_OPTION_PREFIXES = ("aws_", "google_", "azure_storage_", "azure_")
_PROPERTY = "storage_options"


def options_of(table: TableRow, given: Mapping[str, str] | None = None) -> dict[str, str] | None:
    """What was remembered when the table was registered, overridden by what is given now."""
    return {**table.properties.get(_PROPERTY, {}), **(given or {})} or None


def as_properties(options: Mapping[str, str] | None) -> dict[str, dict[str, str]]:
    """The registry properties of a new table that remember what may be remembered of its storage options."""
    kept = _options_to_keep(options)
    return {_PROPERTY: kept} if kept else {}


def _options_to_keep(options: Mapping[str, str] | None) -> dict[str, str]:
    kept = {}
    for key, value in (options or {}).items():
        plain = key.lower()
        for prefix in _OPTION_PREFIXES:
            plain = plain.removeprefix(prefix)
        # An endpoint may be written with a user and a password in it.
        if plain in _KEPT_OPTIONS and redact(str(value)) == str(value) and "@" not in str(value):
            kept[key] = str(value)
    return kept
