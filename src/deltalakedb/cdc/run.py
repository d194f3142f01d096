"""`deltalakedb.cdc.run`: capture the changes of a publication, until told to stop, or once."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from deltalakedb.cdc.report import BatchDone, CaptureReport
from deltalakedb.signals import ended_by_signal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltalakedb.catalog import Catalog
    from deltalakedb.cdc.copying import Progress


def run(
    catalog: Catalog | str | os.PathLike[str] | None = None,
    source: str | None = None,
    publication: str | None = None,
    *,
    tables: Sequence[str] = (),
    namespace: str | None = None,
    slot: str | None = None,
    batch_size: str | int | None = None,
    batch_window: str | float | None = None,
    once: bool = False,
    spark: SparkSession | None = None,
    progress: Progress | None = None,
    on_batch: Callable[[BatchDone], None] | None = None,
    **settings: Any,
) -> CaptureReport:
    """Capture the changes of a Postgres publication into tables of the catalog; what was done, at the end.

    Each source table becomes two: `namespace.table` has its rows as they are now, `namespace.table_changes` all that
    happened to them. A batch ends after `batch_size` of the source's log ("64MB") or after `batch_window` ("5s"), and
    is one transaction over all tables. The first start copies the tables that are there. With `once` it ends when all
    is captured that was committed at its beginning; otherwise on SIGINT, SIGTERM or `dl cdc stop`.

    What is not given comes from `DL_CDC_*` and the section `[cdc]` of the configuration file; further keywords are the
    other settings of it. Without `spark` the active session is used, or a local one that ends with the run.
    `on_batch` is called after each batch, `progress` while tables are copied.
    """
    from deltalakedb.cdc.configured import load_settings
    from deltalakedb.cdc.runner import Runner
    from deltalakedb.cdc.sessions import opened_session
    from deltalakedb.spark.tables import opened_catalog

    given = {
        "source": source,
        "publication": publication,
        "tables": (tables,) if isinstance(tables, str) else tuple(tables),
        "namespace": namespace,
        "slot": slot,
        "batch_size": batch_size,
        "batch_window": batch_window,
        **settings,
    }
    asked = load_settings(given)
    with ended_by_signal() as ended, opened_catalog(catalog) as lake, opened_session(spark, ended) as session:
        return Runner(lake, asked, session, ended, progress=progress, on_batch=on_batch).run(once=once)
