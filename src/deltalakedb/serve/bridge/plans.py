"""Plans of Spark's scans: a typed tree of conditions becomes a predicate, and the files that SQL keeps are answered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from math import isfinite
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deltalakedb.catalog.catalog import Catalog
from deltalakedb.exceptions import ConfigError, DeltaError, VersionNotFoundError
from deltalakedb.log.predicates import dnf
from deltalakedb.log.predicates.atoms import FALSE, TRUE, Column, Dnf, Predicate
from deltalakedb.log.predicates.literals import (
    Instant,
    Value,
    compare,
    not_starts_with,
    starts_with,
)
from deltalakedb.log.predicates.predicate import null_test, resolve_column
from deltalakedb.log.protocol.actions import Metadata
from deltalakedb.log.protocol.codec import from_sql_text
from deltalakedb.log.schema.types import parse_schema
from deltalakedb.serve.bridge.commits import parse_commit
from deltalakedb.serve.bridge.places import Place
from deltalakedb.store.aggregates import maximum, minimum
from deltalakedb.store.overlay import OverlaySnapshot
from deltalakedb.store.planning import files_with_vectors, first_files
from deltalakedb.store.reader import SqlTxnLogReader
from deltalakedb.store.registry import OpenTable, read_head
from deltalakedb.store.snapshot import SqlSnapshot
from deltalakedb.store.vacuums import check_not_purged
from deltalakedb.transactions.draft import TableDraft
from deltalakedb.transactions.transaction import CatalogTransaction

ARROW_STREAM = "application/vnd.apache.arrow.stream"
_COLUMNS = (
    "path", "partition_values", "size", "modification_time", "tags", "deletion_vector", "base_row_id",
    "default_row_commit_version", "clustering_provider",
)  # fmt: skip
ROW_TRACKING_FEATURE = "rowTracking"
_EPOCH = date(1970, 1, 1)
_DEEPEST = 200


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """What Spark asks of a plan."""

    filters: tuple[Mapping[str, Any], ...] = ()
    """Trees of conditions, of which all must hold."""
    with_records: bool = False
    """Whether the number of rows of each file is wanted."""
    with_stats: bool = False
    """Whether the statistics are wanted, and every column, also if it is null."""
    has_vectors: bool = False
    """Whether it only matters if any file has a deletion vector."""
    limit: int | None = None
    """How many rows are wanted, of any files, if there are no filters."""
    is_read: bool = True
    """Whether a statement depends on the rows of these files: then a transaction has read them."""

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> ScanRequest:
        filters, limit = body.get("filters") or [], body.get("limit")
        if not isinstance(filters, list) or not all(isinstance(item, dict) for item in filters):
            raise ConfigError('"filters" must be a list of trees {"k": kind, ...}')
        if limit is not None and (not isinstance(limit, int) or limit < 0 or filters):
            raise ConfigError('"limit" must be a number of rows, without filters')
        flags = {name: bool(body.get(name)) for name in ("records", "stats", "vectors", "unread")}
        is_read = not (flags["unread"] or flags["vectors"])
        return cls(tuple(filters), flags["records"], flags["stats"], flags["vectors"], limit, is_read)

    @property
    def columns(self) -> list[str]:
        return [*_COLUMNS, *(["num_records"] if self.with_records else []), *(["stats"] if self.with_stats else [])]


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """The files of a scan, and what the scan has read."""

    files: pa.Table
    predicate: Predicate

    def paths(self) -> Iterator[str]:
        return iter(self.files.column("path").to_pylist())


def plan_scan(
    catalog: Catalog, place: Place, snapshot: SqlSnapshot | OverlaySnapshot, request: ScanRequest
) -> ScanPlan:
    """The files of a version that may hold a row for which all filters are true."""
    predicate = read_filters(request.filters, snapshot.metadata)
    files = _few_files(catalog, place, snapshot, request)
    if files is None:
        files = _files(snapshot, predicate, request.columns)
    return ScanPlan(_decoded(files if request.with_stats else _compact(files)), predicate)


def _files(snapshot: SqlSnapshot | OverlaySnapshot, predicate: Predicate, names: Sequence[str]) -> pa.Table:
    if isinstance(snapshot, SqlSnapshot) and predicate.disjuncts == TRUE and "num_records" not in names:
        return snapshot.files_table(names)
    return snapshot.plan(predicate, names).files


def _few_files(
    catalog: Catalog, place: Place, snapshot: SqlSnapshot | OverlaySnapshot, request: ScanRequest
) -> pa.Table | None:
    """Answers questions for which some files suffice, if the version is the newest one; None for all others."""
    if isinstance(snapshot, OverlaySnapshot) or not (request.has_vectors or request.limit is not None):
        return None
    assert place.table is not None
    with catalog.store.read() as conn:
        head = read_head(conn, place.table.table_id)
        if head is None or head.current_version != snapshot.version:
            return None
        check_not_purged(place.table, head)
        opened = OpenTable(place.table, head, snapshot.protocol, snapshot.metadata, fenced=False)
        if request.has_vectors:
            return files_with_vectors(conn, opened, 1, request.columns)
        return first_files(conn, opened, request.limit or 0, request.columns)


def to_arrow_stream(files: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, files.schema) as writer:
        writer.write_table(files, max_chunksize=16_384)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def open_version(
    catalog: Catalog,
    place: Place,
    tx: CatalogTransaction | None,
    version: int,
    metadata_id: str = "",
    own_texts: Sequence[bytes] = (),
) -> SqlSnapshot | OverlaySnapshot:
    """A version as a reader inside or outside of a transaction sees it.

    `metadata_id`: the id in the table's metadata, if the reader knows it. A table that was dropped and created again
    has the same versions and other files.
    `own_texts`: the commits of the transaction as Spark wrote them.
    """
    snapshot = _open(catalog, place, tx, version, own_texts)
    if metadata_id and snapshot.metadata.id != metadata_id:
        raise VersionNotFoundError(f"version {version} of table {place.shown} is that of another table by now")
    return snapshot


def _open(
    catalog: Catalog, place: Place, tx: CatalogTransaction | None, version: int, own_texts: Sequence[bytes]
) -> SqlSnapshot | OverlaySnapshot:
    draft = None if tx is None else tx.draft_at(place.location)
    if draft is not None and (draft.base is None or version > draft.base.version):
        return _open_own(place, draft, version, own_texts)
    if place.table is None:
        raise VersionNotFoundError(f"no table is at {place.shown} yet")
    return SqlTxnLogReader(catalog.store, place.table).snapshot(version)


def _open_own(place: Place, draft: TableDraft, version: int, own_texts: Sequence[bytes]) -> OverlaySnapshot:
    """A version that the transaction has made.

    Row ids are assigned at the commit. Until then Spark sees those that it has chosen itself, which are in its texts
    and not in the draft.
    """
    number = version - (-1 if draft.base is None else draft.base.version)
    commits = [commit.actions for commit in draft.commits[:number]]
    if len(commits) < number or len(own_texts) != len(draft.commits):
        raise VersionNotFoundError(f"table {place.shown} has no version {version} in this transaction")
    own = OverlaySnapshot(draft.store, draft.row, draft.base, commits)
    if ROW_TRACKING_FEATURE not in (own.protocol.writer_features or ()):
        return own
    parsed = [parse_commit(text.splitlines(), table=place.shown, version=version)[1] for text in own_texts[:number]]
    return OverlaySnapshot(draft.store, draft.row, draft.base, parsed)


def state_of(snapshot: SqlSnapshot | OverlaySnapshot) -> dict[str, Any]:
    """The transactions of applications and the metadata domains of a version, as their actions name the fields."""
    transactions = snapshot.app_transactions().values()
    return {
        "txns": [
            {"appId": item.app_id, "version": item.version, "lastUpdated": item.last_updated} for item in transactions
        ],
        "domains": [
            {"domain": item.domain, "configuration": item.configuration} for item in snapshot.domain_metadata().values()
        ],
    }


def aggregate(
    catalog: Catalog, place: Place, snapshot: SqlSnapshot | OverlaySnapshot, body: Mapping[str, Any]
) -> dict[str, Any]:
    """The number of rows, and the extremes of columns where metadata proves them; dates are days since 1970."""
    totals = snapshot.totals()
    records = totals.num_records if totals.files_without_records == 0 else None
    answer: dict[str, Any] = {"records": records, "min": {}, "max": {}}
    if isinstance(snapshot, OverlaySnapshot) or not (body.get("min") or body.get("max")):
        return answer
    assert place.table is not None
    with catalog.store.read() as conn:
        head = read_head(conn, place.table.table_id)
        if head is None or head.current_version != snapshot.version:
            return answer  # bounds of older versions are deleted
        opened = OpenTable(place.table, head, snapshot.protocol, snapshot.metadata, fenced=False)
        for end, find in (("min", minimum), ("max", maximum)):
            for name in body.get(end) or ():
                extreme = find(conn, opened, str(name))
                value = None if extreme is None else extreme.value
                if extreme is not None and not (isinstance(value, float) and not isfinite(value)):
                    answer[end][name] = {"value": (value - _EPOCH).days if isinstance(value, date) else value}
    return answer


def _compact(files: pa.Table) -> pa.Table:
    """The columns that have values."""
    empty = [name for name in files.column_names if name != "path" and files.column(name).null_count == files.num_rows]
    return files.drop_columns(empty) if files.num_rows else files


def _decoded(files: pa.Table) -> pa.Table:
    """Texts as the log spells them: SQL and Arrow hold some characters escaped."""
    for name in ("path", "stats"):
        texts = files.column(name) if name in files.column_names else None
        if texts is not None and pc.any(pc.match_substring(texts, "\\")).as_py():
            decoded = [None if text is None else from_sql_text(text) for text in texts.to_pylist()]
            files = files.set_column(files.column_names.index(name), name, pa.array(decoded, pa.string()))
    return files


# ---- conditions


def read_filters(filters: Sequence[Mapping[str, Any]], metadata: Metadata) -> Predicate:
    """The predicate of Spark's conditions. It may hold for more rows than they do, never for fewer."""
    schema = parse_schema(metadata.schema_string)
    partitions = frozenset(name.casefold() for name in metadata.partition_columns)

    def resolve(path: Sequence[str]) -> Column:
        return resolve_column(schema, path, partitions)

    try:
        return Predicate("a condition of Spark", dnf.all_of(_read_tree(tree, resolve, 0) for tree in filters))
    except DeltaError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise ConfigError(f"a filter is no tree of conditions: {repr(error)[:500]}") from None


