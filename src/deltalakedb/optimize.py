"""TableOptimizer: `DeltaTable.optimize`, under the names of `deltalake`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ._positional import commit_arguments

if TYPE_CHECKING:
    from .operations.optimize import Request
    from .tables.upkeep import UpkeepOfTable
    from .transaction import CommitProperties, PostCommitHookProperties

_ORDER = ("post_commithook_properties", "commit_properties")

FilterConjunction = Sequence[tuple[str, str, Any]]


class TableOptimizer:
    """Makes a table's files fewer or better sorted; its rows stay as they are."""

    def __init__(self, table: UpkeepOfTable) -> None:
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
        """Put small files of a partition together, up to about `target_size` bytes each; deletion vectors go.

        `target_size` is `delta.targetFileSize` or 100 MB when it is not given. `min_commit_interval` (seconds, or a
        timedelta) makes a commit each time that long has passed, 0 one for each partition. Files are streamed, so that
        `max_spill_size` and `max_temp_directory_size` have nothing to bound. Doing it again does nothing.
        """
        from .operations.optimize import Request

        properties, hooks = commit_arguments(
            "compact", args, commit_properties, post_commithook_properties, order=_ORDER
        )
        request = Request(
            partition_filters=partition_filters,
            target_size=target_size,
            max_concurrent_tasks=max_concurrent_tasks,
            max_spill_size=max_spill_size,
            max_temp_directory_size=max_temp_directory_size,
            min_commit_interval=_seconds(min_commit_interval),
            writer_properties=writer_properties,
        )
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

        The other arguments are those of `compact`. `max_spill_size` is the memory of the sort, in bytes: what does not
        fit is spilled to disk, where it takes `max_temp_directory_size` at most, or the sort fails.
        """
        from .operations.optimize import Request

        properties, hooks = commit_arguments(
            "z_order", args, commit_properties, post_commithook_properties, order=_ORDER
        )
        request = Request(
            columns=tuple(columns),
            partition_filters=partition_filters,
            target_size=target_size,
            max_concurrent_tasks=max_concurrent_tasks,
            max_spill_size=max_spill_size,
            max_temp_directory_size=max_temp_directory_size,
            min_commit_interval=_seconds(min_commit_interval),
            writer_properties=writer_properties,
        )
        return self.run(request, properties, hooks)

    def run(
        self,
        request: Request,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
        *,
        progress: Callable[[int], None] | None = None,
    ) -> dict[str, Any]:
        """Do what a request asks for; `progress` is told how many files more are done."""
        from dataclasses import replace

        from .operations.optimize import optimize

        asked = request if progress is None else replace(request, progress=progress)
        return optimize(lambda verb: self.table._run(verb, commit_properties, post_commithook_properties), asked)


def _seconds(interval: int | timedelta | None) -> int | None:
    return int(interval.total_seconds()) if isinstance(interval, timedelta) else interval
