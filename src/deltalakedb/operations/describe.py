"""Comments and tags on a table and its columns, stored in the table's own metadata.

A table's comment is `metaData.description`, a column's is the entry `comment` of its field. A tag is a table property
or a field entry whose name begins with `tag.`. They are therefore mirrored, readable by every Delta reader, and
survive a rebuild of the catalog.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from deltalakedb.exceptions import ConfigError, SchemaMismatchError
from deltalakedb.log.checks.properties import COMMENT, TAG_PREFIX
from deltalakedb.log.checks.secret_checks import refuse_new_secrets
from deltalakedb.log.protocol.actions import Metadata
from deltalakedb.log.protocol.codec import to_json
from deltalakedb.log.protocol.proposal import ProposedCommit
from deltalakedb.log.schema.types import ArrayType, DataType, MapType, StructField, StructType
from deltalakedb.operations.definition import PropertyValue
from deltalakedb.operations.target import Done, Target

MAX_COMMENT: Final = 4000
MAX_TAG: Final = 255

_PART: Final = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")
Path = tuple[str, ...]


def set_comment(target: Target, text: str | None, *, column: str | None = None) -> Done:
    """Set the comment on the table, or on a column; None removes it."""
    if text is not None and (not isinstance(text, str) or len(text) > MAX_COMMENT):
        raise ConfigError(f"table {target.name}: a comment is a text of up to {MAX_COMMENT} characters")
    if column is None:
        changed = replace(target.metadata, description=text)
        return _done(target, changed, "COMMENT ON TABLE", {"comment": text})
    path = find_column(target.schema, column, table=target.name)
    changed = _with_entries(target, path, {COMMENT: text})
    return _done(target, changed, "COMMENT ON COLUMN", {"column": ".".join(path), "comment": text})


def set_tags(target: Target, tags: Mapping[str, PropertyValue | None], *, column: str | None = None) -> Done:
    """Set tags on the table, or on a column; its other tags stay. The value None removes a tag."""
    entries = {f"{TAG_PREFIX}{name}": value for name, value in to_tags(tags, table=target.name).items()}
    parameters = {"tags": to_json({key.removeprefix(TAG_PREFIX): value for key, value in entries.items()})}
    if column is None:
        changed = replace(target.metadata, configuration=_updated(target.metadata.configuration, entries))
        return _done(target, changed, "SET TAGS", parameters)
    path = find_column(target.schema, column, table=target.name)
    return _done(target, _with_entries(target, path, entries), "SET TAGS", {"column": ".".join(path), **parameters})


def to_tags(tags: Mapping[str, PropertyValue | None], *, table: str) -> dict[str, str | None]:
    """Return tags as they are stored; ConfigError if one is invalid."""
    if not tags:
        raise ConfigError(f"table {table}: no tag is given; give names and values, or None to remove one")
    checked: dict[str, str | None] = {}
    for name, value in tags.items():
        if not isinstance(name, str) or not 0 < len(name) <= MAX_TAG or "=" in name or not name.isprintable():
            raise ConfigError(f"table {table}: a tag's name is 1 to {MAX_TAG} printable characters without `=`")
        if value is not None and not isinstance(value, str | bool | int | float):
            raise ConfigError(f"table {table}: the value of tag {name} is a text, not {type(value).__name__}")
        text = str(value).lower() if isinstance(value, bool) else None if value is None else str(value)
        if text is not None and len(text) > MAX_COMMENT:
            raise ConfigError(f"table {table}: the value of tag {name} has more than {MAX_COMMENT} characters")
        checked[name] = text
    return checked


def find_column(schema: StructType, column: str, *, table: str) -> Path:
    """Return the path of a column in dotted notation, with backticks around parts that contain a dot.

    An exact match is preferred to one that ignores case. Fields in arrays and maps are reached by `element`, `key` and
    `value`, as in Spark.
    """
    paths = [path for path, _ in _every_path(schema)]
    requested = _parse_path(column)
    exact = [path for path in paths if path == requested or ".".join(path) == column]
    folded = [path for path in paths if ".".join(path).lower() == ".".join(requested).lower()]
    matches = exact or folded
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise SchemaMismatchError(
            f"table {table}: {column} may be several columns; write the parts that have a dot in them in backticks"
        )
    raise SchemaMismatchError(f"table {table} has no column {column}; it has {', '.join(map('.'.join, paths))}")


def _parse_path(column: str) -> Path:
    parts = tuple((quoted or plain).replace("``", "`") for quoted, plain in _PART.findall(column))
    return parts or (column,)


def _every_path(data_type: DataType, above: Path = ()) -> Iterator[tuple[Path, StructField]]:
    match data_type:
        case StructType():
            for item in data_type.fields:
                yield (*above, item.name), item
                yield from _every_path(item.type, (*above, item.name))
        case ArrayType():
            yield from _every_path(data_type.element_type, (*above, "element"))
        case MapType():
            yield from _every_path(data_type.key_type, (*above, "key"))
            yield from _every_path(data_type.value_type, (*above, "value"))


def _with_entries(target: Target, path: Path, entries: Mapping[str, str | None]) -> Metadata:
    schema = _change(target.schema, path, entries)
    assert isinstance(schema, StructType)
    return replace(target.metadata, schema_string=schema.to_json())


def _change(data_type: DataType, path: Path, entries: Mapping[str, str | None]) -> DataType:
    """Return the type with new entries in the metadata of the field at a path."""
    head, rest = path[0], path[1:]
    match data_type:
        case StructType():
            return StructType(
                tuple(
                    item
                    if item.name != head
                    else replace(item, type=_change(item.type, rest, entries))
                    if rest
                    else replace(item, metadata=_updated(item.metadata, entries))
                    for item in data_type.fields
                )
            )
        case ArrayType():
            return replace(data_type, element_type=_change(data_type.element_type, rest, entries))
        case MapType() if head == "key":
            return replace(data_type, key_type=_change(data_type.key_type, rest, entries))
        case MapType():
            return replace(data_type, value_type=_change(data_type.value_type, rest, entries))
        case _:
            return data_type


def _updated(known: Mapping[str, Any], entries: Mapping[str, str | None]) -> dict[str, Any]:
    return {key: value for key, value in {**known, **entries}.items() if value is not None or key not in entries}


def _done(target: Target, changed: Metadata, operation: str, parameters: Mapping[str, Any]) -> Done:
    """Return the commit, or none if nothing changes."""
    if changed == target.metadata or _says_the_same(target, changed):
        return Done(None)
    refuse_new_secrets(changed, target.metadata, what=f"table {target.name}")
    return Done(ProposedCommit((changed,), operation, dict(parameters)))


def _says_the_same(target: Target, changed: Metadata) -> bool:
    """Return whether only the spelling of the schema's JSON differs, as another engine may have written it."""
    same_schema = changed.schema_string == target.schema.to_json()
    return same_schema and replace(changed, schema_string=target.metadata.schema_string) == target.metadata
