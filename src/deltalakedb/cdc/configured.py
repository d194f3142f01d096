"""The settings of a capture as they are given: by keyword, by `DL_CDC_*`, by the section `[cdc]` of a TOML file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from deltalakedb.cdc.control import load_capture
from deltalakedb.cdc.settings import CaptureSettings, parse_duration, parse_size
from deltalakedb.config import load_config
from deltalakedb.exceptions import CaptureError, ConfigError
from deltalakedb.names import parse_namespace, parse_table_name

if TYPE_CHECKING:
    from deltalakedb.catalog import Catalog

# Where the name or the form that people write is not that of CaptureSettings.
_WRITTEN: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "batch_size": ("batch_bytes", parse_size),
    "batch_window": ("batch_seconds", parse_duration),
    "heartbeat": ("heartbeat_seconds", parse_duration),
    "namespace": ("namespace", parse_namespace),
}
KEYS: Final = tuple(
    {field: key for key, (field, _) in _WRITTEN.items()}.get(one.name, one.name) for one in fields(CaptureSettings)
)
"""The keys of `[cdc]`, which are the keywords of `run` and, with DL_CDC_ before them, variables."""


def load_settings(given: Mapping[str, Any]) -> CaptureSettings:
    """The settings in force: what is given wins over the environment, and that over the configuration file."""
    found = _configured(given)
    for key, example in (("source", "postgresql://user@host/db"), ("publication", "shop")):
        if not found.get(key):
            raise ConfigError(
                f"a capture needs a {key}: give {key}={example!r} (dl cdc start --{key} {example}), set "
                f"DL_CDC_{key.upper()}, or write it into the section [cdc] of the configuration file"
            )
    return CaptureSettings(**found)


def find_settings(catalog: Catalog, given: Mapping[str, Any]) -> CaptureSettings:
    """The settings of a capture that has been started: what is not given is known to its control table."""
    found = {"source": "", **_configured(given)}
    wanted = {key: found.get(key) for key in ("publication", "slot", "namespace")}
    known = [one for one in _known(catalog) if all(value in (None, one[key]) for key, value in wanted.items())]
    if len(known) > 1:
        slots = ", ".join(sorted(one["slot"] for one in known))
        raise ConfigError(f"the catalog has several captures ({slots}): say which one with --slot")
    if not known:
        if not found.get("publication"):
            raise ConfigError(
                "the catalog has no such capture: begin one with dl cdc start --source DSN --publication NAME"
            )
        return CaptureSettings(**found)
    return CaptureSettings(**{**found, **known[0]})


def _configured(given: Mapping[str, Any]) -> dict[str, Any]:
    config = load_config({f"cdc.{key}": value for key, value in given.items() if value not in (None, ())})
    found: dict[str, Any] = {}
    for key in KEYS:
        value = getattr(config, f"cdc_{key}")
        if value is None:
            continue
        field, parse = _WRITTEN.get(key, (key, None))
        try:
            found[field] = value if parse is None else parse(value)
        except ConfigError as error:
            raise ConfigError(f"setting cdc.{key}: {error}") from None
    return found


def _known(catalog: Catalog) -> list[dict[str, Any]]:
    """Publication, slot and namespace of each capture that the catalog has."""
    found = []
    for name in catalog.tables():
        table = parse_table_name(name)
        if not table.name.startswith("cdc_"):
            continue
        namespace = None if table.namespace == "cdc" else table.namespace
        try:
            capture = load_capture(catalog, CaptureSettings("", "-", slot=table.name[4:], namespace=namespace))
        except (CaptureError, ConfigError):  # a table of somebody's own that is called like one
            continue
        if capture is not None:
            found.append({"publication": capture.publication, "slot": capture.slot, "namespace": namespace})
    return found
