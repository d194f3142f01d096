"""Configuration: a TOML file, the environment (`DL_*`) and keywords; each overrides the one before."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from deltalakedb.exceptions import ConfigError, redact

MirrorMode = Literal["inline", "background", "off"]
ConditionalPut = Literal["auto", "required", "lock"]
SqlSchema = Literal["create_if_missing", "error"]


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


def _seconds(value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError("must be a number of seconds") from None
    if isinstance(value, bool) or not 0 <= number < float("inf"):
        raise ValueError("must be a number of seconds, zero or more")
    return number


def _days(value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError("must be a number of days") from None
    if isinstance(value, bool) or not 0 <= number < float("inf"):
        raise ValueError("must be a number of days, zero or more")
    return number


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


@dataclass(frozen=True, slots=True, repr=False)
class Config:
    """All settings with their defaults; attribute `mirror_mode` is key `mirror.mode` and variable `DL_MIRROR_MODE`."""

    catalog: str | None = None
    warehouse: str | None = None
    actor: str | None = None
    register_paths: bool = False
    catalog_drop_retention: float = 7.0
    catalog_promote_on_write: bool = True
    mirror_mode: MirrorMode = "inline"
    mirror_checkpoint_interval: int = 10
    mirror_retry_backoff: float = 1.0
    mirror_inline_timeout: float = 5.0
    mirror_alert_after: float = 60.0
    mirror_alert_command: str | None = None
    mirror_conditional_put: ConditionalPut = "auto"
    sql_schema: SqlSchema = "create_if_missing"
    sql_max_connections: int = 4
    sql_busy_timeout: float = 30.0
    concurrency_retries: int = 10
    concurrency_lock_timeout: float = 60.0
    retention_log_days: int = 30
    retention_deleted_file_days: int = 7
    data_memory_limit: str | None = None
    data_temp_folder: str | None = None
    serve_threads: int = 16
    serve_txn_timeout: float = 300.0
    serve_token: str | None = None
    cdc_source: str | None = None
    cdc_publication: str | None = None
    cdc_slot: str | None = None
    cdc_tables: tuple[str, ...] | None = None
    cdc_namespace: str | None = None
    cdc_batch_size: str | None = None
    cdc_batch_window: str | None = None
    cdc_heartbeat: str | None = None
    cdc_parallelism: int | None = None
    cdc_buckets: int | None = None
    cdc_change_data_feed: bool | None = None
    cdc_deletion_vectors: bool | None = None
    cdc_column_mapping: bool | None = None
    cdc_text_columns: tuple[str, ...] | None = None
    cdc_optimize_files: int | None = None
    cdc_copy_beside: str | None = None
    cdc_copy_chunk: str | None = None
    cdc_resnapshot: str | None = None
    cdc_include: tuple[str, ...] | None = None
    cdc_exclude: tuple[str, ...] | None = None
    cdc_composites: str | None = None
    cdc_rules: tuple[Mapping[str, Any], ...] | None = None
    cdc_mask_key: str | None = None
    cdc_slot_alert: str | None = None

    def __repr__(self) -> str:
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        settings = ", ".join(
            f"{name}={'***' if name in _SECRETS and value else repr(value)}" for name, value in values.items()
        )
        return redact(f"Config({settings})")


_PARSERS: dict[str, Callable[[Any], Any]] = {
    "catalog": _text,
    "warehouse": _text,
    "actor": _text,
    "register_paths": _switch,
    "catalog.drop_retention": _days,
    "catalog.promote_on_write": _switch,
    "mirror.mode": _choice("inline", "background", "off"),
    "mirror.checkpoint_interval": _integer(1),
    "mirror.retry_backoff": _seconds,
    "mirror.inline_timeout": _seconds,
    "mirror.alert_after": _seconds,
    "mirror.alert_command": _text,
    "mirror.conditional_put": _choice("auto", "required", "lock"),
    "sql.schema": _choice("create_if_missing", "error"),
    "sql.max_connections": _integer(1),
    "sql.busy_timeout": _seconds,
    "concurrency.retries": _integer(0),
    "concurrency.lock_timeout": _seconds,
    "retention.log_days": _integer(0),
    "retention.deleted_file_days": _integer(0),
    "data.memory_limit": _text,
    "data.temp_folder": _text,
    "serve.threads": _integer(1),
    "serve.txn_timeout": _seconds,
    "serve.token": _text,
    "cdc.source": _text,
    "cdc.publication": _text,
    "cdc.slot": _text,
    "cdc.tables": _texts,
    "cdc.namespace": _text,
    "cdc.batch_size": _amount,
    "cdc.batch_window": _amount,
    "cdc.heartbeat": _amount,
    "cdc.parallelism": _integer(0),
    "cdc.buckets": _integer(0),
    "cdc.change_data_feed": _switch,
    "cdc.deletion_vectors": _switch,
    "cdc.column_mapping": _switch,
    "cdc.text_columns": _texts,
    "cdc.optimize_files": _integer(0),
    "cdc.copy_beside": _amount,
    "cdc.copy_chunk": _amount,
    "cdc.resnapshot": _text,
    "cdc.include": _texts,
    "cdc.exclude": _texts,
    "cdc.composites": _choice("text", "json", "struct"),
    "cdc.rules": _tables,
    "cdc.mask_key": _text,
    "cdc.slot_alert": _amount,
}
_SECRETS = frozenset({"serve_token", "cdc_mask_key"})
_SECTIONS = {key.partition(".")[0] for key in _PARSERS if "." in key}


def environment_name(key: str) -> str:
    """Return the environment variable of a configuration key: `DL_MIRROR_MODE` for `mirror.mode`."""
    return "DL_" + key.replace(".", "_").upper()


_VARIABLES = {environment_name(key): key for key in _PARSERS}
_SECTION_VARIABLES = tuple(environment_name(section) + "_" for section in sorted(_SECTIONS))


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
    values |= _parse_all(_flatten(keywords or {}), where="as a keyword")
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
            flat[_dotted(key)] = value
    return flat


def _inner(section: str, key: str) -> str:
    return section if (section, key) == ("catalog", "uri") else f"{section}.{key}"


def _dotted(key: str) -> str:
    section, _, rest = key.partition("_")
    return f"{section}.{rest}" if section in _SECTIONS and rest else key


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
    parse = _PARSERS.get(key)
    if parse is None:
        hint = "".join(f"; did you mean {nearest}?" for nearest in _nearest(key, _PARSERS, cutoff=0.0))
        raise ConfigError(f"unknown setting {key!r} {where}{hint}")
    if value is None:
        return None
    try:
        return parse(value)
    except ValueError as error:
        value_text = "***" if key.replace(".", "_") in _SECRETS else repr(value)
        raise ConfigError(redact(f"setting {key} {where} {error}, not {value_text}")) from None


def _nearest(key: str, known: Iterable[str], *, cutoff: float) -> list[str]:
    """Return the known key most similar to this one, whole or by its last part (`retrys`: `concurrency.retries`)."""
    from difflib import SequenceMatcher

    def likeness(candidate: str) -> float:
        return max(SequenceMatcher(None, key, form).ratio() for form in (candidate, candidate.rpartition(".")[2]))

    best = max(known, key=likeness)
    return [best] if likeness(best) >= cutoff else []
