"""The options of `dl cdc`: each is a setting of a capture, with the setting's own name and variable."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from deltalakedb.runtime.config import environment_name


def _option(key: str, kind: Any, metavar: str, help_text: str) -> Any:
    """The option of a setting: `batch_size` is --batch-size, and DL_CDC_BATCH_SIZE in the environment."""
    name = key.replace("_", "-")
    flag = f"--{name}/--no-{name}" if kind is bool else f"--{name}"
    least = 0 if kind is int else None
    variable = environment_name(f"cdc.{key}")
    option = typer.Option(flag, envvar=variable, metavar=metavar or None, min=least, help=help_text)
    return Annotated[kind | None, option]


_SETTINGS: Final[tuple[tuple[str, Any, str, str], ...]] = (
    (
        "source", str, "DSN",
        "The Postgres to capture: a DSN of libpq. Put the password into ~/.pgpass, PGPASSWORD or the configuration "
        "file.",
    ),
    ("publication", str, "NAME", "The publication of the source whose tables are captured."),
    ("slot", str, "NAME", "The replication slot; by default dl_, the database and the publication."),
    ("namespace", str, "NAME", "The namespace of all tables; by default a table's namespace is its schema."),
    (
        "tables", list[str], "TABLE,...",
        "Source tables (schema.name, or a name in public), repeatable; by default all published tables.",
    ),
    (
        "include", list[str], "PATTERN,...",
        "Patterns of source tables that are captured (sales.*, public.order_*), repeatable; by default all.",
    ),
    ("exclude", list[str], "PATTERN,...", "Patterns of source tables that are not captured, repeatable."),
    (
        "text_columns", list[str], "COLUMN,...",
        "Columns (schema.table.column) that are captured as the text that Postgres prints, repeatable.",
    ),
    (
        "composites", str, "KIND",
        "What columns of composite types become: text as psql prints it (the default), json, or struct.",
    ),
    ("batch_size", str, "SIZE", "A batch ends after this much of the source's log; 64MB by default."),
    ("batch_window", str, "TIME", "A batch ends after this time, however small it is; 5s by default."),
    ("heartbeat", str, "TIME", "How often progress is recorded while nothing changes; 60s by default."),
    (
        "parallelism", int, "N",
        "How many tasks read a batch or copy tables in parallel; by default as many as Spark runs at once.",
    ),
    ("buckets", int, "N", "Partition new tables of current rows by a hash of their key into this many parts."),
    ("change_data_feed", bool, "", "Give new tables of current rows Delta's change data feed."),
    ("deletion_vectors", bool, "", "Give new tables of current rows deletion vectors; they have them by default."),
    ("column_mapping", bool, "", "Create tables that can follow renamed and dropped columns."),
    ("optimize_files", int, "N", "Compact small files of a table when it has this many; 32 by default, 0 for never."),
    ("copy_beside", str, "SIZE", "Copy this much while the stream waits, and the rest beside it; 64MB by default."),
    ("copy_chunk", str, "SIZE", "Read a table that is copied beside the stream in parts this large; 64MB by default."),
    (
        "resnapshot", str, "POLICY",
        "What is copied again automatically: never, tables (that have stopped) or slot (all, when the slot is lost).",
    ),
    ("slot_alert", str, "SIZE", "Report a problem when the slot keeps more of the source's log; never by default."),
)  # fmt: skip
OPTIONS: Final = {key: _option(key, *rest) for key, *rest in _SETTINGS}
"""Each setting that is an option, with its annotation."""
IDENTITY: Final = ("source", "publication", "slot", "namespace")
"""The settings that say which capture is meant."""
CHOICE: Final = (*IDENTITY, "tables", "include", "exclude", "text_columns", "composites")
"""The settings that say what a capture captures."""

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", envvar="DL_CONFIG", metavar="FILE", help="A TOML file with the settings, section [cdc]."),
]


def takes_settings(keys: tuple[str, ...]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of these settings: it gets those that are set as its first argument, a dict."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def run(**arguments: Any) -> None:
            values = {key: _split(arguments.pop(key)) for key in keys}
            function({key: value for key, value in values.items() if value is not None}, **arguments)

        signature = inspect.signature(function, eval_str=True)
        options = [
            inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=OPTIONS[key])
            for key in keys
        ]
        _, *others = signature.parameters.values()
        own = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in others]
        run.__signature__ = signature.replace(parameters=[*options, *own])  # type: ignore[attr-defined]
        return run

    return decorate


def _split(value: Any) -> Any:
    """The value of an option; a repeatable one may contain several texts, separated by commas."""
    if not isinstance(value, list):
        return value
    parts = [part.strip() for text in value for part in text.split(",")]
    return [part for part in parts if part] or None


@contextmanager
def settings_of(config: Path | None) -> Iterator[None]:
    """With --config, look up every setting in that file, the catalog's too."""
    before = os.environ.get("DL_CONFIG")
    if config is not None:
        os.environ["DL_CONFIG"] = str(config)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("DL_CONFIG", None)
        else:
            os.environ["DL_CONFIG"] = before