def _read_tree(tree: Mapping[str, Any], resolve: Callable[[Sequence[str]], Column], depth: int) -> Dnf:
    kind = tree["k"]
    if depth > _DEEPEST:
        return dnf.unknown("a condition that is nested too deeply")
    if kind in ("and", "or"):
        parts = [_read_tree(part, resolve, depth + 1) for part in tree["p"]]
        return dnf.all_of(parts) if kind == "and" else dnf.any_of(parts)
    column = resolve([str(part) for part in tree["c"]])
    if kind == "null":
        return null_test(column, is_null=True)
    try:
        found = _read_condition(kind, tree, column)
    except OverflowError:
        found = dnf.unknown("a date that is not between the years 1 and 9999")
    if column.is_partition and column.kind == "text":
        # Delta compares an empty text as such, the catalog reads it as null. Spark decides about partitions itself.
        return dnf.any_of([found, null_test(column, is_null=True)])
    return found


def _read_condition(kind: str, tree: Mapping[str, Any], column: Column) -> Dnf:
    match kind:
        case "notnull":
            return null_test(column, is_null=False)
        case "cmp":
            return compare(column, str(tree["o"]), _value(tree["v"]))
        case "in":
            values = [_value(item) for item in tree["v"]]
            return compare(column, "=", *values) if values else FALSE
        case "notin":
            return compare(column, "!=", *map(_value, tree["v"]))
        case "prefix":
            return dnf.atom(starts_with(column, str(tree["v"]["s"]), rest_matters=False))
        case "notprefix":
            return dnf.atom(not_starts_with(column, str(tree["v"]["s"])))
    return dnf.unknown(f"a condition of the kind {kind}")


def _value(typed: Mapping[str, Any]) -> Value:
    ((kind, value),) = typed.items()
    match kind:
        case "date":
            return _EPOCH + timedelta(days=int(value))
        case "ts":
            return Instant(int(value), "utc")
        case "ntz":
            return Instant(int(value), "local")
        case "d":
            return Decimal(value)
        case "f":
            return float(value)
        case "i":
            return int(value)
        case "b":
            return bool(value)
        case "s":
            return str(value)
    raise ValueError(f"a value of the kind {kind}")
