"""TableOptimizer: `DeltaTable.optimize`, with the names of `deltalake`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from deltalakedb.runtime.arguments import check_number, check_texts, commit_arguments

if TYPE_CHECKING:
    from deltalakedb.operations.optimize import Request
    from deltalakedb.table import DeltaTable
    from deltalakedb.transaction import CommitProperties, PostCommitHookProperties

_ORDER = ("post_commithook_properties", "commit_properties")

FilterConjunction = Sequence[tuple[str, str, Any]]


class TableOptimizer:
    """Combines or sorts a table's files; its rows stay the same."""

    def __init__(self, table: DeltaTable) -> None:
        self.table = table

    def compact(
        self,
        partition_filters: FilterConjunction | None = None,
        target_size: int | None = None,
        max_concurrent_tasks: int | None = None,
        max_spill_size: int | None = None,
        max_temp_directory_size: int | None = None,
        min_commit_interval: int | timedelta | None = None,
        writer_properties: Any = None,
        *args: Any,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> dict[str, Any]:
        """Combine small files of each partition into files of about `target_size` bytes, and drop deletion vectors.

        The default of `target_size` is `delta.targetFileSize`, else 100 MB. `min_commit_interval` (seconds or a
        timedelta) commits each time this much time has passed; 0 commits once per partition. Files are streamed, so
        `max_spill_size` and `max_temp_directory_size` have no effect. A second run does nothing.
        """
        properties, hooks = commit_arguments(
            "compact", args, commit_properties, post_commithook_properties, order=_ORDER
        )
        limits = (target_size, max_concurrent_tasks, max_spill_size, max_temp_directory_size)
        request = _to_request(None, partition_filters, limits, min_commit_interval, writer_properties)
        return self.run(request, properties, hooks)

    def z_order(
        self,
        columns: Iterable[str],
        partition_filters: FilterConjunction | None = None,
        target_size: int | None = None,
        max_concurrent_tasks: int | None = None,
        max_spill_size: int | None = None,
        max_temp_directory_size: int | None = None,
        min_commit_interval: int | timedelta | None = None,
        writer_properties: Any = None,
        *args: Any,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> dict[str, Any]:
        """Sort the rows of each partition so that files have narrow ranges in all of these columns at once.

        The other arguments are those of `compact`. `max_spill_size` is the memory for sorting, in bytes; the rest is
        spilled to disk, up to `max_temp_directory_size`; if that is not enough, the sort fails.
        """
        properties, hooks = commit_arguments(
            "z_order", args, commit_properties, post_commithook_properties, order=_ORDER
        )
        columns = tuple(columns)
        check_texts(columns)
        limits = (target_size, max_concurrent_tasks, max_spill_size, max_temp_directory_size)
        request = _to_request(columns, partition_filters, limits, min_commit_interval, writer_properties)
        return self.run(request, properties, hooks)

    def run(
        self,
        request: Request,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
        *,
        progress: Callable[[int], None] | None = None,
    ) -> dict[str, Any]:
        """Run a request; `progress` is called with the number of further files that are done."""
        from dataclasses import replace

        from deltalakedb.operations.optimize import optimize

        full_request = request if progress is None else replace(request, progress=progress)
        version = self.table.version()
        metrics = optimize(
            lambda verb: self.table._run(verb, commit_properties, post_commithook_properties), full_request
        )
        if self.table.version() == version:
            self.table.update_incremental()  # also if there was nothing to do, as in `deltalake`
        return metrics


def _to_request(
    columns: tuple[str, ...] | None,
    partition_filters: FilterConjunction | None,
    limits: tuple[int | None, int | None, int | None, int | None],
    min_commit_interval: int | timedelta | None,
    writer_properties: Any,
) -> Request:
    """Check the numbers and return the request; `limits` are target size, tasks, spill size, temporary size."""
    from deltalakedb.operations.optimize import Request

    for number in limits:
        check_number(number)
    if isinstance(min_commit_interval, timedelta):
        seconds: int | None = int(min_commit_interval.total_seconds())
    else:
        check_number(min_commit_interval)
        seconds = min_commit_interval
    return Request(columns, partition_filters, None, *limits, seconds, writer_properties)
