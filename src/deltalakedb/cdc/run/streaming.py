"""The streaming query of a capture: Spark asks for batches, reads them, and passes them on to be committed."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from deltalakedb.cdc.decode.reading import FileWritten, PartRead, TaskFailed, from_row
from deltalakedb.cdc.lsn import format_lsn
from deltalakedb.cdc.run.following import ChangeFollower, StopRequested
from deltalakedb.cdc.run.sessions import describe_error, spark_errors
from deltalakedb.cdc.source.data_source import NAME
from deltalakedb.exceptions import CaptureError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_TRIGGER: Final = "200 milliseconds"
"""How often Spark asks for a batch; its size and its window decide when a batch ends."""


class StreamEndedError(CaptureError):
    """Spark gave up a query, for example on a machine too busy to start a worker in time; another one may run."""


class ChangeStream:
    """A query from the follower's position on, for the duration of the block. Leaving it waits for the batch in flight.

    Its checkpoint is temporary: only the control table has the progress.
    """

    def __init__(self, follower: ChangeFollower) -> None:
        self._follower = follower
        self._folder = Path(tempfile.mkdtemp(prefix="deltalakedb-cdc-"))
        self._query: StreamingQuery | None = None
        self._ended = False
        self.failure: BaseException | None = None
        """The error that ended it."""

    def __enter__(self) -> Self:
        follower = self._follower
        follower.tables_changed = False
        options = {
            **follower.options(),
            "startLsn": format_lsn(follower.at),
            "batchSize": str(follower.settings.batch_bytes),
            "batchWindow": f"{follower.settings.batch_seconds:f}s",
            "hints": str(self._hints),
        }
        try:
            with spark_errors():
                changes = follower.spark.readStream.format(NAME).options(**options).load()
                self._query = (
                    changes.writeStream.foreachBatch(self._take)
                    .option("checkpointLocation", (self._folder / "checkpoint").as_uri())
                    .trigger(processingTime=_TRIGGER)
                    .start()
                )
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        return self

    def __exit__(self, *_trouble: Any) -> None:
        with self._follower.lock:
            self._ended = True
        try:
            if self._query is not None:
                with spark_errors():
                    self._query.stop()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def check(self) -> None:
        """Raise the error that ended the query, if there is one."""
        if self.failure is not None:
            raise self.failure
        assert self._query is not None
        with spark_errors():
            if not self._query.isActive and not self._ended:
                error = self._query.exception()
                raise StreamEndedError(f"Spark ended the stream: {describe_error(str(error or ''))}")

    @property
    def _hints(self) -> Path:
        return self._folder / "stretch"

    def _take(self, batch: DataFrame, _batch_id: int) -> None:
        """Handle a batch of Spark's. An error is stored for `check`, because Spark would wrap it in pages of text."""
        with self._follower.lock:
            if self._ended or self.failure is not None:
                return
            try:
                self._take_in(batch)
            except StopRequested:
                self._ended = True
            except BaseException as error:
                self.failure = error

    def _take_in(self, batch: DataFrame) -> None:
        follower, began = self._follower, time.monotonic()
        if follower.tables_changed:  # planned with outdated tables: the next query reads it
            return
        with spark_errors():
            read = [from_row(*row) for row in batch.collect()]
        parts = [item for item in read if isinstance(item, PartRead)]
        failed = any(isinstance(item, TaskFailed) for item in read)
        if not parts and not failed:
            return
        start, end = min((item.start for item in parts), default=0), max((item.end for item in parts), default=0)
        if not failed and start != follower.at:
            follower.discard(item for item in read if isinstance(item, FileWritten))
            raise CaptureError(
                f"the stream is at {format_lsn(start)} and the capture {follower.capture.slot} at "
                f"{format_lsn(follower.at)}: start it again"
            )
        follower.take(read, start, end, began)
        if follower.at < end:  # a table changed within the range
            follower.drain(end)
        follower.check_requests()
        self._hints.write_text(str(follower.stretch))
