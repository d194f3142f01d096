"""The streaming query of a capture: Spark asks for batches, reads them, and hands them over to be committed."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from deltalakedb.cdc.batches import remove_files
from deltalakedb.cdc.following import ChangeFollower, StopRequested, spark_errors
from deltalakedb.cdc.lsn import format_lsn
from deltalakedb.cdc.reading import FileWritten, PartRead, TaskFailed, from_row
from deltalakedb.cdc.source import NAME
from deltalakedb.exceptions import CaptureError, redact

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_TRIGGER: Final = "200 milliseconds"
"""How often Spark asks whether there is a batch; when it ends is decided by its size and its window."""


class ChangeStream:
    """A query from where its follower is, as long as the block lasts. Leaving it waits for the batch in flight.

    Its checkpoint is thrown away: the control table alone knows the progress.
    """

    def __init__(self, follower: ChangeFollower) -> None:
        self._follower = follower
        self._folder = Path(tempfile.mkdtemp(prefix="deltalakedb-cdc-"))
        self._query: StreamingQuery | None = None
        self._ended = False
        self.failure: BaseException | None = None
        """What ended it."""

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
        """Raise what has ended the query, if anything has."""
        if self.failure is not None:
            raise self.failure
        assert self._query is not None
        with spark_errors():
            if not self._query.isActive and not self._ended:
                error = self._query.exception()
                raise CaptureError(f"Spark ended the stream: {redact(str(error or 'no reason was given'))}")

    @property
    def _hints(self) -> Path:
        return self._folder / "stretch"

    def _take(self, batch: DataFrame, _batch_id: int) -> None:
        """A batch of Spark's. An error is kept for whoever watches: of one that is raised here Spark makes pages."""
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
        if follower.tables_changed:  # planned with the tables as they were: the next query reads it
            return
        with spark_errors():
            read = [from_row(*row) for row in batch.collect()]
        parts = [one for one in read if isinstance(one, PartRead)]
        failed = any(isinstance(one, TaskFailed) for one in read)
        if not parts and not failed:
            return
        start, end = min((one.start for one in parts), default=0), max((one.end for one in parts), default=0)
        if not failed and start != follower.at:
            remove_files(follower.catalog, follower.capture, [one for one in read if isinstance(one, FileWritten)])
            raise CaptureError(
                f"the stream is at {format_lsn(start)} and the capture {follower.capture.slot} at "
                f"{format_lsn(follower.at)}: start it again"
            )
        follower.take(read, start, end, began)
        if follower.at < end:  # a table has changed on the way
            follower.drain(end)
        follower.heed_requests()
        self._hints.write_text(str(follower.stretch))
