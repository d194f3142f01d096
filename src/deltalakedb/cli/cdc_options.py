"""The options of `dl cdc`: each is a setting of a capture, with the setting's own name and variable."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from deltalakedb.runtime.config import environment_name


def _setting(key: str, metavar: str, what: str, **more: Any) -> Any:
    """The option of a setting: `batch_size` is --batch-size, and DL_CDC_BATCH_SIZE in the environment."""
    name, variable = f"--{key.replace('_', '-')}", environment_name(f"cdc.{key}")
    return typer.Option(name, envvar=variable, metavar=metavar, help=what, **more)


def _switch(key: str, what: str) -> Any:
    """The option of a switch: --column-mapping and --no-column-mapping."""
    name = key.replace("_", "-")
    return typer.Option(f"--{name}/--no-{name}", envvar=environment_name(f"cdc.{key}"), help=what)


SourceOption = Annotated[
    str | None,
    _setting(
        "source",
        "DSN",
        "The Postgres to capture: a DSN of libpq. Passwords belong into ~/.pgpass, PGPASSWORD or a file.",
    ),
]
PublicationOption = Annotated[
    str | None, _setting("publication", "NAME", "The publication of the source whose tables are captured.")
]
SlotOption = Annotated[
    str | None, _setting("slot", "NAME", "The replication slot; dl_, the database and the publication by default.")
]
NamespaceOption = Annotated[
    str | None,
    _setting(
        "namespace", "NAME", "Where all tables go; without it a table goes into a namespace named as its schema is."
    ),
]
TablesOption = Annotated[
    list[str] | None,
    _setting(
        "tables",
        "TABLE,...",
        "Source tables (schema.name, or a name in public), repeatable; all that are published by default.",
    ),
]
BatchSizeOption = Annotated[str | None, _setting("batch_size", "SIZE", "So much log ends a batch; 64MB by default.")]
BatchWindowOption = Annotated[
    str | None, _setting("batch_window", "TIME", "After so long a batch ends, however small it is; 5s by default.")
]
HeartbeatOption = Annotated[
    str | None,
    _setting("heartbeat", "TIME", "How often progress is noted while there is nothing to capture; 60s by default."),
]
ParallelismOption = Annotated[
    int | None,
    _setting(
        "parallelism",
        "N",
        "Tasks that read a batch or copy tables side by side; as many as Spark runs by default.",
        min=0,
    ),
]
BucketsOption = Annotated[
    int | None,
    _setting(
        "buckets", "N", "New tables of current rows are partitioned by a hash of their key into so many parts.", min=0
    ),
]
FeedOption = Annotated[
    bool | None, _switch("change_data_feed", "New tables of current rows have Delta's change data feed.")
]
VectorsOption = Annotated[
    bool | None,
    _switch("deletion_vectors", "New tables of current rows have deletion vectors; they do by default."),
]
MappingOption = Annotated[bool | None, _switch("column_mapping", "New tables can follow renamed and dropped columns.")]
TextColumnsOption = Annotated[
    list[str] | None,
    _setting(
        "text_columns",
        "COLUMN,...",
        "Columns (schema.table.column) captured as the text that Postgres prints, repeatable.",
    ),
]
OptimizeOption = Annotated[
    int | None,
    _setting(
        "optimize_files",
        "N",
        "Small files of a table are compacted once there are so many; 32 by default, 0 for never.",
        min=0,
    ),
]
CopyBesideOption = Annotated[
    str | None,
    _setting(
        "copy_beside",
        "SIZE",
        "So much of the tables is copied while the stream waits, the rest beside it; 64MB by default.",
    ),
]
CopyChunkOption = Annotated[
    str | None,
    _setting(
        "copy_chunk", "SIZE", "A table that is copied beside the stream is read in parts of this size; 64MB by default."
    ),
]
ResnapshotOption = Annotated[
    str | None,
    _setting(
        "resnapshot",
        "POLICY",
        "What is copied anew without being asked: never, tables (that stopped) or slot (all, when the slot is lost).",
    ),
]
IncludeOption = Annotated[
    list[str] | None,
    _setting(
        "include",
        "PATTERN,...",
        "Patterns of source tables (sales.*, public.order_*) that are captured, repeatable; all by default.",
    ),
]
ExcludeOption = Annotated[
    list[str] | None, _setting("exclude", "PATTERN,...", "Patterns of source tables that are not captured, repeatable.")
]
CompositesOption = Annotated[
    str | None,
    _setting(
        "composites",
        "KIND",
        "What columns of composite types become: text as psql prints it (the default), json, or struct.",
    ),
]
SlotAlertOption = Annotated[
    str | None,
    _setting("slot_alert", "SIZE", "So much log kept for the slot is reported as a problem; none by default."),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", envvar="DL_CONFIG", metavar="FILE", help="A TOML file with the settings, section [cdc]."),
]


def split(values: list[str] | None) -> list[str] | None:
    """The values of a repeatable option, each of which may contain several, separated by commas."""
    parts = [part.strip() for value in values or () for part in value.split(",")]
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
