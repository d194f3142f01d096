"""foreach_batch: a streaming sink that writes several tables in one transaction per batch, each row exactly once."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from deltalakedb.exceptions import (
    ConcurrentAppendError,
    ConcurrentDeleteDeleteError,
    ConcurrentDeleteReadError,
    ConcurrentTransactionError,
    ConfigError,
    GoneError,
    MetadataChangedError,
    ProtocolChangedError,
    TableNotFoundError,
)
from deltalakedb.spark.transaction import SparkTransaction, begin
from deltalakedb.store.names import parse_table_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BatchWriter = Callable[..., "DataFrame | None"]
"""`f(batch, batch_id)` or `f(batch, batch_id, tx)`; what it returns is appended to its table."""

_log = logging.getLogger(__name__)

# Running the batch again on the present tables can succeed; any other error would occur again.
_WORTH_ANOTHER_RUN = (
    ConcurrentAppendError,
    ConcurrentDeleteReadError,
    ConcurrentDeleteDeleteError,
    ConcurrentTransactionError,
    MetadataChangedError,
    ProtocolChangedError,
    GoneError,
)


def foreach_batch(
    writers: Mapping[str, BatchWriter],
    *,
    catalog: Any = None,
    app_id: str | None = None,
    options: Mapping[str, str] | None = None,
    attempts: int = 5,
) -> Callable[[DataFrame, int], None]:
    """A function for `writeStream.foreachBatch` that writes every batch to all tables in one transaction, exactly once.

    Each table has a function. It gets the batch and its id and returns the DataFrame to append (the first one creates
    the table), or None for nothing. A function with a third parameter also gets the SparkTransaction, for statements of
    its own, such as a MERGE; then it usually returns None.

        dls.foreach_batch({
            "sales.orders": lambda batch, batch_id: batch.select("id", "amount"),
            "sales.totals": merge_totals,      # def merge_totals(batch, batch_id, tx): tx.sql("merge into ...")
        })

    In the same commit every table records (app id, batch id), and a table that has recorded a batch is not written
    again: a restarted query repeats nothing. The app id is the query's own id, which is in its checkpoint; a new
    checkpoint starts over with a new id. Pass `app_id` to continue under a new checkpoint whose batch ids continue too.
    A batch that meets a conflict is run again, `attempts` times in all. `options` are those of the appends, such as
    `mergeSchema`.
    """
    steps = {str(parse_table_name(name)): _Step(name, function) for name, function in writers.items()}
    if not steps:
        raise ConfigError("foreach_batch needs at least one table, for example {'sales.orders': function}")
    if len(steps) < len(writers):
        raise ConfigError(f"foreach_batch: a table is named twice: {', '.join(writers)}")
    if attempts < 1:
        raise ConfigError(f"foreach_batch: attempts must be 1 or more, not {attempts}")

    def write(batch: DataFrame, batch_id: int) -> None:
        app = app_id or _query_id(batch)
        shared = len(steps) > 1 and not batch.is_cached
        if shared:  # each function would read the source again
            batch.persist()
        try:
            _write_batch(batch, batch_id, app)
        finally:
            if shared:
                batch.unpersist()

    def _write_batch(batch: DataFrame, batch_id: int, app: str) -> None:
        for attempt in range(1, attempts + 1):
            try:
                with begin(batch.sparkSession, catalog, message=f"batch {batch_id} of query {app}") as tx:
                    _run(tx, list(steps.values()), batch, batch_id, app, options or {})
                return
            except _WORTH_ANOTHER_RUN as error:
                if attempt == attempts:
                    raise
                _log.info("batch %s of query %s is run again: %s", batch_id, app, error)

    return write


class _Step:
    """One table of the sink, and the function that writes it."""

    def __init__(self, table: str, function: BatchWriter) -> None:
        self.table = table
        self._function = function
        self._takes_transaction = _count_arguments(table, function) == 3

    def run(self, batch: DataFrame, batch_id: int, tx: SparkTransaction) -> DataFrame | None:
        return self._function(batch, batch_id, tx) if self._takes_transaction else self._function(batch, batch_id)


def _run(
    tx: SparkTransaction,
    steps: list[_Step],
    batch: DataFrame,
    batch_id: int,
    app: str,
    options: Mapping[str, str],
) -> None:
    due = [step for step in steps if not _has_seen(tx.app_version(step.table, app), batch_id)]
    if len(due) < len(steps):
        done = [step.table for step in steps if step not in due]
        _log.info("batch %s of query %s was committed before, to %s", batch_id, app, ", ".join(done))
    for step in due:
        rows = step.run(batch, batch_id, tx)
        if rows is not None:
            rows.write.format("delta").mode("append").options(**options).save(tx.path(step.table))
        try:
            tx.set_app_version(step.table, app, batch_id)
        except TableNotFoundError:
            continue  # no batch has had a row for it so far


def _has_seen(app_version: int | None, batch_id: int) -> bool:
    return app_version is not None and app_version >= batch_id


def _query_id(batch: DataFrame) -> str:
    query = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    if not query:
        raise ConfigError("this batch belongs to no streaming query: pass app_id=... to foreach_batch")
    return str(query)


def _count_arguments(table: str, function: BatchWriter) -> int:
    """The number of parameters of the function: 2, or 3 with the transaction."""
    signature = inspect.signature(function)
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [p for p in signature.parameters.values() if p.default is p.empty and p.kind in positional]
    if len(needed) in (2, 3):
        return len(needed)
    raise ConfigError(
        f"foreach_batch, table {table}: the function must take (batch, batch_id) or (batch, batch_id, tx), "
        f"not {signature}"
    )
