"""Configuration: file, environment, keyword, the later wins; slips are named; secrets are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deltalakedb.exceptions import ConfigError
from deltalakedb.runtime.config import Config, environment_name, load_config


def _file(folder: Path, text: str) -> Path:
    path = folder / "settings.toml"
    path.write_text(text)
    return path


def test_without_any_source_the_defaults_hold() -> None:
    config = load_config(environ={})
    assert config == Config()
    assert (config.mirror_mode, config.mirror_checkpoint_interval) == ("inline", 10)
    assert config.sql_schema == "create_if_missing"


def test_the_environment_overrides_the_file_and_a_keyword_overrides_both(tmp_path: Path) -> None:
    mirror = '[mirror]\nmode = "off"\ncheckpoint_interval = 5'
    path = _file(tmp_path, f'catalog = "/a.db"\n{mirror}\n[concurrency]\nretries = 1')
    environ = {"DL_MIRROR_MODE": "background", "DL_CONCURRENCY_RETRIES": "2"}
    config = load_config({"concurrency_retries": 3}, environ=environ, file=path)
    assert config.catalog == "/a.db"
    assert config.mirror_checkpoint_interval == 5
    assert config.mirror_mode == "background"
    assert config.concurrency_retries == 3


def test_dl_config_names_the_file(tmp_path: Path) -> None:
    path = _file(tmp_path, "[retention]\nlog_days = 3")
    assert load_config(environ={"DL_CONFIG": str(path)}).retention_log_days == 3


def test_a_file_in_the_working_directory_is_found_before_the_users_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / "deltalakedb").mkdir(parents=True)
    (home / "deltalakedb" / "config.toml").write_text("[mirror]\ncheckpoint_interval = 7")
    monkeypatch.chdir(tmp_path)
    environ = {"XDG_CONFIG_HOME": str(home)}
    assert load_config(environ=environ).mirror_checkpoint_interval == 7
    (tmp_path / "deltalakedb.toml").write_text("[mirror]\ncheckpoint_interval = 8")
    assert load_config(environ=environ).mirror_checkpoint_interval == 8


@pytest.mark.parametrize(
    "keywords",
    [{"mirror_mode": "off"}, {"mirror.mode": "off"}, {"mirror": {"mode": "off"}}],
    ids=["flat", "dotted", "nested"],
)
def test_a_keyword_may_be_written_three_ways(keywords: dict[str, Any]) -> None:
    assert load_config(keywords, environ={}).mirror_mode == "off"


def test_a_keyword_of_none_means_not_given() -> None:
    assert load_config({"mirror_mode": None}, environ={"DL_MIRROR_MODE": "off"}).mirror_mode == "off"


def test_an_empty_variable_means_not_given() -> None:
    assert load_config(environ={"DL_MIRROR_MODE": "", "DL_CATALOG": ""}) == Config()


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("mirror_moed", "mirror.mode"),
        ("mirror.checkpoint", "mirror.checkpoint_interval"),
        ("retrys", "concurrency.retries"),
    ],
)
def test_an_unknown_keyword_is_an_error_that_names_the_nearest(key: str, nearest: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown setting.*as a keyword.*did you mean {nearest}"):
        load_config({key: None}, environ={})


def test_an_unknown_key_in_the_file_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    path = _file(tmp_path, '[sql]\nshema = "error"')
    with pytest.raises(ConfigError, match=r"'sql\.shema' in .*settings\.toml; did you mean sql\.schema"):
        load_config(environ={}, file=path)


def test_a_slip_in_the_environment_is_an_error_and_a_command_line_option_is_not() -> None:
    with pytest.raises(ConfigError, match=r"DL_MIRROR_MOED.*did you mean DL_MIRROR_MODE"):
        load_config(environ={"DL_MIRROR_MOED": "off"})
    assert load_config(environ={"DL_SQL_JSON": "1", "DL_TABLES_JSON": "1", "DL_": "", "DL_DEBUG": "1"}) == Config()


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("mirror.mode", "sometimes", "one of inline, background, off"),
        ("sql.schema", "yes", "one of create_if_missing, error"),
        ("mirror.checkpoint_interval", "0", "at least 1"),
        ("mirror.checkpoint_interval", "ten", "whole number"),
        ("concurrency.retries", True, "whole number"),
        ("concurrency.retries", 1.5, "whole number"),
        ("mirror.retry_backoff", "-1", "zero or more"),
        ("mirror.retry_backoff", "inf", "zero or more"),
        ("sql.busy_timeout", "soon", "number of seconds"),
        ("catalog", "", "non-empty"),
    ],
)
def test_a_bad_value_is_an_error_that_names_the_setting(key: str, value: object, reason: str) -> None:
    with pytest.raises(ConfigError, match=f"setting {key} .*{reason}"):
        load_config({key: value}, environ={})


def test_a_bad_value_in_the_environment_names_the_variable() -> None:
    with pytest.raises(ConfigError, match=r"DL_MIRROR_MODE.*not 'maybe'"):
        load_config(environ={"DL_MIRROR_MODE": "maybe"})


def test_a_missing_or_broken_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.toml does not exist"):
        load_config(environ={"DL_CONFIG": str(tmp_path / "gone.toml")})
    with pytest.raises(ConfigError, match=r"settings\.toml is not valid TOML"):
        load_config(environ={}, file=_file(tmp_path, "mirror = "))
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(environ={}, file=tmp_path)


def test_every_setting_has_a_variable_of_its_own() -> None:
    names = {environment_name(key) for key in ("mirror.mode", "sql.schema", "catalog")}
    assert names == {"DL_MIRROR_MODE", "DL_SQL_SCHEMA", "DL_CATALOG"}


def test_the_password_of_the_catalog_is_never_shown() -> None:
    config = load_config(environ={"DL_CATALOG": "postgresql://ann:s3cr3t@h/lake"})
    assert config.catalog == "postgresql://ann:s3cr3t@h/lake"
    assert "s3cr3t" not in repr(config)


def test_the_token_of_the_endpoint_is_shown_nowhere() -> None:
    assert "a-secret-token" not in repr(load_config({"serve_token": "a-secret-token"}, environ={}))
    with pytest.raises(ConfigError, match=r"serve\.token") as refused:
        load_config({"serve": {"token": 12345678}}, environ={})
    assert "12345678" not in str(refused.value)
