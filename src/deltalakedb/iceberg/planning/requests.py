"""Parses the requests for scan plans, and finds the snapshots that they are about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from deltalakedb.exceptions import PredicateError, VersionNotFoundError
from deltalakedb.iceberg.planning.binding import Binder
from deltalakedb.iceberg.planning.expressions import balanced, parse_expression
from deltalakedb.iceberg.planning.schema import TableSchema, TableShape
from deltalakedb.log.predicates import dnf
from deltalakedb.log.predicates.atoms import TRUE, Dnf

_MAX_SNAPSHOTS: Final = 100_000


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A request for a scan plan. `filter` is as the client sent it, `True` without one."""

    filter: Any = True
    snapshot_id: int | None = None
    start_snapshot_id: int | None = None
    end_snapshot_id: int | None = None
    case_sensitive: bool = True
    use_snapshot_schema: bool = False
    stats_fields: tuple[str, ...] = ()
    min_rows: int | None = None

    @property
    def is_incremental(self) -> bool:
        return self.end_snapshot_id is not None


def parse_request(json: Mapping[str, Any]) -> PlanRequest:
    """Parses a request; PredicateError if a field has another type than the protocol says."""
    filter_ = json.get("filter")
    _texts(json, "select")
    request = PlanRequest(
        True if filter_ is None else balanced(filter_),
        # Some clients send 0 for the current snapshot.
        _integer(json, "snapshot-id") or None,
        _integer(json, "start-snapshot-id"),
        _integer(json, "end-snapshot-id"),
        _flag(json, "case-sensitive", default=True),
        _flag(json, "use-snapshot-schema", default=False),
        _texts(json, "stats-fields"),
        _integer(json, "min-rows-requested"),
    )
    if request.start_snapshot_id is not None and request.end_snapshot_id is None:
        raise PredicateError("Invalid scan: end-snapshot-id is required with start-snapshot-id")
    if request.snapshot_id is not None and request.is_incremental:
        raise PredicateError("Invalid scan: snapshot-id cannot be used with start-snapshot-id and end-snapshot-id")
    return request


def _integer(json: Mapping[str, Any], name: str) -> int | None:
    value = json.get(name)
    if value is not None and (type(value) is not int or not -(2**63) <= value < 2**63):
        raise PredicateError(f"Invalid scan: {name} must be an integer, not {value!r}")
    return value


def _flag(json: Mapping[str, Any], name: str, *, default: bool) -> bool:
    value = json.get(name)
    if value is not None and not isinstance(value, bool):
        raise PredicateError(f"Invalid scan: {name} must be true or false, not {value!r}")
    return default if value is None else value


def _texts(json: Mapping[str, Any], name: str) -> tuple[str, ...]:
    values = json.get(name)
    if values is not None and not (isinstance(values, list) and all(isinstance(item, str) for item in values)):
        raise PredicateError(f"Invalid scan: {name} must be a list of field names")
    return tuple(values or ())


# ---- snapshots


def snapshots_to_scan(metadata: Mapping[str, Any], request: PlanRequest) -> list[Mapping[str, Any]]:
    """The snapshot of a scan, or the appends of an incremental one; none of an empty table."""
    by_id = {snapshot["snapshot-id"]: snapshot for snapshot in metadata.get("snapshots") or ()}
    if request.end_snapshot_id is not None:
        return _appends(by_id, request.start_snapshot_id, request.end_snapshot_id)
    snapshot_id = request.snapshot_id
    if snapshot_id is None:
        snapshot_id = _current_id(metadata)
        if snapshot_id is None:
            return []
    return [_snapshot(by_id, snapshot_id)]


def _current_id(metadata: Mapping[str, Any]) -> int | None:
    snapshot_id = metadata.get("current-snapshot-id")
    if snapshot_id in (None, -1):
        snapshot_id = (metadata.get("refs") or {}).get("main", {}).get("snapshot-id")
    return None if snapshot_id in (None, -1) else snapshot_id


def _snapshot(by_id: Mapping[int, Mapping[str, Any]], snapshot_id: int) -> Mapping[str, Any]:
    if snapshot_id not in by_id:
        raise VersionNotFoundError(f"Cannot find snapshot with ID {snapshot_id}; it may have expired")
    return by_id[snapshot_id]


def _appends(by_id: Mapping[int, Mapping[str, Any]], start_id: int | None, end_id: int) -> list[Mapping[str, Any]]:
    """The snapshots after `start_id` up to `end_id` that appended, oldest first.

    The start is exclusive, as the protocol says; Iceberg's own server takes it as inclusive.
    """
    snapshots: list[Mapping[str, Any]] = []
    current: int | None = end_id
    while current is not None and current != start_id:
        snapshot = by_id.get(current)
        if snapshot is None and (start_id is not None or not snapshots):
            missing = end_id if not snapshots else start_id
            raise VersionNotFoundError(f"Snapshot {missing} is not an ancestor of {end_id}, or one between has expired")
        if snapshot is None or len(snapshots) > _MAX_SNAPSHOTS:
            break
        snapshots.append(snapshot)
        current = snapshot.get("parent-snapshot-id")
    if current is None and start_id is not None:
        raise VersionNotFoundError(f"Starting snapshot {start_id} is not a parent ancestor of end snapshot {end_id}")
    appended = [item for item in snapshots if (item.get("summary") or {}).get("operation", "append") == "append"]
    return appended[::-1]


# ---- the predicate


def schemas_to_bind(
    shape: TableShape, request: PlanRequest, snapshots: Sequence[Mapping[str, Any]]
) -> list[TableSchema]:
    """The schemas that the names of a filter may be meant in.

    A client that asks for a snapshot, and does not say by which schema, may have bound its filter by either.
    """
    own_id = snapshots[-1].get("schema-id") if snapshots else None
    if request.use_snapshot_schema:
        return [shape.schema_of(own_id)]
    explicit = request.snapshot_id is not None or request.is_incremental
    if explicit and own_id not in (None, shape.current_schema_id):
        return [shape.schema, shape.schema_of(own_id)]
    return [shape.schema]


def bind_filter(
    request: PlanRequest, shape: TableShape, schemas: Sequence[TableSchema], *, nan_has_bounds: bool = True
) -> Dnf:
    """The predicate of a request: what any of the schemas makes of its filter."""
    if request.filter is True:
        return TRUE
    expression = parse_expression(request.filter)
    predicates: list[Dnf] = []
    errors: list[PredicateError] = []
    for schema in schemas:
        try:
            binder = Binder(shape, schema, case_sensitive=request.case_sensitive, nan_has_bounds=nan_has_bounds)
            predicates.append(binder.bind(expression))
        except PredicateError as error:
            errors.append(error)
    if not predicates:
        raise errors[0]
    return predicates[0] if len(set(predicates)) == 1 else dnf.any_of(predicates)
