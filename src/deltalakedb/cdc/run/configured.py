"""The settings of a capture from keywords, `DL_CDC_*` and the section `[cdc]` of a TOML file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final

from deltalakedb.cdc.control import Capture, load_capture
from deltalakedb.cdc.rule_parsing import parse_rules
from deltalakedb.cdc.settings import CaptureSettings, database_of, parse_duration, parse_size
from deltalakedb.exceptions import CaptureError, ConfigError
from deltalakedb.runtime.config import load_config
from deltalakedb.store.names import parse_namespace, parse_table_name

if TYPE_CHECKING:
    from deltalakedb.catalog.catalog import Catalog

# Keys whose name or form differs from the field of CaptureSettings.
_WRITTEN: Final[Mapping[str, tuple[str, Callable[[Any], Any]]]] = {
    "batch_size": ("batch_bytes", parse_size),
    "batch_window": ("batch_seconds", parse_duration),
    "heartbeat": ("heartbeat_seconds", parse_duration),
    "namespace": ("namespace", parse_namespace),
    "copy_beside": ("copy_beside_bytes", parse_size),
    "copy_chunk": ("chunk_bytes", parse_size),
    "rules": ("rules", parse_rules),
    "slot_alert": ("slot_alert_bytes", parse_size),
}
KEYS: Final = tuple(
    {field: key for key, (field, _) in _WRITTEN.items()}.get(one.name, one.name) for one in fields(CaptureSettings)
)
"""The keys of `[cdc]`, which are the keywords of `run` and, with the prefix DL_CDC_, environment variables."""
NOT_OPTIONS: Final = frozenset({"rules", "mask_key"})
"""Keys that are no options of `dl cdc`: a list of tables and a secret do not belong on a command line."""


def load_settings(keywords: Mapping[str, Any], catalog: Catalog | None = None) -> CaptureSettings:
    """The settings in force: `keywords` win over the environment, and that over the configuration file.

    With a catalog, an existing capture of this publication keeps its slot, whatever the default name is.
    """
    values = _configured(keywords)
    for key, example in (("source", "postgresql://user@host/db"), ("publication", "shop")):
        if not values.get(key):
            raise ConfigError(
                f"a capture needs a {key}: give {key}={example!r} (dl cdc start --{key} {example}), set "
                f"DL_CDC_{key.upper()}, or write it into the section [cdc] of the configuration file"
            )
    settings = CaptureSettings(**values)
    settings.check_key()
    if catalog is None or values.get("slot"):
        return settings
    database = database_of(settings.source)
    slots = {
        capture.slot
        for capture, namespace in _list_captures(catalog)
        if (capture.publication, namespace) == (settings.publication, settings.namespace)
        and database in ("", capture.server.database)
    }
    return replace(settings, slot=slots.pop()) if len(slots) == 1 else settings


def find_settings(catalog: Catalog, keywords: Mapping[str, Any]) -> CaptureSettings:
    """The settings of a capture that was started before; what they leave out comes from its control table."""
    values = {"source": "", **_configured(keywords)}
    filters = {key: values.get(key) for key in ("publication", "slot", "namespace")}
    captures: list[dict[str, Any]] = [
        {"publication": capture.publication, "slot": capture.slot, "namespace": namespace}
        for capture, namespace in _list_captures(catalog)
    ]
    matching = [entry for entry in captures if all(value in (None, entry[key]) for key, value in filters.items())]
    if len(matching) > 1:
        slots = ", ".join(sorted(entry["slot"] for entry in matching))
        raise ConfigError(f"the catalog has several captures ({slots}): say which one with --slot")
    if not matching:
        if not values.get("publication"):
            raise ConfigError(
                "the catalog has no such capture: begin one with dl cdc start --source DSN --publication NAME"
            )
        return CaptureSettings(**values)
    return CaptureSettings(**{**values, **matching[0]})


def _configured(keywords: Mapping[str, Any]) -> dict[str, Any]:
    config = load_config({f"cdc.{key}": value for key, value in keywords.items() if value not in (None, ())})
    values: dict[str, Any] = {}
    for key in KEYS:
        value = getattr(config, f"cdc_{key}")
        if value is None:
            continue
        field, parse = _WRITTEN.get(key, (key, None))
        try:
            values[field] = value if parse is None else parse(value)
        except ConfigError as error:
            raise ConfigError(f"setting cdc.{key}: {error}") from None
    return values


def _list_captures(catalog: Catalog) -> list[tuple[Capture, str | None]]:
    """The captures of the catalog, each with its namespace."""
    captures = []
    for info in catalog.table_infos():
        table = parse_table_name(info.full_name)
        if info.format != "delta" or not table.name.startswith("cdc_"):
            continue
        namespace = None if table.namespace == "cdc" else table.namespace
        try:
            capture = load_capture(catalog, CaptureSettings("", "-", slot=table.name[4:], namespace=namespace))
        except (CaptureError, ConfigError):  # a user's table with such a name
            continue
        if capture is not None:
            captures.append((capture, namespace))
    return captures
