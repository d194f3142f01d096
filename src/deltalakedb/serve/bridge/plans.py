"""Plans of Spark's scans: a typed tree of conditions becomes a predicate, and the files that SQL keeps are answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal, InvalidOperation
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
    compare_any,
    compare_none,
    not_starts_with,
    starts_with,
)
from deltalakedb.log.predicates.predicate import null_test, resolve_column
from deltalakedb.log.protocol.actions import Metadata
from deltalakedb.log.protocol.codec import from_sql_text
from deltalakedb.log.schema.types import parse_schema
from deltalakedb.serve.bridge.places import Place
from deltalakedb.store.overlay import OverlaySnapshot
from deltalakedb.store.planning import plan_pinned
from deltalakedb.store.reader import SqlTxnLogReader
from deltalakedb.store.snapshot import SqlSnapshot
from deltalakedb.transactions.transaction import CatalogTransaction

ARROW_STREAM = "application/vnd.apache.arrow.stream"
_COLUMNS = (
    "path", "partition_values", "size", "modification_time", "tags", "deletion_vector", "base_row_id",
    "default_row_commit_version", "clustering_provider",
)  # fmt: skip
_EPOCH = date(1970, 1, 1)
_DEEPEST = 200


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """What Spark asks of a plan."""

    filters: tuple[Mapping[str, Any], ...] = ()
    """Trees of conditions, of which all must hold."""
    with_records: bool = False
    """Whether the number of rows of each file is wanted."""
    only_vectors: bool = False
    """Whether only files with deletion vectors are wanted."""

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> ScanRequest:
        filters = body.get("filters") or []
        if not isinstance(filters, list) or not all(isinstance(item, dict) for item in filters):
            raise ConfigError('"filters" must be a list of trees {"k": kind, ...}')
        return cls(tuple(filters), bool(body.get("records")), bool(body.get("vectors")))


def plan_scan(
    catalog: Catalog, place: Place, tx: CatalogTransaction | None, version: int, request: ScanRequest
) -> pa.Table:
    """The files of a version that may hold a row for which all filters are true; without columns that are null."""
    snapshot = _open(catalog, place, tx, version)
    predicate = read_filters(request.filters, snapshot.metadata)
    names = [*_COLUMNS, *(["num_records"] if request.with_records else [])]
    if isinstance(snapshot, OverlaySnapshot):
        files = snapshot.plan(predicate, columns=names).files
    elif predicate.disjuncts == TRUE and not request.with_records:
        files = snapshot.files_table(names)
    else:
        assert place.table is not None
        files = plan_pinned(catalog.store, place.table, snapshot, predicate, columns=names).files
    if request.only_vectors:
        files = files.filter(pc.is_valid(files.column("deletion_vector")))
    return _compact(files)


def to_arrow_stream(files: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, files.schema) as writer:
        writer.write_table(files, max_chunksize=16_384)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _open(catalog: Catalog, place: Place, tx: CatalogTransaction | None, version: int) -> SqlSnapshot | OverlaySnapshot:
    if place.table is None and tx is None:
        raise VersionNotFoundError(f"no table is at {place.shown} yet")
    draft = None if tx is None else tx.draft_at(place.location)
    if draft is not None and (draft.base is None or version > draft.base.version):
        snapshot = draft.snapshot()
        if snapshot.version != version:
            raise VersionNotFoundError(f"table {place.shown} has no version {version} in this transaction")
        return snapshot
    assert place.table is not None
    return SqlTxnLogReader(catalog.store, place.table).snapshot(version)


def _compact(files: pa.Table) -> pa.Table:
    """The columns that have values, with paths as the log spells them."""
    empty = [name for name in files.column_names if name != "path" and files.column(name).null_count == files.num_rows]
    files = files.drop_columns(empty) if files.num_rows else files
    paths = files.column("path")
    if pc.any(pc.match_substring(paths, "\\")).as_py():
        decoded = pa.array([from_sql_text(path) for path in paths.to_pylist()], pa.string())
        files = files.set_column(files.column_names.index("path"), "path", decoded)
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
    except (KeyError, TypeError, ValueError, InvalidOperation) as error:
        raise ConfigError(f"a filter is no tree of conditions: {error!r}") from None


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
    found = _read_condition(kind, tree, column)
    if column.is_partition and column.kind == "text":
        # Delta compares an empty text as such, the catalog reads it as null. Spark decides about partitions itself.
        return dnf.any_of([found, null_test(column, is_null=True)])
    return found


def _read_condition(kind: str, tree: Mapping[str, Any], column: Column) -> Dnf:
    match kind:
        case "notnull":
            return null_test(column, is_null=False)
        case "cmp":
            return dnf.atom(compare(column, str(tree["o"]), _value(tree["v"])))
        case "in":
            values = [_value(item) for item in tree["v"]]
            return dnf.atom(compare_any(column, "=", values)) if values else FALSE
        case "notin":
            return dnf.atom(compare_none(column, [_value(item) for item in tree["v"]]))
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
