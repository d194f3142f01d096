"""OPTIMIZE: combines small files, or sorts partitions along a Z-order curve; no row changes."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from deltalakedb.log.predicates.file_filters import encode_conjunction, read_file_filters
from deltalakedb.log.protocol.actions import Action, AddFile, FileKey, RemoveFile
from deltalakedb.log.protocol.codec import to_json
from deltalakedb.log.protocol.features import data_writable
from deltalakedb.log.protocol.proposal import ProposedCommit, ReadSet
from deltalakedb.log.protocol.rows import add_from_row
from deltalakedb.log.statistics.stats import deleted_part
from deltalakedb.operations.moving import moving_schema, read_moving
from deltalakedb.operations.target import Done, Target, Verb
from deltalakedb.operations.write import write_rows
from deltalakedb.operations.zorder import check_columns, sorted_rows

if TYPE_CHECKING:
    import pyarrow as pa

    from deltalakedb.data import ParquetOptions

DEFAULT_TARGET_SIZE: Final = 100 * 1024 * 1024
_MAX_SIZE: Final = 2**63 - 1
# A large file is rewritten if its deletion vector deletes more than this share of its rows; Spark's limit.
_MAX_DELETED: Final = 0.05


@dataclass(frozen=True, slots=True)
class Request:
    """The arguments. With `columns`, rows are sorted along a Z-order curve; without, they keep their order."""

    columns: tuple[str, ...] | None = None
    partition_filters: Sequence[Any] | None = None
    files: Collection[FileKey] | None = None
    """Only these files; None: all that are worth rewriting."""
    target_size: int | None = None
    max_concurrent_tasks: int | None = None
    max_spill_size: int | None = None
    max_temp_directory_size: int | None = None
    min_commit_interval: float | None = None
    """Seconds between commits; None makes a single commit."""
    writer_properties: Any = None
    progress: Callable[[int], None] | None = None
    """Called with the number of further files that are done."""

    def __post_init__(self) -> None:
        if self.target_size is not None and not 1 <= self.target_size <= _MAX_SIZE:
            raise ValueError(f"target_file_size must be between 1 and {_MAX_SIZE}, not {self.target_size}")
        if self.max_concurrent_tasks is not None and self.max_concurrent_tasks < 1:
            raise ValueError(f"max_concurrent_tasks is 1 or more, not {self.max_concurrent_tasks}")


@dataclass(frozen=True, slots=True)
class _Group:
    """Files of one partition that are rewritten together."""

    partition: str
    files: tuple[AddFile, ...]


@dataclass(slots=True)
class _Counts:
    """The counts of one commit, or of all commits."""

    added: list[int] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)
    batches: int = 0
    span: int = 0

    def take(self, other: _Counts) -> None:
        self.added += other.added
        self.removed += other.removed
        self.batches += other.batches
        self.span = max(self.span, other.span)


def optimize(run: Callable[[Verb], dict[str, Any]], request: Request) -> dict[str, Any]:
    """Make the requested commits, each by one `run`; return `deltalake`'s metrics of all of them."""
    work = _Optimization(request)
    while not work.is_done:
        run(work.step)
    return work.metrics(work.total)


