"""The values that DeltaTable returns: metadata, protocol, history, plans and statistics, with `deltalake`'s names."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from deltalakedb.log.protocol.codec import from_sql_text, may_contain
from deltalakedb.log.protocol.features import (
    MAX_READER_VERSION,
    MAX_WRITER_VERSION,
    READER_FEATURES,
    WRITER_FEATURES,
)
from deltalakedb.runtime.lazy import cached_property

if TYPE_CHECKING:
    import pyarrow as pa

    from deltalakedb.log.protocol import actions
    from deltalakedb.log.schema.types import StructField
    from deltalakedb.store.planning import PlannedFiles
    from deltalakedb.store.reader import HistoryEntry


# What tables may ask for: constants of `deltalake.table`, which other libraries look at.
MAX_SUPPORTED_READER_VERSION = MAX_READER_VERSION
NOT_SUPPORTED_READER_VERSION = -1
SUPPORTED_READER_FEATURES = set(READER_FEATURES)
MAX_SUPPORTED_PYARROW_WRITER_VERSION = MAX_WRITER_VERSION
NOT_SUPPORTED_PYARROW_WRITER_VERSIONS: list[int] = []
SUPPORTED_WRITER_FEATURES = set(WRITER_FEATURES)


@dataclass(frozen=True, slots=True)
class Metadata:
    """The table's metadata, with the names of `deltalake.Metadata`."""

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

    def __str__(self) -> str:
        return (
            f"Metadata(id: {self.id}, name: {self.name}, description: {self.description}, partition_columns: "
            f"{self.partition_columns}, created_time: {self.created_time}, configuration: {self.configuration})"
        )


class ProtocolVersions(NamedTuple):
    """The protocol versions and features that readers and writers must support, with the names of `deltalake`."""

    min_reader_version: int
    min_writer_version: int
    writer_features: list[str] | None
    reader_features: list[str] | None

    @classmethod
    def of(cls, protocol: actions.Protocol) -> ProtocolVersions:
        return cls(
            protocol.min_reader_version,
            protocol.min_writer_version,
            None if protocol.writer_features is None else list(protocol.writer_features),
            None if protocol.reader_features is None else list(protocol.reader_features),
        )


class _TableConfig(NamedTuple):
    without_files: bool
    log_buffer_size: int
    skip_stats: bool = False


class DeltaTableConfig(_TableConfig):
    """How a table is loaded, with `deltalake`'s names; deprecated there, and without effect here."""

    def __new__(cls, without_files: bool, log_buffer_size: int, skip_stats: bool = False) -> DeltaTableConfig:
        warnings.warn(
            "The DeltaTableConfig class is deprecated and will be removed in a future release. ",
            DeprecationWarning,
            stacklevel=2,
        )
        return super().__new__(cls, without_files, log_buffer_size, skip_stats)


class TableFeatures:
    """Features that can be added to a table's protocol; an enumeration of numbers, as in `deltalake`."""

    __slots__ = ("_name",)

    _name: str
    ColumnMapping: ClassVar[TableFeatures]
    DeletionVectors: ClassVar[TableFeatures]
    TimestampNanos: ClassVar[TableFeatures]
    TimestampWithoutTimezone: ClassVar[TableFeatures]
    V2Checkpoint: ClassVar[TableFeatures]
    AppendOnly: ClassVar[TableFeatures]
    Invariants: ClassVar[TableFeatures]
    CheckConstraints: ClassVar[TableFeatures]
    ChangeDataFeed: ClassVar[TableFeatures]
    GeneratedColumns: ClassVar[TableFeatures]
    IdentityColumns: ClassVar[TableFeatures]
    RowTracking: ClassVar[TableFeatures]
    DomainMetadata: ClassVar[TableFeatures]
    IcebergCompatV1: ClassVar[TableFeatures]
    VariantType: ClassVar[TableFeatures]
    VariantTypePreview: ClassVar[TableFeatures]

    def __new__(cls, *_args: Any) -> TableFeatures:
        raise TypeError("cannot create 'TableFeatures' instances")

    def __repr__(self) -> str:
        return f"TableFeatures.{self._name}"

    def __int__(self) -> int:
        return _FEATURES.index(self._name)

    def __eq__(self, other: object) -> bool:
        return int(self) == int(other) if isinstance(other, TableFeatures | int) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # as in `deltalake`


_FEATURES = tuple(name for name in TableFeatures.__annotations__ if not name.startswith("_"))
for _feature in _FEATURES:
    _made = object.__new__(TableFeatures)
    _made._name = _feature
    setattr(TableFeatures, _feature, _made)


@dataclass(frozen=True, slots=True)
class ColumnStats:
    """A column's minimum and maximum; None if metadata does not prove it, or there are only nulls."""

    min: Any
    max: Any
    min_is_exact: bool
    max_is_exact: bool


@dataclass(frozen=True)
class Plan:
    """The files that may hold a matching row."""

    table: str
    version: int
    num_files: int
    num_pruned: int
    planned: PlannedFiles = field(repr=False)

    @cached_property
    def files(self) -> pa.Table:
        return readable(self.planned.files)

    def steps(self) -> list[dict[str, Any]]:
        """Return what each part of the predicate did, as plain values."""
        return [asdict(step) for step in self.planned.steps]

    def explain(self) -> str:
        """Return a text that says what was kept, what was pruned, and why."""
        return f"{self.table} version {self.version}: {self.planned.explain()}"


def history_entry(entry: HistoryEntry) -> dict[str, Any]:
    """Return a commit as `deltalake` does: the fields of its commitInfo, and its version.

    This package's commits may have counts as text (older releases, Spark's connector); they are returned as numbers.
    """
    info = entry.commit_info.value if entry.commit_info is not None else {}
    metrics = info.get("operationMetrics")
    if metrics == {}:
        del info["operationMetrics"]  # nothing was counted
    elif isinstance(metrics, dict) and str(info.get("engineInfo")).startswith("deltalakedb"):
        info["operationMetrics"] = {key: _to_number(value) for key, value in metrics.items()}
    return {"timestamp": entry.timestamp_ms, **info, "version": entry.version}


def _to_number(value: Any) -> Any:
    if value in ("true", "false"):
        return value == "true"
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value


def distinct_partitions(texts: Iterable[str], fields: Sequence[StructField]) -> list[dict[str, str | None]]:
    """Return the distinct partition values of many files, by column name."""
    distinct: dict[tuple[str | None, ...], dict[str, str | None]] = {}
    for text in texts:
        values = json.loads(text)
        row = {item.name: values.get(item.physical_name) for item in fields}
        distinct.setdefault(tuple(row.values()), row)
    return list(distinct.values())


def readable(files: pa.Table) -> pa.Table:
    """Return the files with unescaped texts. Only texts that Arrow cannot store (lone surrogates) stay escaped."""
    import pyarrow as pa

    for name in ("path", "stats", "clustering_provider"):
        if name not in files.column_names:
            continue
        column = files.column(name)
        if not any(may_contain(chunk, b"\\") for chunk in column.chunks):
            continue
        texts = [None if text is None else _unescape(text) for text in column.to_pylist()]
        files = files.set_column(files.column_names.index(name), name, pa.array(texts, pa.string()))
    return files


def _unescape(text: str) -> str:
    plain = from_sql_text(text)
    try:
        plain.encode()
    except UnicodeEncodeError:
        return text
    return plain
