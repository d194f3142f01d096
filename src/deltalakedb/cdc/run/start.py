"""`deltalakedb.cdc.run`: captures the changes of a publication, continuously or once."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from deltalakedb.cdc.run.report import BatchDone, CaptureReport
from deltalakedb.exceptions import SparkDiedError
from deltalakedb.runtime.signals import ended_by_signal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltalakedb.catalog.catalog import Catalog
    from deltalakedb.cdc.copy.copying import Progress
    from deltalakedb.cdc.settings import CaptureSettings

_log = logging.getLogger(__name__)

_MOST_DEATHS: Final = 3
"""How often a Java process that died is started again..."""
_DEATH_SECONDS: Final = 1800.0
"""...within this time."""


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
    """Capture the changes of a Postgres publication into tables of the catalog; returns a report at the end.

    Each source table becomes two: `namespace.table` has the current rows, `namespace.table_changes` every change to
    them. A batch ends after `batch_size` of the source's log ("64MB") or after `batch_window` ("5s"), and is one
    transaction over all tables. The first start copies the existing tables. With `once` the run ends when everything
    that was committed at its start is captured; otherwise it ends on SIGINT, SIGTERM or `dl cdc stop`.

    Arguments that are left out come from `DL_CDC_*` and the section `[cdc]` of the configuration file; further keywords
    are the other settings of that section. Without `spark` the active session is used, or a session of its own that
    ends with the run. `on_batch` is called after each batch, `progress` while tables are copied.
    """
    from deltalakedb.cdc.run.configured import load_settings
    from deltalakedb.spark.opening import opened_catalog

    keywords = {
        "source": source,
        "publication": publication,
        "tables": (tables,) if isinstance(tables, str) else tuple(tables),
        "namespace": namespace,
        "slot": slot,
        "batch_size": batch_size,
        "batch_window": batch_window,
        **settings,
    }
    load_settings(keywords)  # invalid settings are reported before the catalog is opened
    with ended_by_signal() as ended, opened_catalog(catalog) as lake:
        loaded = load_settings(keywords, lake)
        check_before_spark(lake, loaded)
        return run_on_spark(lake, loaded, ended, once=once, spark=spark, progress=progress, on_batch=on_batch)


def run_on_spark(
    catalog: Catalog,
    settings: CaptureSettings,
    ended: threading.Event,
    *,
    once: bool = False,
    spark: SparkSession | None = None,
    progress: Progress | None = None,
    on_batch: Callable[[BatchDone], None] | None = None,
    on_spark: Callable[[], None] | None = None,
) -> CaptureReport:
    """Run a capture until `ended` is set, on the given or active Spark or one of its own; `on_spark` is called first.

    If the Java process of its own Spark dies, Spark is started again, a few times; not if it never started.
    """
    from deltalakedb.cdc.run.runner import Runner
    from deltalakedb.cdc.run.sessions import has_spark, opened_session

    deaths: list[float] = []
    has_started = False
    while True:
        is_own = not has_spark(spark)
        try:
            with opened_session(spark, ended) as session:
                has_started = True
                if on_spark is not None:
                    on_spark()
                return Runner(catalog, settings, session, ended, progress=progress, on_batch=on_batch).run(once=once)
        except SparkDiedError as error:
            if not is_own or not has_started:
                raise
            note_death(deaths, error, time.monotonic())


def note_death(deaths: list[float], error: SparkDiedError, now: float) -> None:
    """Record that the Java process of Spark has died; SparkDiedError if it dies too often to be started again."""
    deaths[:] = [*(died_at for died_at in deaths if now - died_at < _DEATH_SECONDS), now]
    if len(deaths) > _MOST_DEATHS:
        raise SparkDiedError(
            f"{error}. It has died {len(deaths)} times within {_DEATH_SECONDS / 60:.0f} minutes, and is not started "
            "again: see that there is memory for it (spark.driver.memory, a smaller batch_size or parallelism), then "
            "dl cdc start goes on"
        ) from error
    _log.warning("%s; it is started again", error)


def check_before_spark(catalog: Catalog, settings: CaptureSettings) -> None:
    """Raise what a start would be refused for, within a second: Spark takes many seconds to start."""
    from deltalakedb.cdc.run.choice_changes import check_choice
    from deltalakedb.cdc.run.opening import check_start
    from deltalakedb.cdc.run.presence import check_free
    from deltalakedb.cdc.source.postgres import check_source, connect, translate_errors

    with connect(settings.source) as conn, translate_errors():
        check_free(conn, settings.slot)
        check_source(conn, settings)
        check_choice(catalog, conn, settings)
        check_start(catalog, conn, settings)