class _Optimization:
    """The groups of files that remain, planned once, on the first version."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._groups: list[_Group] | None = None
        self._considered = 0
        self._skipped = 0
        self._partitions = 0
        self.total = _Counts()

    @property
    def is_done(self) -> bool:
        return self._groups is not None and not self._groups

    def step(self, target: Target) -> Done:
        """Make one commit: of all groups, or of as many as fit the interval between commits."""
        if self._groups is None:
            self._plan(target)
        else:
            self._forget_changed(target)
        assert self._groups is not None
        interval, started = self._request.min_commit_interval, time.monotonic()
        counts, actions = _Counts(), list[Action]()
        tasks = self._request.max_concurrent_tasks or os.cpu_count() or 1
        while self._groups:
            num_groups = (
                len(self._groups) if interval is None else self._in_first_partition() if interval == 0 else tasks
            )
            groups, self._groups = self._groups[:num_groups], self._groups[num_groups:]
            for group_actions, group_counts in self._rewrite(target, groups, tasks):
                actions += group_actions
                counts.take(group_counts)
            if interval is not None and time.monotonic() - started >= interval:
                break
        if not actions:
            return Done(None, self.metrics(counts))
        self.total.take(counts)
        metrics = self.metrics(counts)
        return Done(self._commit(target, actions, metrics), metrics)

    def _in_first_partition(self) -> int:
        assert self._groups is not None
        first = self._groups[0].partition
        return sum(group.partition == first for group in self._groups)

    def _plan(self, target: Target) -> None:
        request = self._request
        _check(target)
        if request.columns is not None:
            check_columns(request.columns, target)
        files = _chosen_files(target, request.partition_filters)
        if request.files is not None:
            files = [add for add in files if add.key in request.files]
        self._considered = len(files)
        by_partition: dict[str, list[AddFile]] = {}
        for add in files:  # in reading order, so that rows keep their order
            by_partition.setdefault(to_json(dict(sorted(add.partition_values.items()))), []).append(add)
        self._groups = []
        for partition, adds in by_partition.items():
            bins = [adds] if request.columns is not None else pack(adds, self._target_size(target))
            self._groups += [_Group(partition, tuple(group_files)) for group_files in bins]
        self._skipped = self._considered - sum(len(group.files) for group in self._groups)
        self._partitions = len({group.partition for group in self._groups})

    def _forget_changed(self, target: Target) -> None:
        """Drop groups with files that others have changed since our last commit."""
        live = {add.key for add in map(add_from_row, target.snapshot.files_table().to_pylist())}
        assert self._groups is not None
        self._groups = [group for group in self._groups if all(add.key in live for add in group.files)]

    def _target_size(self, target: Target) -> int:
        from deltalakedb.data.writer import _target_of

        return self._request.target_size or _target_of(target.metadata.configuration)

    def _rewrite(self, target: Target, groups: Sequence[_Group], tasks: int) -> Iterator[tuple[list[Action], _Counts]]:
        target.storage, target.schema  # noqa: B018  computed once, before threads use them
        with ThreadPoolExecutor(min(tasks, len(groups)), thread_name_prefix="deltalakedb-optimize") as pool:
            futures = [pool.submit(self._rewrite_one, target, group) for group in groups]
            try:
                for future in futures:
                    yield future.result()
            finally:
                for future in futures:
                    future.cancel()

    def _rewrite_one(self, target: Target, group: _Group) -> tuple[list[Action], _Counts]:
        request, counts = self._request, _Counts(span=len(group.files))
        if request.columns is None:
            adds = self._write(target, _counted(read_moving(target, group.files), counts))
            counts.batches = max(counts.batches, len(group.files))  # small files are read together
        else:
            limits = {"memory_bytes": request.max_spill_size, "max_temp_bytes": request.max_temp_directory_size}
            with sorted_rows(target, group.files, request.columns, **limits) as reader:
                adds = self._write(target, reader)
            counts.batches = 1
        if request.progress is not None:
            request.progress(len(group.files))
        now_ms = time.time_ns() // 1_000_000
        counts.added = [add.size for add in adds]
        counts.removed = [add.size for add in group.files]
        removes = [RemoveFile.of(add, at_ms=now_ms, data_change=False) for add in group.files]
        return [*removes, *adds], counts

    def _write(self, target: Target, reader: pa.RecordBatchReader) -> list[AddFile]:
        properties = self._request.writer_properties
        return write_rows(
            target,
            reader,
            schema=moving_schema(target),
            options=None if properties is not None else _options(),
            writer_properties=properties,
            target_file_size=self._target_size(target),
            data_change=False,
            rules=False,
        )

    def _commit(self, target: Target, actions: list[Action], metrics: dict[str, Any]) -> ProposedCommit:
        keys = frozenset(action.key for action in actions if isinstance(action, RemoveFile))
        filters = self._request.partition_filters
        return ProposedCommit(
            actions=tuple(actions),
            operation="OPTIMIZE",
            operation_parameters={
                "predicate": to_json([_shown(*item) for item in encode_conjunction(filters or ())]),
                "targetSize": str(self._target_size(target)),
                **({} if self._request.columns is None else {"zOrderBy": to_json(list(self._request.columns))}),
            },
            operation_metrics=metrics,
            read=ReadSet(files=keys),
        )

    def metrics(self, counts: _Counts) -> dict[str, Any]:
        """Return the metrics with the names of `deltalake`."""
        keeps_order = self._request.columns is None
        return {
            "numFilesAdded": len(counts.added),
            "numFilesRemoved": len(counts.removed),
            "filesAdded": _sizes(counts.added),
            "filesRemoved": _sizes(counts.removed),
            "partitionsOptimized": self._partitions,
            "numBatches": counts.batches,
            "totalConsideredFiles": self._considered,
            "totalFilesSkipped": self._skipped,
            "preserveInsertionOrder": keeps_order,
            "plannerStrategy": "preserveLocality" if keeps_order else "zOrder",
            "preservedStableOrder": keeps_order,
            "maxBinSpanFiles": counts.span,
        }


def pack(files: Iterable[AddFile], target_size: int) -> Iterator[list[AddFile]]:
    """Group neighbouring files that fit into one file of the target size; a single complete file is left out.

    A file with a deletion vector is rewritten even alone; a large one only if enough of its rows are deleted.
    """
    pending: list[AddFile] = []
    size = 0
    for add in files:
        if add.size >= target_size:
            yield from _worth_it(pending)
            pending, size = [], 0
            if deleted_part(add) > _MAX_DELETED:
                yield [add]
            continue
        if pending and size + add.size > target_size:
            yield from _worth_it(pending)
            pending, size = [], 0
        pending.append(add)
        size += add.size
    yield from _worth_it(pending)


def _worth_it(files: list[AddFile]) -> Iterator[list[AddFile]]:
    if len(files) > 1 or any(add.deletion_vector is not None for add in files):
        yield files


def _check(target: Target) -> None:
    data_writable(target.protocol, target.metadata, target.name, evaluates=True)


def _chosen_files(target: Target, filters: Sequence[Any] | None) -> list[AddFile]:
    if not filters:
        table = target.snapshot.files_table()
    else:
        groups = [encode_conjunction(filters)]
        file_filters = read_file_filters(groups, target.schema, target.metadata.partition_columns)
        table = file_filters.choose(target.plan(file_filters.predicate))
    return [add_from_row(row) for row in table.to_pylist()]


def _counted(reader: pa.RecordBatchReader, counts: _Counts) -> pa.RecordBatchReader:
    """Return the same rows, counting batches; small ones are combined, because casting has a cost per batch."""
    import pyarrow as pa

    from deltalakedb.data.batches import gathered

    def counted() -> Iterator[pa.RecordBatch]:
        for batch in reader:
            counts.batches += 1
            yield batch

    return pa.RecordBatchReader.from_batches(reader.schema, gathered(counted()))


def _options() -> ParquetOptions:
    """Return better compression than for new files, because optimized files stay longer; `deltalake`'s choice."""
    from deltalakedb.data import ParquetOptions

    return ParquetOptions(compression="zstd", compression_level=4)


def _sizes(sizes: Sequence[int]) -> str:
    count, total = len(sizes), sum(sizes)
    values = {
        "avg": total / count if count else 0.0,
        "max": max(sizes, default=0),
        "min": min(sizes, default=0),
        "totalFiles": count,
        "totalSize": total,
    }
    return json.dumps(values, separators=(",", ":"))


def _shown(column: str, op: str, value: Any) -> str:
    texts = [f"'{item}'" for item in (value if isinstance(value, list | tuple) else [value])]
    return (
        f"{column} {op.upper()} ({', '.join(texts)})"
        if isinstance(value, list | tuple)
        else f"{column} {op} {texts[0]}"
    )
