"""Configuration: a TOML file, the environment (`DL_*`) and keywords; each overrides the one before."""
# ruff: noqa: RUF009  `_setting` declares a field

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from deltalakedb.exceptions import ConfigError, redact

MirrorMode = Literal["inline", "background", "off"]
ConditionalPut = Literal["auto", "required", "lock"]
RightsMode = Literal["off", "on"]
SqlSchema = Literal["create_if_missing", "error"]


_SECTIONS = ("catalog", "cdc", "concurrency", "data", "mirror", "retention", "rights", "serve", "sql")


def _choice(*allowed: str) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        if value not in allowed:
            raise ValueError(f"must be one of {', '.join(allowed)}")
        return str(value)

    return parse


def _integer(least: int) -> Callable[[Any], int]:
    def parse(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise ValueError("must be a whole number")
        try:
            number = int(value)
        except ValueError:
            raise ValueError("must be a whole number") from None
        if number < least:
            raise ValueError(f"must be at least {least}")
        return number

    return parse


def _number_of(unit: str) -> Callable[[Any], float]:
    def parse(value: Any) -> float:
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise ValueError(f"must be a number of {unit}") from None
        if isinstance(value, bool) or not 0 <= number < float("inf"):
            raise ValueError(f"must be a number of {unit}, zero or more")
        return number

    return parse


_seconds, _days = _number_of("seconds"), _number_of("days")


def _switch(value: Any) -> bool:
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    flag = value if isinstance(value, bool) else words.get(str(value).strip().lower())
    if flag is None:
        raise ValueError("must be 1 or 0, true or false")
    return flag


def _text(value: Any) -> str:
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise ValueError("must be a non-empty text")
    return str(os.fspath(value))


def _texts(value: Any) -> tuple[str, ...]:
    """Parse a list, or one comma-separated text, as in an environment variable."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) and part.strip() for part in parts):
        raise ValueError("must be a list of texts, or one text with commas between them")
    return tuple(part.strip() for part in parts)


def _tables(value: Any) -> tuple[Mapping[str, Any], ...]:
    """Parse a list of TOML tables, or JSON in a variable; the code that uses them checks their contents."""
    if isinstance(value, str):
        import json

        try:
            value = json.loads(value)
        except ValueError:
            value = None
    if not isinstance(value, list | tuple) or not all(isinstance(item, Mapping) for item in value):
        raise ValueError("must be a list of tables, or JSON of one")
    return tuple(value)


def _amount(value: Any) -> str:
    """Parse a number with or without a unit; the code that uses it interprets the unit."""
    if isinstance(value, bool) or not isinstance(value, int | float | str) or not str(value).strip():
        raise ValueError("must be a number, or a text such as 64MB or 5s")
    return str(value).strip()


def _setting(parse: Callable[[Any], Any], default: Any = None, *, is_secret: bool = False) -> Any:
    """Declare a setting: how its value is parsed, and its default."""
    return field(default=default, metadata={"parse": parse, "is_secret": is_secret})


@dataclass(frozen=True, slots=True, repr=False)
class Config:
    """All settings with their defaults; attribute `mirror_mode` is key `mirror.mode` and variable `DL_MIRROR_MODE`."""

    catalog: str | None = _setting(_text)
    warehouse: str | None = _setting(_text)
    actor: str | None = _setting(_text)
    register_paths: bool = _setting(_switch, False)
    catalog_drop_retention: float = _setting(_days, 7.0)
    catalog_promote_on_write: bool = _setting(_switch, True)
    mirror_mode: MirrorMode = _setting(_choice("inline", "background", "off"), "inline")
    mirror_checkpoint_interval: int = _setting(_integer(1), 10)
    mirror_retry_backoff: float = _setting(_seconds, 1.0)
    mirror_inline_timeout: float = _setting(_seconds, 5.0)
    mirror_alert_after: float = _setting(_seconds, 60.0)
    mirror_alert_command: str | None = _setting(_text)
    mirror_conditional_put: ConditionalPut = _setting(_choice("auto", "required", "lock"), "auto")
    sql_schema: SqlSchema = _setting(_choice("create_if_missing", "error"), "create_if_missing")
    sql_max_connections: int = _setting(_integer(1), 4)
    sql_busy_timeout: float = _setting(_seconds, 30.0)
    concurrency_retries: int = _setting(_integer(0), 10)
    concurrency_lock_timeout: float = _setting(_seconds, 60.0)
    retention_log_days: int = _setting(_integer(0), 30)
    retention_deleted_file_days: int = _setting(_integer(0), 7)
    data_memory_limit: str | None = _setting(_text)
    data_temp_folder: str | None = _setting(_text)
    rights_mode: RightsMode = _setting(_choice("off", "on"), "off")
    serve_threads: int = _setting(_integer(1), 16)
    serve_txn_timeout: float = _setting(_seconds, 300.0)
    serve_token: str | None = _setting(_text, is_secret=True)
    serve_actor: str | None = _setting(_text)
    serve_rate_limit: float = _setting(_number_of("requests per second"), 0.0)
    serve_max_connections: int = _setting(_integer(1), 10_000)
    serve_max_commit_bytes: int = _setting(_integer(1), 2**32)
    serve_trusted_proxies: tuple[str, ...] | None = _setting(_texts)
    serve_oidc_issuer: str | None = _setting(_text)
    serve_oidc_audience: tuple[str, ...] | None = _setting(_texts)
    serve_oidc_jwks: str | None = _setting(_text)
    serve_oidc_name_claim: str = _setting(_text, "sub")
    serve_oidc_groups_claim: str = _setting(_text, "groups")
    serve_oidc_algorithms: tuple[str, ...] | None = _setting(_texts)
    serve_oidc_clock_skew: float = _setting(_seconds, 30.0)
    serve_iceberg_locations: tuple[str, ...] | None = _setting(_texts)
    cdc_source: str | None = _setting(_text)
    cdc_publication: str | None = _setting(_text)
    cdc_slot: str | None = _setting(_text)
    cdc_tables: tuple[str, ...] | None = _setting(_texts)
    cdc_namespace: str | None = _setting(_text)
    cdc_batch_size: str | None = _setting(_amount)
    cdc_batch_window: str | None = _setting(_amount)
    cdc_heartbeat: str | None = _setting(_amount)
    cdc_parallelism: int | None = _setting(_integer(0))
    cdc_buckets: int | None = _setting(_integer(0))
    cdc_change_data_feed: bool | None = _setting(_switch)
    cdc_deletion_vectors: bool | None = _setting(_switch)
    cdc_column_mapping: bool | None = _setting(_switch)
    cdc_text_columns: tuple[str, ...] | None = _setting(_texts)
    cdc_optimize_files: int | None = _setting(_integer(0))
    cdc_copy_beside: str | None = _setting(_amount)
    cdc_copy_chunk: str | None = _setting(_amount)
    cdc_resnapshot: str | None = _setting(_text)
    cdc_include: tuple[str, ...] | None = _setting(_texts)
    cdc_exclude: tuple[str, ...] | None = _setting(_texts)
    cdc_composites: str | None = _setting(_choice("text", "json", "struct"))
    cdc_rules: tuple[Mapping[str, Any], ...] | None = _setting(_tables)
    cdc_mask_key: str | None = _setting(_text, is_secret=True)
    cdc_slot_alert: str | None = _setting(_amount)

    def __repr__(self) -> str:
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        settings = ", ".join(
            f"{name}={'***' if name in _SECRETS and value else repr(value)}" for name, value in values.items()
        )
        return redact(f"Config({settings})")


def _key(name: str) -> str:
    """Return the key of an attribute or keyword: `mirror.mode` for `mirror_mode`."""
    section, _, rest = name.partition("_")
    return f"{section}.{rest}" if section in _SECTIONS and rest else name


_SETTINGS = {_key(item.name): item for item in fields(Config)}
_SECRETS = frozenset(item.name for item in fields(Config) if item.metadata["is_secret"])


def environment_name(key: str) -> str:
    """Return the environment variable of a configuration key: `DL_MIRROR_MODE` for `mirror.mode`."""
    return "DL_" + key.replace(".", "_").upper()


_VARIABLES = {environment_name(key): key for key in _SETTINGS}
_SECTION_VARIABLES = tuple(environment_name(section) + "_" for section in _SECTIONS)


def load_config(
    keywords: Mapping[str, Any] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    file: str | os.PathLike[str] | None = None,
) -> Config:
    """Merge file, environment and keywords into a Config; an unknown key is an error that names the nearest key."""
    environ = os.environ if environ is None else environ
    values: dict[str, Any] = {}
    path = Path(file) if file is not None else find_config_file(environ)
    if path is not None:
        values |= _parse_all(_read_toml(path), where=f"in {path}")
    values |= _from_environment(environ)
    if keywords:
        values |= _parse_all(_flatten(keywords), where="as a keyword")
    return Config(**{key.replace(".", "_"): value for key, value in values.items()})


def find_config_file(environ: Mapping[str, str]) -> Path | None:
    """Return `DL_CONFIG` if set, else `deltalakedb.toml` in the working directory, else the user's file, else None."""
    if config_path := environ.get("DL_CONFIG"):
        return Path(config_path)
    home = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME", ""), ".config")
    for candidate in ("deltalakedb.toml", os.path.join(home, "deltalakedb", "config.toml")):
        if os.path.isfile(candidate):
            return Path(candidate)
    return None


def _read_toml(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return _flatten(tomllib.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise ConfigError(f"the configuration file {path} does not exist; check DL_CONFIG") from None
    except OSError as error:
        raise ConfigError(f"the configuration file {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"the configuration file {path} is not valid TOML: {error}") from error


def _flatten(values: Mapping[str, Any]) -> dict[str, Any]:
    """Turn sections into dotted keys; keywords may be `mirror_mode`, `mirror={"mode": ...}` or `"mirror.mode"`."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            # `[catalog] uri = ...` is the catalog's address, next to other settings of that section.
            flat |= {_inner(key, inner): inner_value for inner, inner_value in value.items()}
        else:
            flat[_key(key)] = value
    return flat


def _inner(section: str, key: str) -> str:
    return section if (section, key) == ("catalog", "uri") else f"{section}.{key}"


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for name in environ:
        if not name.startswith("DL_"):
            continue
        key = _VARIABLES.get(name)
        if key is not None and environ[name] != "":
            settings[key] = _parse(key, environ[name], f"in the environment ({name})")
        elif key is None and name.startswith(_SECTION_VARIABLES):
            # Command-line options are DL_* variables too, so only a name close to a known key is an error.
            for nearest in _nearest(name, _VARIABLES, cutoff=0.9):
                raise ConfigError(f"unknown setting {name} in the environment; did you mean {nearest}?")
    return settings


def _parse_all(values: Mapping[str, Any], *, where: str) -> dict[str, Any]:
    """Parse every setting; None, which only a keyword can be, means "not given"."""
    parsed = {key: _parse(key, value, where) for key, value in values.items()}
    return {key: value for key, value in parsed.items() if value is not None}


def _parse(key: str, value: Any, where: str) -> Any:
    setting = _SETTINGS.get(key)
    if setting is None:
        hint = "".join(f"; did you mean {nearest}?" for nearest in _nearest(key, _SETTINGS, cutoff=0.0))
        raise ConfigError(f"unknown setting {key!r} {where}{hint}")
    if value is None:
        return None
    try:
        return setting.metadata["parse"](value)
    except ValueError as error:
        value_text = "***" if setting.name in _SECRETS else repr(value)
        raise ConfigError(redact(f"setting {key} {where} {error}, not {value_text}")) from None


def _nearest(key: str, known: Iterable[str], *, cutoff: float) -> list[str]:
    """Return the known key most similar to this one, whole or by its last part (`retrys`: `concurrency.retries`)."""
    from difflib import SequenceMatcher

    def likeness(candidate: str) -> float:
        return max(SequenceMatcher(None, key, form).ratio() for form in (candidate, candidate.rpartition(".")[2]))

    best = max(known, key=likeness)
    return [best] if likeness(best) >= cutoff else []
