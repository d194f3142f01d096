"""docs/configuration.md names every setting with its variable and its default, and its example is a valid file."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
from typer.main import get_command

from deltalakedb.cdc.run.configured import KEYS, NOT_OPTIONS
from deltalakedb.cdc.settings import CaptureSettings, parse_duration, parse_size
from deltalakedb.cli import cdc
from deltalakedb.runtime.config import Config, environment_name, load_config

PAGE = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")
ROWS = {row[0]: row for row in re.findall(r"^\| `([\w.]+)` \| `(DL_\w+)` \| (.*?) \|", PAGE, re.MULTILINE)}


def test_every_setting_is_in_the_table_and_nothing_else() -> None:
    assert {key.replace(".", "_") for key in ROWS} == {field.name for field in fields(Config)}


@pytest.mark.parametrize("key", sorted(ROWS))
def test_a_settings_variable_and_default_are_the_real_ones(key: str) -> None:
    _, variable, default = ROWS[key]
    assert variable == environment_name(key)
    real = getattr(Config(), key.replace(".", "_"))
    if real is not None:
        assert default.strip("`") == (real if isinstance(real, str) else f"{real:g}")


@pytest.mark.parametrize("key", KEYS)
def test_the_defaults_of_a_capture_are_the_real_ones(key: str) -> None:
    default, settings = ROWS[f"cdc.{key}"][2].strip("`"), CaptureSettings("", "shop")
    sizes = {
        "batch_size": settings.batch_bytes,
        "copy_beside": settings.copy_beside_bytes,
        "copy_chunk": settings.chunk_bytes,
        "slot_alert": settings.slot_alert_bytes,
    }
    durations = {"batch_window": settings.batch_seconds, "heartbeat": settings.heartbeat_seconds}
    if key in sizes:
        assert parse_size(default) == sizes[key]
    elif key in durations:
        assert parse_duration(default) == durations[key]
    elif isinstance(getattr(settings, key), int):
        assert int(default) == getattr(settings, key)


def test_every_setting_of_a_capture_is_an_option_of_dl_cdc_start() -> None:
    start = get_command(cdc.group).commands["start"]  # type: ignore[attr-defined]  # typer says less of its groups
    options = {option for parameter in start.params for option in parameter.opts}
    assert {f"--{key.replace('_', '-')}" for key in KEYS if key not in NOT_OPTIONS} <= options


def test_the_example_is_a_valid_file(tmp_path: Path) -> None:
    example = re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert example is not None
    path = tmp_path / "deltalakedb.toml"
    path.write_text(example[1])
    assert load_config(environ={}, file=path).sql_schema == "error"
