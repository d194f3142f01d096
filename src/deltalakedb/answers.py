"""What a DeltaTable answers with: metadata, protocol, history, plans and statistics, in the shapes of `deltalake`."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from .log.text import from_sql_text

if TYPE_CHECKING:
    import pyarrow as pa

    from .log import actions
    from .log.types import StructField
    from .store.planning import PlannedFiles
    from .store.reader import HistoryEntry


@dataclass(frozen=True, slots=True)
class Metadata:
    """The table's metaData, with the names of `deltalake.Metadata`."""

    id: str
    name: str | None
    description: str | None
    partition_columns: list[str]
    created_time: int | None
    configuration: dict[str, str | None]

    @classmethod
    def of(cls, metadata: actions.Metadata) -> Metadata:
        return cls(
            id=metadata.id,
            name=metadata.name,
            description=metadata.description,
            partition_columns=list(metadata.partition_columns),
            created_time=metadata.created_time,
            configuration=dict(metadata.configuration),
        )


class ProtocolVersions(NamedTuple):
    """What a reader and a writer must support, with the names of `deltalake`."""

    min_reader_version: int
    min_writer_version: int
    writer_features: list[str] | None
    reader_features: list[str] | None


class _TableConfig(NamedTuple):
    without_files: bool
    log_buffer_size: int
    skip_stats: bool = False


class DeltaTableConfig(_TableConfig):
    """How a table is loaded, in `deltalake`'s words; deprecated there, and without effect here."""

    def __new__(cls, without_files: bool, log_buffer_size: int, skip_stats: bool = False) -> DeltaTableConfig:
        warnings.warn("DeltaTableConfig is deprecated, and has no effect", DeprecationWarning, stacklevel=2)
        return super().__new__(cls, without_files, log_buffer_size, skip_stats)


class TableFeatures(Enum):
    """Features that can be added to a table's protocol, with the names of `deltalake`."""

    ColumnMapping = "ColumnMapping"
    DeletionVectors = "DeletionVectors"
    TimestampWithoutTimezone = "TimestampWithoutTimezone"
    V2Checkpoint = "V2Checkpoint"
    AppendOnly = "AppendOnly"
    Invariants = "Invariants"
    CheckConstraints = "CheckConstraints"
    ChangeDataFeed = "ChangeDataFeed"
    GeneratedColumns = "GeneratedColumns"
    IdentityColumns = "IdentityColumns"
    RowTracking = "RowTracking"
    DomainMetadata = "DomainMetadata"
    IcebergCompatV1 = "IcebergCompatV1"
    VariantType = "VariantType"
    VariantTypePreview = "VariantTypePreview"


@dataclass(frozen=True, slots=True)
class ColumnStats:
    """A column's smallest and largest value, None where metadata does not prove it or there are only nulls."""

    min: Any
    max: Any
    min_is_exact: bool
    max_is_exact: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """The files that may hold a matching row."""

    table: str
    version: int
    planned: PlannedFiles

    @property
    def files(self) -> pa.Table:
        return self.planned.files

    @property
    def num_files(self) -> int:
        return self.planned.num_files

    @property
    def num_pruned(self) -> int:
        return self.planned.num_pruned

    def steps(self) -> list[dict[str, Any]]:
        """What each part of the predicate did, as plain values."""
        return [asdict(step) for step in self.planned.steps]

    def explain(self) -> str:
        """What was kept, what was pruned, and why, for people."""
        return f"{self.table} version {self.version}: {self.planned.explain()}"


def history_entry(entry: HistoryEntry) -> dict[str, Any]:
    """A commit as `deltalake` shows it: the fields of its commitInfo, and its version.

    Counts are texts in our commits, as Spark wants them, and numbers here.
    """
    info = entry.commit_info.value if entry.commit_info is not None else {}
    metrics = info.get("operationMetrics")
    if metrics == {}:
        del info["operationMetrics"]  # nothing was counted
    elif isinstance(metrics, dict) and str(info.get("engineInfo")).startswith("deltalakedb"):
        info["operationMetrics"] = {key: _counted(value) for key, value in metrics.items()}
    return {"timestamp": entry.timestamp_ms, **info, "version": entry.version}


def _counted(value: Any) -> Any:
    if value in ("true", "false"):
        return value == "true"
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value


def distinct_partitions(texts: Iterable[str], fields: Sequence[StructField]) -> list[dict[str, str | None]]:
    """The different partition values among those of many files, by the columns' names."""
    distinct: dict[tuple[str | None, ...], dict[str, str | None]] = {}
    for text in texts:
        values = json.loads(text)
        row = {item.name: values.get(item.physical_name) for item in fields}
        distinct.setdefault(tuple(row.values()), row)
    return list(distinct.values())


def readable(files: pa.Table) -> pa.Table:
    """Texts as the log has them. Only those that Arrow cannot hold (lone surrogates) stay escaped."""
    import pyarrow as pa

    from .files.render import may_contain

    for name in ("path", "stats", "clustering_provider"):
        if name not in files.column_names:
            continue
        column = files.column(name)
        if not any(may_contain(chunk, b"\\") for chunk in column.chunks):
            continue
        texts = [None if text is None else _unescaped(text) for text in column.to_pylist()]
        files = files.set_column(files.column_names.index(name), name, pa.array(texts, pa.string()))
    return files


def _unescaped(text: str) -> str:
    plain = from_sql_text(text)
    try:
        plain.encode()
    except UnicodeEncodeError:
        return text
    return plain
