"""PyIceberg's identifiers and models as names and JSON of the REST protocol, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from pyiceberg.partitioning import PartitionSpec, assign_fresh_partition_spec_ids
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table.sorting import SortOrder, assign_fresh_sort_order_ids
from pyiceberg.typedef import IcebergBaseModel, IcebergRootModel, Identifier, Properties
from pyiceberg.view.metadata import ViewVersion

from deltalakedb.exceptions import TableNameError
from deltalakedb.store.names import (
    DEFAULT_NAMESPACE,
    TableName,
    check_part,
    join_namespace,
    namespace_parts,
    split_name,
)

Model = IcebergBaseModel | IcebergRootModel[Any]


def to_table_name(identifier: str | Identifier) -> TableName:
    """Return the name of a table or view; a single part is in the default namespace."""
    *namespace, name = _parts(identifier)
    return TableName(join_namespace(namespace or [DEFAULT_NAMESPACE]), name)


def to_namespace(identifier: str | Identifier) -> str:
    """Return a namespace as this package writes it."""
    return join_namespace(_parts(identifier))


def _parts(identifier: str | Identifier) -> list[str]:
    """Return the parts of an identifier. In a text they may be in backticks, as in all names of this package."""
    if isinstance(identifier, str):
        return split_name(identifier)
    if not identifier:
        raise TableNameError("an identifier without any part names nothing")
    return [check_part(part, whole=".".join(identifier)) for part in identifier]


def to_identifier(name: TableName) -> Identifier:
    """Return the identifier of a table or view."""
    return (*namespace_parts(name.namespace), name.name)


def table_request(
    schema: Schema, spec: PartitionSpec, order: SortOrder, location: str | None, properties: Properties
) -> dict[str, Any]:
    """Return the request that creates a table. Field ids are assigned anew: a schema from Arrow has none."""
    fresh_schema = assign_fresh_schema_ids(schema)
    request = {
        "schema": to_json_object(fresh_schema),
        "partition-spec": to_json_object(assign_fresh_partition_spec_ids(spec, schema, fresh_schema)),
        "write-order": to_json_object(assign_fresh_sort_order_ids(order, schema, fresh_schema)),
        "properties": _texts(properties),
    }
    return request if location is None else {**request, "location": location.rstrip("/")}


def view_request(
    name: TableName, schema: Schema, version: ViewVersion, location: str | None, properties: Properties
) -> dict[str, Any]:
    """Return the request that creates a view."""
    request = {
        "name": name.name,
        "schema": to_json_object(assign_fresh_schema_ids(schema)),
        "view-version": to_json_object(version),
        "properties": _texts(properties),
    }
    return request if location is None else {**request, "location": location.rstrip("/")}


def to_json_object(model: Model) -> dict[str, Any]:
    """Return a model as the JSON object that PyIceberg would send to a REST catalog."""
    value: dict[str, Any] = json.loads(model.model_dump_json())
    return value


def to_json_objects(models: Iterable[Model]) -> list[dict[str, Any]]:
    """Return models as JSON objects."""
    return [to_json_object(model) for model in models]


def _texts(properties: Properties) -> dict[str, str]:
    """Return properties as texts, as PyIceberg's own models convert them."""
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in properties.items()}
